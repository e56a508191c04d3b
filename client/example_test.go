package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
)

func Example() {
	nc, err := nats.Connect(nats.DefaultURL)
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	ctx := context.Background()

	jobs := client.New(nc).PriorityQueue("jobs")
	if _, err := jobs.Push(ctx, 5, []byte("write the report")); err != nil {
		log.Fatal(err)
	}
	item, err := jobs.PopMin(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s (priority %d)\n", item.Value, item.Priority)
}

// A worker: each job is leased for a minute. If the worker dies, somebody else gets the job.
func ExampleDelivery() {
	nc, err := nats.Connect(nats.DefaultURL)
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	ctx := context.Background()

	jobs := client.New(nc).PriorityQueue("jobs")
	job, err := jobs.LeaseMin(ctx, client.AckWait(time.Minute))
	for err == nil {
		if work(job.Value) == nil {
			job, err = job.Next(ctx) // done with this one
			continue
		}
		if err = job.Nak(ctx, 10*time.Second); err == nil { // again in ten seconds
			job, err = jobs.LeaseMin(ctx, client.AckWait(time.Minute))
		}
	}
	if !errors.Is(err, client.ErrEmpty) {
		log.Fatal(err)
	}
}

func work([]byte) error { return nil }

// A worker that does four jobs at a time. On SIGINT it finishes those and begins no others.
func ExampleWorker() {
	nc, err := nats.Connect(nats.DefaultURL, nats.MaxReconnects(-1))
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	jobs := client.New(nc).PriorityQueue("jobs")
	worker := jobs.NewWorker(func(ctx context.Context, job *client.Job) error {
		switch err := work(job.Value); {
		case errors.Is(err, errBusy):
			return client.Snooze(time.Minute) // does not count
		case errors.Is(err, errNonsense):
			return client.Drop("nobody can do that") // a dead letter
		default:
			return err // nil: done. Otherwise again, as the queue's backoff says
		}
	}, client.WorkerOptions{Concurrency: 4})
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

var errBusy, errNonsense = errors.New("busy"), errors.New("nonsense")

// Many items in one request: all of them are in the queue afterwards, or none.
func ExamplePriorityQueue_PushBatch() {
	nc, err := nats.Connect(nats.DefaultURL)
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()

	jobs := client.New(nc).PriorityQueue("jobs")
	ids, err := jobs.PushBatch(context.Background(), []client.PushItem{
		{Priority: 5, Message: client.Message{Value: []byte("write the report")}},
		{Priority: 1, Message: client.Message{Value: []byte("put out the fire")}},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(ids), "jobs pushed")
}
