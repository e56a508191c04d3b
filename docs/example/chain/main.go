// Packs orders. Once one is packed, and not before, its mail is in the queue mail.
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

	orders := client.New(nc).PriorityQueue("orders")
	worker, err := orders.NewWorker(pack, client.WorkerOptions{
		AckWait: time.Second, // short, so that you need not wait long
	})
	check(err)
	check(worker.Run(ctx))
}

func pack(ctx context.Context, job *client.Job) error {
	fmt.Printf("packing %s, delivery %d\n", job.Value, job.Deliveries)
	mail := fmt.Appendf(nil, "%s is on its way", job.Value)
	if err := job.Then("mail", 5, mail); err != nil {
		return err
	}

	if job.Deliveries == 1 { // it hangs, so that you can kill it
		<-ctx.Done()
	}
	return ctx.Err()
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
