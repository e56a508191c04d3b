package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// pushItem is an item without headers.
func pushItem(priority int64, value string) client.PushItem {
	return client.PushItem{Priority: priority, Message: client.Message{Value: []byte(value)}}
}

func TestPushBatch(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	c, ctx := newClient(e.Conn), t.Context()
	q, mail := c.PriorityQueue("jobs"), c.Queue("mail")
	headers := nats.Header{"a": {"1", "2"}, subjects.HeaderPriority: {"ignored"}}
	acks, err := q.PushBatch(ctx, []client.PushItem{
		pushItem(7, "c"), {Priority: -7, Message: client.Message{Value: []byte("a"), Headers: headers}}, pushItem(7, "d"), pushItem(0, "b"),
	})
	if err != nil || len(acks) != 4 || headers.Get(subjects.HeaderPriority) != "ignored" {
		t.Fatalf("%+v, %v, headers %v", acks, err, headers)
	}
	for i, at := range []int{1, 3, 0, 2} {
		item, err := q.PopMin(ctx)
		if err != nil || string(item.Value) != string("abcd"[i]) || item.ID != acks[at].ID || item.Priority != acks[at].Priority {
			t.Errorf("popped %+v, %v, want item %d", item, err, at)
		}
		if i == 0 && (item.Priority != -7 || !slices.Equal(item.Headers["a"], []string{"1", "2"})) {
			t.Errorf("popped %+v", item)
		}
	}
	acks, err = mail.EnqueueBatch(ctx, []client.Message{{Value: []byte("a")}, {}, {Headers: nats.Header{"b": {"x"}}}})
	ok(t, err)
	for i, ack := range acks {
		if item, err := mail.Dequeue(ctx); err != nil || item.ID != ack.ID || i == 2 && item.Headers.Get("b") != "x" {
			t.Errorf("item %d: %+v, %v", i, item, err)
		}
	}
}

func TestPushBatchRefuses(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	c, ctx := newClient(e.Conn), t.Context()
	q, mail := c.PriorityQueue("jobs"), c.Queue("mail")
	withHeader := func(name string) []client.PushItem {
		return []client.PushItem{pushItem(1, "x"), {Message: client.Message{Headers: nats.Header{name: {"x"}}}}}
	}
	for _, test := range []struct {
		name  string
		items []client.PushItem
		is    error
		text  string
	}{
		{"none", nil, client.ErrBadRequest, "it is empty"},
		{"too many", make([]client.PushItem, 4097), client.ErrTooLarge, "want at most 4096"},
		{"too large", []client.PushItem{pushItem(1, strings.Repeat("x", 1<<20))}, client.ErrTooLarge, fmt.Sprint(1 << 20)},
		{"header name", withHeader("a\r\nb"), client.ErrBadRequest, "item 1: header"},
		{"refused header", withHeader("Nats-Rollup"), client.ErrBadRequest, "item 1: bad request"},
		{"protocol's header", withHeader("Pq-Wait"), client.ErrBadRequest, "item 1: bad request"},
	} {
		acks, err := q.PushBatch(ctx, test.items)
		if acks != nil || !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: %+v, %v", test.name, acks, err)
		}
	}
	failsWith(t, "a priority in a FIFO queue", client.ErrBadRequest)(mail.EnqueueBatch(ctx, []client.Message{{Headers: nats.Header{subjects.HeaderPriority: {"1"}}}}))
	failsWith(t, "a bad name", client.ErrBadRequest)(c.PriorityQueue("a b").PushBatch(ctx, withHeader("a")))
	if n, err := q.Len(ctx); n != 0 || err != nil {
		t.Errorf("%d items, %v", n, err)
	}
	succeeds(t)(q.PushBatch(ctx, make([]client.PushItem, 4096)))
}

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
		q := newClient(e.Conn).PriorityQueue("jobs")
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
		e := testenv.New(t, testenv.Options{})
		q := newClient(e.Conn).PriorityQueue("jobs")
		items, want := numbered(5000, 0)
		items[4500].Message = test.bad
		results, err := q.PushMany(t.Context(), items)
		if in, failed, notSent := outcomes(t, results); in != 4500 || failed != 1 || notSent != 499 {
			t.Errorf("%s: %d in, %d failed, %d not sent", name, in, failed, notSent)
		}
		if !errors.Is(err, test.is) || !errors.Is(results[4500].Err, test.is) || !strings.Contains(err.Error(), test.text) ||
			!strings.Contains(err.Error(), "of 5000 items 4500 are in the queue") {
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
	}, client.WithTimeout(testenv.Patience))
	items, want := numbered(100, 0)
	succeeds(t)(q.PushMany(t.Context(), items))
	if got := contents(t, e); !slices.Equal(got, want) || requests != 4+17 {
		t.Errorf("%d items in the queue, after %d requests", len(got), requests)
	}
}

// Options of pushes hold items back, alone and in batches, and leave the caller's headers alone.
func TestPushDelay(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	c, ctx := newClient(e.Conn), t.Context()
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
		failsWith(t, "a pop of nothing", client.ErrEmpty)(pop(ctx))
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
	far := client.At(time.Now().AddDate(11, 0, 0))
	failsWith(t, "a bad time", client.ErrBadRequest)(q.Push(ctx, 1, nil, far))
	failsWith(t, "two delays", client.ErrBadRequest)(q.Push(ctx, 1, nil, hour, past))
}

// A push is done once for each message id in the window, and for each unique key until its item is done.
func TestPushOnce(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	c, ctx := newClient(e.Conn), t.Context()
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
	item, err := jobs.LeaseMin(ctx, client.AckWait(time.Hour))
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
	again := client.Message{}.With(client.MsgID("1"))
	results, err := mail.EnqueueMany(ctx, []client.Message{again, {}})
	if err != nil || len(results) != 2 || !results[0].Duplicate || results[1].Duplicate {
		t.Errorf("enqueued %+v, %v", results, err)
	}
	acks, err := mail.EnqueueBatch(ctx, []client.Message{
		client.Message{}.With(client.MsgID("1")), client.Message{}.With(client.Unique("k")), client.Message{}.With(client.Unique("k")),
	})
	if err != nil || !acks[0].Duplicate || acks[1].Duplicate || !acks[2].Duplicate || acks[1].ID != acks[2].ID {
		t.Errorf("%+v, %v", acks, err)
	}
	for _, bad := range []client.PushOption{client.MsgID(""), client.Unique(strings.Repeat("x", 513))} {
		if _, err := mail.Enqueue(ctx, nil, bad); !errors.Is(err, client.ErrBadRequest) || !strings.Contains(err.Error(), "want 1 to 512") {
			t.Errorf("a bad key: %v", err)
		}
	}
}
