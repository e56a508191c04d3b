package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

// Options of pushes hold items back, alone and in batches, and leave the caller's headers alone.
func TestPushDelay(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	c, ctx := client.New(e.Conn), t.Context()
	q, mail := c.PriorityQueue("jobs"), c.Queue("mail")
	hour, past := client.Delay(time.Hour), client.At(time.Now().Add(-time.Minute))
	headers := nats.Header{"a": {"b"}}
	m := client.Message{Value: []byte("now"), Headers: headers}
	for name, push := range map[string]func() error{
		"push":    func() error { _, err := q.Push(ctx, 1, nil, hour); return err },
		"msg":     func() error { _, err := q.PushMsg(ctx, 1, m, client.At(time.Now().Add(time.Hour))); return err },
		"enqueue": func() error { _, err := mail.Enqueue(ctx, nil, hour); return err },
		"batch": func() error {
			_, err := q.PushBatch(ctx, []client.PushItem{{Message: m.With(hour)}, {Message: m.With(past)}, {Message: m.With()}})
			return err
		},
		"FIFO batch": func() error { _, err := mail.EnqueueBatch(ctx, []client.Message{m.With(hour), m}); return err },
		"past":       func() error { _, err := mail.EnqueueMsg(ctx, m, past); return err },
	} {
		if err := push(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, pop := range []func(context.Context, ...client.PopOption) (*client.Item, error){q.PopMin, mail.Dequeue} {
		for range 2 {
			if item, err := pop(ctx); err != nil || string(item.Value) != "now" || len(item.Headers) != 1 {
				t.Errorf("popped %+v, %v", item, err)
			}
		}
		if item, err := pop(ctx); !errors.Is(err, client.ErrEmpty) {
			t.Errorf("popped %+v, %v: want nothing", item, err)
		}
	}
	if len(headers) != 1 {
		t.Errorf("the caller's headers are %v", headers)
	}
	for ttl, want := range map[time.Duration]string{time.Hour: "1h0m0s", 0: "never"} {
		if _, err := q.Push(ctx, 1, nil, client.TTL(ttl)); err != nil {
			t.Error(err)
		}
		if item, err := q.PopMin(ctx); err != nil || item.Headers.Get("Nats-TTL") != want {
			t.Errorf("popped %+v, %v: want a TTL of %s", item, err, want)
		}
	}
	for _, bad := range []client.PushOption{client.TTL(time.Millisecond), client.TTL(-time.Hour), client.Delay(-time.Second), client.Delay(11 * 365 * 24 * time.Hour), client.At(time.Now().AddDate(11, 0, 0))} {
		if _, err := q.Push(ctx, 1, nil, bad); !errors.Is(err, client.ErrBadRequest) {
			t.Errorf("a bad delay: %v", err)
		}
	}
	if _, err := q.Push(ctx, 1, nil, hour, past); !errors.Is(err, client.ErrBadRequest) {
		t.Errorf("two delays: %v", err)
	}
}
