package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// numbered returns items with the values 00000, 00001, ...
func numbered(n, size int) (items []client.PushItem, values []string) {
	for i := range n {
		items = append(items, pushItem(3, fmt.Sprintf("%05d%s", i, strings.Repeat("x", size))))
		values = append(values, string(items[i].Value))
	}
	return items, values
}

// outcomes returns how many items are in the queue, failed, and were not sent, of results in that order.
func outcomes(t *testing.T, results []client.PushResult) (in, failed, notSent int) {
	t.Helper()
	for i, r := range results {
		switch {
		case r.Err == nil && r.ID != "" && failed+notSent == 0:
			in++
		case errors.Is(r.Err, client.ErrNotSent) && !errors.Is(r.Err, client.ErrUnknownOutcome):
			notSent++
		case r.Err != nil && notSent == 0:
			failed++
		default:
			t.Fatalf("item %d: %+v after %d in, %d failed, %d not sent", i, r, in, failed, notSent)
		}
	}
	return in, failed, notSent
}

// Many items are split at the limits of a batch: 4,096 items, what a message holds, and what its reply holds.
func TestPushMany(t *testing.T) {
	small := func(o *server.Options) { o.MaxPayload = 8192 }
	for name, test := range map[string]struct {
		n, size int
		nats    func(*server.Options)
	}{"number": {9000, 0, nil}, "bytes": {400, 10_000, nil}, "reply": {2000, 0, small}, "none": {0, 0, nil}} {
		e := testenv.New(t, testenv.Options{NATS: test.nats})
		q := client.New(e.Conn).PriorityQueue("jobs")
		items, want := numbered(test.n, test.size)
		results, err := q.PushMany(t.Context(), items)
		if in, _, _ := outcomes(t, results); err != nil || in != test.n || len(results) != test.n {
			t.Fatalf("%s: %d of %d, %v", name, in, test.n, err)
		}
		if test.n > 0 {
			item, err := q.PeekMin(t.Context())
			if err != nil || item.ID != results[0].ID || results[0].Priority != 3 || results[0].Queue != "jobs" {
				t.Errorf("%s: %+v, %v; result %+v", name, item, err, results[0])
			}
		}
		if got := contents(t, e); !slices.Equal(got, want) {
			t.Errorf("%s: %d items in the queue, in another order or not all", name, len(got))
		}
	}
}

func TestEnqueueMany(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	q := client.New(e.Conn).Queue("mail")
	once := client.Message{Value: []byte("b")}.With(client.MsgID("1"))
	results, err := q.EnqueueMany(t.Context(), []client.Message{{Value: []byte("a")}, once, once})
	if err != nil || len(results) != 3 || results[1].Duplicate || !results[2].Duplicate || results[1].ID != results[2].ID {
		t.Errorf("%+v, %v", results, err)
	}
}

// An item that is refused fails alone: those before it are in the queue, and those after it are not sent.
func TestPushManyRefused(t *testing.T) {
	for name, test := range map[string]struct {
		bad  client.Message
		is   error
		text string
	}{
		"by the bridge": {client.Message{Headers: nats.Header{"Nats-Rollup": {"all"}}}, client.ErrBadRequest, "item 4500: bad request"},
		"by the client": {client.Message{Headers: nats.Header{"a\r\nb": {"x"}}}, client.ErrBadRequest, "item 4500: header"},
		"its size":      {client.Message{Value: make([]byte, 1<<20)}, client.ErrTooLarge, "1048576 bytes"},
	} {
		e, q := newQueue(t)
		items, want := numbered(5000, 0)
		items[4500].Message = test.bad
		results, err := q.PushMany(t.Context(), items)
		if in, failed, notSent := outcomes(t, results); in != 4500 || failed != 1 || notSent != 499 {
			t.Errorf("%s: %d in, %d failed, %d not sent", name, in, failed, notSent)
		}
		if !errors.Is(err, test.is) || !errors.Is(results[4500].Err, test.is) || !strings.Contains(err.Error(), test.text) ||
			!strings.Contains(err.Error(), "of 5000 items 4500 are in the queue, 500 are not, and of 0 the outcome is unknown") {
			t.Errorf("%s: %v", name, err)
		}
		if got := contents(t, e); !slices.Equal(got, want[:4500]) {
			t.Errorf("%s: %d items in the queue", name, len(got))
		}
	}
}

// expiring is a context whose deadline is when over is closed.
type expiring struct {
	context.Context
	over chan struct{}
}

func (c expiring) Done() <-chan struct{} { return c.over }

func (c expiring) Err() error {
	select {
	case <-c.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// What failed and what is unknown is told exactly, and nothing is sent after it.
func TestPushManyFails(t *testing.T) {
	items, want := numbered(9000, 0)
	for name, test := range map[string]struct {
		second  func(pass func() *nats.Msg, expire func()) *nats.Msg
		is      error
		unknown bool
		stored  int
	}{
		"not run":    {func(func() *nats.Msg, func()) *nats.Msg { return refusal(subjects.CodeUnavailable) }, client.ErrUnavailable, false, 4096},
		"full":       {func(func() *nats.Msg, func()) *nats.Msg { return refusal(subjects.CodeOverloaded) }, client.ErrOverloaded, false, 4096},
		"reply lost": {func(pass func() *nats.Msg, expire func()) *nats.Msg { pass(); expire(); return nil }, context.DeadlineExceeded, true, 8192},
		"lost":       {func(_ func() *nats.Msg, expire func()) *nats.Msg { expire(); return nil }, context.DeadlineExceeded, true, 4096},
	} {
		e := testenv.New(t, testenv.Options{})
		ctx := expiring{t.Context(), make(chan struct{})}
		q := between(t, e, func(n int, pass func() *nats.Msg) *nats.Msg {
			if n == 1 {
				return test.second(pass, func() { close(ctx.over) })
			}
			return pass()
		}, client.WithTimeout(testenv.Patience))
		results, err := q.PushMany(ctx, items)
		if in, failed, notSent := outcomes(t, results); in != 4096 || failed != 4096 || notSent != 9000-8192 {
			t.Errorf("%s: %d in, %d failed, %d not sent", name, in, failed, notSent)
		}
		if !errors.Is(err, test.is) || errors.Is(err, client.ErrUnknownOutcome) != test.unknown || !errors.Is(results[5000].Err, test.is) {
			t.Errorf("%s: %v", name, err)
		}
		if got := contents(t, e); !slices.Equal(got, want[:test.stored]) {
			t.Errorf("%s: %d items in the queue", name, len(got))
		}
	}
	e := testenv.New(t, testenv.Options{})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	results, err := client.New(e.Conn).PriorityQueue("jobs").PushMany(ended, items)
	if !errors.Is(err, context.Canceled) || errors.Is(err, client.ErrUnknownOutcome) || errors.Is(results[8999].Err, client.ErrUnknownOutcome) {
		t.Errorf("a context that had ended: %v", err)
	}
}

// Batches that only the bridge finds too large are split.
func TestPushManySplits(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	requests := 0
	q := between(t, e, func(n int, pass func() *nats.Msg) *nats.Msg {
		if requests++; n < 4 {
			return refusal(subjects.CodeTooLarge)
		}
		return pass()
	})
	items, want := numbered(100, 0)
	succeeds(t)(q.PushMany(t.Context(), items))
	if got := contents(t, e); !slices.Equal(got, want) || requests != 4+17 {
		t.Errorf("%d items in the queue, after %d requests", len(got), requests)
	}
}
