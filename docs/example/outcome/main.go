// Greets people: "outcome work" runs the worker, and "outcome call <name>" has it greet somebody
// and prints what it returned.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
)

// The caller and the worker share this.
var Greet client.Function[Person, Greeting]

type Person struct{ Name string }

type Greeting struct{ Text string }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	nc, err := client.Connect(ctx, cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL))
	check(err)
	defer nc.Close()
	greetings := client.New(nc).PriorityQueue("greetings")

	switch {
	case len(os.Args) == 2 && os.Args[1] == "work":
		work(ctx, greetings)
	case len(os.Args) == 3 && os.Args[1] == "call":
		call(ctx, greetings, os.Args[2])
	default:
		log.Fatal("want: outcome work, or outcome call <name>")
	}
}

func work(ctx context.Context, greetings *client.Queue) {
	worker, err := greetings.NewWorker(Greet.Work(greet), client.WorkerOptions{
		AckWait: time.Second, // short, so that you need not wait long
	})
	check(err)
	check(worker.Run(ctx))
}

func greet(ctx context.Context, job *client.Job, p Person) (Greeting, error) {
	fmt.Printf("greeting %s, delivery %d\n", p.Name, job.Deliveries)
	switch {
	case p.Name == "nobody":
		return Greeting{}, client.Drop("nobody to greet")
	case p.Name == "slow" && job.Deliveries == 1: // the second time is easier
		<-ctx.Done()
		return Greeting{}, ctx.Err()
	}
	return Greeting{Text: "hello " + p.Name}, nil
}

func call(ctx context.Context, greetings *client.Queue, name string) {
	greeting, err := Greet.Call(ctx, greetings, 5, Person{name}, client.MsgID("greet "+name))
	if failed := new(client.JobFailed); errors.As(err, &failed) {
		fmt.Println("it failed:", failed.Reason)
		return
	}
	check(err)
	fmt.Println(greeting.Text)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
