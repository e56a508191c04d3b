package client_test

import (
	"context"
	"fmt"

	"github.com/pqbridge/pqbridge/client"
)

// Shop is a program that pushes. In production, its Jobs is a *client.Queue.
type Shop struct{ Jobs client.Pusher }

func (s *Shop) Order(ctx context.Context, what string) error {
	_, err := s.Jobs.Push(ctx, 1, []byte(what), client.Type("order"))
	return err
}

// FakeQueue is a queue for the tests of Shop. What it does not have would panic.
type FakeQueue struct {
	client.Pusher
	Pushed []client.Message
}

func (f *FakeQueue) Push(
	_ context.Context, _ int64, value []byte, options ...client.PushOption,
) (client.PushAck, error) {
	f.Pushed = append(f.Pushed, client.Message{Value: value}.With(options...))
	return client.PushAck{Queue: "jobs", ID: fmt.Sprint(len(f.Pushed))}, nil
}

// What pushes can be tested without NATS.
func ExamplePusher() {
	queue := &FakeQueue{}
	shop := &Shop{Jobs: queue}
	err := shop.Order(context.Background(), "a cake")

	for _, m := range queue.Pushed {
		fmt.Printf("%s %s, %v\n", m.Headers.Get(client.HeaderType), m.Value, err)
	}
	// Output: order a cake, <nil>
}
