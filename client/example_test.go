package client_test

import (
	"context"
	"fmt"
	"log"

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
