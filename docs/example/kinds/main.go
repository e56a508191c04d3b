// Does jobs of two types, from two queues.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	nc, err := client.Connect(ctx, cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL))
	check(err)
	defer nc.Close()

	c := client.New(nc)
	express, standard := c.PriorityQueue("express"), c.PriorityQueue("standard")
	_, err = express.Push(ctx, 5, []byte("to eve"), client.Type("letter"))
	check(err)
	_, err = standard.Push(ctx, 5, []byte("to bob"), client.Type("parcel"))
	check(err)

	var mux client.Mux
	mux.Handle("letter", func(_ context.Context, job *client.Job) error {
		fmt.Printf("%s letter %s\n", job.Queue, job.Value)
		return nil
	})

	mux.Handle("parcel", func(_ context.Context, job *client.Job) error {
		defer stop() // it is the last
		fmt.Printf("%s parcel %s\n", job.Queue, job.Value)
		return nil
	})

	worker, err := client.NewWorker(mux.Work, client.WorkerOptions{},
		express.Weight(3), standard.Weight(1))
	check(err)
	go func() {
		<-ctx.Done() // of signal.NotifyContext
		grace, cancel := context.WithTimeout(context.Background(), 25*time.Second)
		defer cancel()
		_ = worker.Shutdown(grace)
	}()
	check(worker.Run(context.Background()))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
