package client_test

import (
	"context"
	"errors"
	"slices"
	"strings"
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
		succeeds(t)(q.Push(ctx, 1, nil, client.TTL(ttl)))
		if item, err := q.PopMin(ctx); err != nil || item.Headers.Get("Nats-TTL") != want {
			t.Errorf("popped %+v, %v: want a TTL of %s", item, err, want)
		}
	}
	for _, bad := range []client.PushOption{client.TTL(time.Millisecond), client.TTL(-time.Hour), client.Delay(-time.Second), client.Delay(11 * 365 * 24 * time.Hour), client.At(time.Now().AddDate(11, 0, 0))} {
		failsWith(t, "a bad delay", client.ErrBadRequest)(q.Push(ctx, 1, nil, bad))
	}
	failsWith(t, "two delays", client.ErrBadRequest)(q.Push(ctx, 1, nil, hour, past))
}

// A push is done once for each message id in the window, and for each unique key until its item is done.
func TestPushOnce(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	c, ctx := client.New(e.Conn), t.Context()
	jobs, mail := c.PriorityQueue("jobs"), c.Queue("mail")
	first := must(jobs.Push(ctx, 5, []byte("a"), client.MsgID("1"), client.Unique("k")))
	want := client.PushAck{Queue: "jobs", ID: first.ID, Priority: 5, Duplicate: true}
	for _, again := range []client.PushAck{
		must(jobs.Push(ctx, 9, nil, client.MsgID("1"))),
		must(jobs.Push(ctx, 9, nil, client.Unique("k"))),
		must(jobs.PushMsg(ctx, 9, client.Message{}.With(client.MsgID("1"), client.Unique("other")))),
	} {
		if first.Duplicate || again != want {
			t.Errorf("pushed %+v, then %+v", first, again)
		}
	}
	item, err := jobs.LeaseMin(ctx)
	if err != nil || item.Headers.Get("Nats-Msg-Id") != "1" || item.Unique != "k" {
		t.Fatalf("leased %+v, %v", item, err)
	}
	if again := must(jobs.Push(ctx, 1, nil, client.Unique("k"))); again.ID != first.ID {
		t.Errorf("leased, and pushed again: %+v", again)
	}
	ok(t, item.Ack(ctx))
	if again := must(jobs.Push(ctx, 1, nil, client.Unique("k"))); again.Duplicate {
		t.Errorf("acknowledged, and pushed again: %+v", again)
	}
	if again := must(jobs.Push(ctx, 1, nil, client.MsgID("1"))); again.ID != first.ID {
		t.Errorf("acknowledged, and pushed again: %+v", again)
	}

	must(mail.Enqueue(ctx, []byte("a"), client.MsgID("1")))
	ids, duplicates, err := mail.EnqueueBatchDuplicates(ctx, []client.Message{
		client.Message{}.With(client.MsgID("1")), client.Message{}.With(client.Unique("k")), client.Message{}.With(client.Unique("k")),
	})
	if err != nil || !slices.Equal(duplicates, []int{0, 2}) || ids[1] != ids[2] {
		t.Errorf("%q, %v, %v", ids, duplicates, err)
	}
	for _, bad := range []client.PushOption{client.MsgID(""), client.Unique(strings.Repeat("x", 513))} {
		if _, err := mail.Enqueue(ctx, nil, bad); !errors.Is(err, client.ErrBadRequest) || !strings.Contains(err.Error(), "want 1 to 512") {
			t.Errorf("a bad key: %v", err)
		}
	}
}
