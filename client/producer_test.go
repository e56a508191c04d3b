package client_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

// What one goroutine pushes is served in its order, and acknowledged once it is durable.
func TestProducer(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	c := client.New(e.Conn)
	jobs, mail := c.PriorityQueue("jobs"), c.Queue("mail")
	p, m := jobs.NewProducer(client.ProducerOptions{MaxItems: 100}), mail.NewProducer(client.ProducerOptions{MaxBytes: 100})
	var futures []*client.PushFuture
	value := []byte("00000")
	for i := range 1000 {
		copy(value, fmt.Sprintf("%05d", i))
		f, err := p.PushAsync(t.Context(), 7, client.Message{Value: value})
		if err != nil {
			t.Fatal(err)
		}
		futures = append(futures, f)
		if _, err := m.PushAsync(t.Context(), 0, client.Message{Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(p.Flush(t.Context()), m.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	for i, f := range futures {
		ack, err := f.Wait(context.Background())
		item, popErr := jobs.PopMin(t.Context())
		if err != nil || popErr != nil || item.ID != ack.ID || string(item.Value) != fmt.Sprintf("%05d", i) || item.Priority != 7 || ack.Priority != 7 {
			t.Fatalf("push %d: %+v, %v; popped %+v, %v", i, ack, err, item, popErr)
		}
		if item, err := mail.Dequeue(t.Context()); err != nil || string(item.Value) != fmt.Sprintf("%05d", i) {
			t.Fatalf("dequeued %+v, %v", item, err)
		}
	}
	if _, err := m.PushAsync(t.Context(), 0, client.Message{}); !errors.Is(err, client.ErrProducerClosed) {
		t.Errorf("after Close: %v", err)
	}
}
