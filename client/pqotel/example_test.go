package pqotel_test

import (
	"context"
	"fmt"
	"log"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/client/pqotel"
)

// The program has set the global providers of package otel.
func Example() {
	ctx := context.Background()
	nc, err := client.Connect(ctx, nats.DefaultURL)
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()

	otel.SetTextMapPropagator(propagation.TraceContext{})
	telemetry, err := pqotel.New(pqotel.Config{})
	if err != nil {
		log.Fatal(err)
	}

	jobs := client.New(nc).PriorityQueue("jobs")
	if _, err := telemetry.Pusher(jobs).Push(ctx, 5, []byte("write the report")); err != nil {
		log.Fatal(err)
	}

	worker, err := jobs.NewWorker(func(ctx context.Context, job *client.Job) error {
		fmt.Printf("%s\n", job.Value) // ctx has the span of the job
		return nil
	}, client.WorkerOptions{Middleware: []func(client.Work) client.Work{telemetry.Middleware}})
	if err != nil {
		log.Fatal(err)
	}

	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
