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

// mostInBatch is how many items a batch has at most.
const mostInBatch = 4096

// pushItem is an item without headers.
func pushItem(priority int64, value string) client.PushItem {
	return client.PushItem{Priority: priority, Message: client.Message{Value: []byte(value)}}
}

// The items of a batch are served as if they had been pushed one by one.
func TestPushBatchOrder(t *testing.T) {
	_, q := newQueue(t)

	acks, err := q.PushBatch(t.Context(), []client.PushItem{
		pushItem(7, "c"),
		pushItem(-7, "a"),
		pushItem(7, "d"),
		pushItem(0, "b"),
	})

	ok(t, err)
	if len(acks) != 4 {
		t.Errorf("%d acknowledgements of 4 items", len(acks))
	}
	wantText(t, "popped", values(t, nil)(q.PopBatch(t.Context(), 4)), "a b c d")
}

// The acknowledgements of a batch have the order of its items, and their ids and priorities.
func TestPushBatchAcks(t *testing.T) {
	_, q := newQueue(t)
	batch := []client.PushItem{pushItem(7, "c"), pushItem(-7, "a"), pushItem(0, "b")}

	acks, err := q.PushBatch(t.Context(), batch)

	ok(t, err)
	for i, ack := range acks {
		item, _, err := q.Get(t.Context(), ack.ID)
		ok(t, err)
		if string(item.Value) != string(batch[i].Value) || item.Priority != batch[i].Priority ||
			ack.Priority != batch[i].Priority {
			t.Errorf("acknowledgement %+v of %+v, want item %+v", ack, item, batch[i])
		}
	}
}

// The priority of an item of a batch is that of the PushItem, whatever its headers say. The
// caller's headers stay as they are, and the others are kept.
func TestPushBatchHeaders(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	c := newClient(e.Conn)
	for _, q := range []*client.Queue{c.PriorityQueue("jobs"), c.FIFOQueue("mail")} {
		headers := nats.Header{"a": {"1", "2"}, subjects.HeaderPriority: {"9"}}
		item := client.PushItem{Message: client.Message{Headers: headers}}

		succeeds(t)(q.PushBatch(t.Context(), []client.PushItem{item}))

		got, err := q.Pop(t.Context())
		ok(t, err)
		if got.Priority != 0 || !slices.Equal(got.Headers["a"], []string{"1", "2"}) {
			t.Errorf("%s: priority %d, headers %v", q.Name(), got.Priority, got.Headers)
		}
		if headers.Get(subjects.HeaderPriority) != "9" {
			t.Errorf("%s: the headers became %v", q.Name(), headers)
		}
	}
}

// A batch that is refused says why, with the index of the item at fault if there is one, and pushes
// nothing. A batch of 4,096 items is not refused.
func TestPushBatchRefuses(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	c, ctx := newClient(e.Conn), t.Context()
	q := c.PriorityQueue("jobs")

	withHeader := func(name string) []client.PushItem {
		bad := client.Message{Headers: nats.Header{name: {"x"}}}
		return []client.PushItem{pushItem(1, "x"), {Message: bad}}
	}
	large := []client.PushItem{pushItem(1, strings.Repeat("x", 1<<20))}

	for _, test := range []struct {
		name  string
		items []client.PushItem
		is    error
		text  string
	}{
		{"none", nil, client.ErrBadRequest, "want 1 to 4096"},
		{
			"too many",
			make([]client.PushItem, mostInBatch+1),
			client.ErrTooLarge,
			"want at most 4096",
		},
		{"too large", large, client.ErrTooLarge, fmt.Sprint(1 << 20)},
		{"header name", withHeader("a\r\nb"), client.ErrBadRequest, "item 1: header"},
		{"refused header", withHeader("Nats-Rollup"), client.ErrBadRequest, "item 1: bad request"},
		{"protocol's header", withHeader("Pq-Wait"), client.ErrBadRequest, "item 1: bad request"},
	} {
		acks, err := q.PushBatch(ctx, test.items)

		if acks != nil || !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: %+v, %v", test.name, acks, err)
		}
	}

	_, err := c.PriorityQueue("a b").PushBatch(ctx, withHeader("a"))
	failsWith(t, "a bad name", client.ErrBadRequest)(nil, err)
	if n, err := q.Len(ctx); n != 0 || err != nil {
		t.Errorf("%d items, %v", n, err)
	}

	succeeds(t)(q.PushBatch(ctx, make([]client.PushItem, mostInBatch)))
}

// numberedItems returns n items with the values 00000, 00001, ..., each followed by size bytes.
func numberedItems(n, size int) (items []client.PushItem, values []string) {
	for i := range n {
		items = append(items, pushItem(3, fmt.Sprintf("%05d%s", i, strings.Repeat("x", size))))
		values = append(values, string(items[i].Value))
	}
	return items, values
}

// countOutcomes returns how many items are in the queue, how many failed, and how many were not
// sent. It fails the test unless the results have them in this order.
func countOutcomes(t *testing.T, results []client.PushResult) (in, failed, notSent int) {
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

// Any number of items is pushed in order, even if that takes several batches: because of their
// number, of what a message holds, or of what its reply holds.
func TestPushMany(t *testing.T) {
	small := func(o *server.Options) { o.MaxPayload = 8192 }
	for name, test := range map[string]struct {
		n, size int
		nats    func(*server.Options)
	}{
		"more than two batches by number":      {n: 9000},
		"more than three batches by bytes":     {n: 400, size: 10_000},
		"short items whose ids fill the reply": {n: 2000, nats: small},
		"none":                                 {},
	} {
		e := testenv.New(t, testenv.Options{NATS: test.nats})
		q := newClient(e.Conn).PriorityQueue("jobs")
		items, want := numberedItems(test.n, test.size)

		results, err := q.PushMany(t.Context(), items)
		in, _, _ := countOutcomes(t, results)
		if err != nil || in != test.n || len(results) != test.n {
			t.Fatalf("%s: %d of %d, %v", name, in, test.n, err)
		}

		if test.n > 0 {
			item, err := q.Peek(t.Context())
			if err != nil || item.ID != results[0].ID || results[0].Priority != 3 ||
				results[0].Queue != "jobs" {
				t.Errorf("%s: %+v, %v; result %+v", name, item, err, results[0])
			}
		}
		if got := popAll(t, e); !slices.Equal(got, want) {
			t.Errorf("%s: %d items in the queue, in another order or not all", name, len(got))
		}
	}
}

// An item that is refused fails alone: the items before it are in the queue, and the items after it
// are not sent. The error says which it was, and how many are in the queue.
func TestPushManyRefused(t *testing.T) {
	for name, test := range map[string]struct {
		bad  client.Message
		is   error
		text string
	}{
		"by the bridge": {
			bad:  client.Message{Headers: nats.Header{"Nats-Rollup": {"all"}}},
			is:   client.ErrBadRequest,
			text: "item 4500: bad request",
		},
		"by the client": {
			bad:  client.Message{Headers: nats.Header{"a\r\nb": {"x"}}},
			is:   client.ErrBadRequest,
			text: "item 4500: header",
		},
		"its size": {
			bad:  client.Message{Value: make([]byte, 1<<20)},
			is:   client.ErrTooLarge,
			text: "1048576 bytes",
		},
	} {
		e := testenv.New(t, testenv.Options{})
		q := newClient(e.Conn).PriorityQueue("jobs")
		items, want := numberedItems(5000, 0)
		items[4500].Message = test.bad // in the second batch

		results, err := q.PushMany(t.Context(), items)

		in, failed, notSent := countOutcomes(t, results)
		if in != 4500 || failed != 1 || notSent != 499 {
			t.Errorf("%s: %d in, %d failed, %d not sent", name, in, failed, notSent)
		}
		if !errors.Is(err, test.is) || !errors.Is(results[4500].Err, test.is) ||
			!strings.Contains(err.Error(), test.text) ||
			!strings.Contains(err.Error(), "4500 of 5000 items are in the queue") {
			t.Errorf("%s: %v", name, err)
		}

		if got := popAll(t, e); !slices.Equal(got, want[:4500]) {
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

// If a batch fails as a whole, the batch before it is in the queue, and the one after it is not
// sent. The error says whether the outcome is unknown, as it is if the reply does not come in time.
func TestPushManyFails(t *testing.T) {
	const n = 9000 // two full batches and one more
	items, want := numberedItems(n, 0)
	refuse := func(code subjects.Code) func(func() *nats.Msg, func()) *nats.Msg {
		return func(func() *nats.Msg, func()) *nats.Msg { return errorReply(code) }
	}

	for name, test := range map[string]struct {
		second  func(pass func() *nats.Msg, expire func()) *nats.Msg // answers the second batch
		is      error
		unknown bool
		stored  int
	}{
		"not run": {
			second: refuse(subjects.CodeUnavailable),
			is:     client.ErrUnavailable,
			stored: mostInBatch,
		},
		"full": {
			second: refuse(subjects.CodeOverloaded),
			is:     client.ErrOverloaded,
			stored: mostInBatch,
		},
		"reply lost": {
			second: func(pass func() *nats.Msg, expire func()) *nats.Msg {
				pass()
				expire()
				return nil
			},
			is:      context.DeadlineExceeded,
			unknown: true,
			stored:  2 * mostInBatch,
		},
		"request lost": {
			second: func(_ func() *nats.Msg, expire func()) *nats.Msg {
				expire()
				return nil
			},
			is:      context.DeadlineExceeded,
			unknown: true,
			stored:  mostInBatch,
		},
	} {
		e := testenv.New(t, testenv.Options{})
		ctx := expiring{t.Context(), make(chan struct{})}

		q := intercept(t, e, func(n int, pass func() *nats.Msg) *nats.Msg {
			if n == 1 {
				return test.second(pass, func() { close(ctx.over) })
			}
			return pass()
		}, client.WithTimeout(testenv.Patience))

		results, err := q.PushMany(ctx, items)
		in, failed, notSent := countOutcomes(t, results)
		if in != mostInBatch || failed != mostInBatch || notSent != n-2*mostInBatch {
			t.Errorf("%s: %d in, %d failed, %d not sent", name, in, failed, notSent)
		}
		if !errors.Is(err, test.is) || errors.Is(err, client.ErrUnknownOutcome) != test.unknown ||
			!errors.Is(results[mostInBatch].Err, test.is) {
			t.Errorf("%s: %v", name, err)
		}

		if got := popAll(t, e); !slices.Equal(got, want[:test.stored]) {
			t.Errorf("%s: %d items in the queue", name, len(got))
		}
	}
}

// A batch that only the bridge finds too large is halved until the bridge takes it, and then every
// item is pushed in order.
func TestPushManySplits(t *testing.T) {
	// Of 100 items, the bridge refuses 100, 50, 25 and 12, and takes batches of 6: 16 full ones and
	// a last one.
	const n, refused, taken = 100, 4, 17
	e := testenv.New(t, testenv.Options{})
	requests := 0

	q := intercept(t, e, func(n int, pass func() *nats.Msg) *nats.Msg {
		if requests++; n < refused {
			return errorReply(subjects.CodeTooLarge)
		}
		return pass()
	}, client.WithTimeout(testenv.Patience))

	items, want := numberedItems(n, 0)
	succeeds(t)(q.PushMany(t.Context(), items))
	if got := popAll(t, e); !slices.Equal(got, want) || requests != refused+taken {
		t.Errorf("%d items in the queue, after %d requests", len(got), requests)
	}
}

// Delay and At hold items back, alone and in batches, and TTL sets their header. All leave the
// caller's headers alone, and a bad time or two delays are refused.
func TestPushDelay(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	c, ctx := newClient(e.Conn), t.Context()
	q, mail := c.PriorityQueue("jobs"), c.FIFOQueue("mail")
	hour, past := client.Delay(time.Hour), client.At(time.Now().Add(-time.Minute))
	headers := nats.Header{"a": {"b"}}
	m := client.Message{Value: []byte("now"), Headers: headers}

	for name, push := range map[string]func() error{
		"push": func() error { _, err := q.Push(ctx, 1, nil, hour); return err },
		"msg": func() error {
			_, err := q.PushMsg(ctx, 1, m, client.At(time.Now().Add(time.Hour)))
			return err
		},
		"FIFO": func() error { _, err := mail.Push(ctx, 0, nil, hour); return err },
		"batch": func() error {
			_, err := q.PushBatch(ctx, []client.PushItem{
				{Message: m.With(hour)}, {Message: m.With(past)}, {Message: m.With()},
			})
			return err
		},
		"FIFO batch": func() error {
			_, err := mail.PushBatch(ctx, []client.PushItem{{Message: m.With(hour)}, {Message: m}})
			return err
		},
		"past": func() error { _, err := mail.PushMsg(ctx, 0, m, past); return err },
	} {
		if err := push(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}

	// In each queue, two items are ready: without a delay, or with a time that is past.
	for _, pop := range []func(context.Context, ...client.PopOption) (*client.Item, error){
		q.Pop, mail.Pop,
	} {
		for range 2 {
			if item, err := pop(ctx); err != nil || string(item.Value) != "now" ||
				len(item.Headers) != 1 {
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
		if item, err := q.Pop(ctx); err != nil || item.Headers.Get("Nats-TTL") != want {
			t.Errorf("popped %+v, %v: want a TTL of %s", item, err, want)
		}
	}

	far := client.At(time.Now().AddDate(11, 0, 0)) // ten years are the most
	failsWith(t, "a bad time", client.ErrBadRequest)(q.Push(ctx, 1, nil, far))
	failsWith(t, "two delays", client.ErrBadRequest)(q.Push(ctx, 1, nil, hour, past))
}

// A push is done once for each message id in the window, even after its item is acknowledged, and
// once for each unique key until its item is acknowledged. A later push gets the first one's id.
func TestPushOnce(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	c, ctx := newClient(e.Conn), t.Context()
	jobs, mail := c.PriorityQueue("jobs"), c.FIFOQueue("mail")
	first := must(jobs.Push(ctx, 5, []byte("a"), client.MsgID("1"), client.Unique("k")))
	both := client.Message{}.With(client.MsgID("1"), client.Unique("other"))
	want := client.PushAck{Queue: "jobs", ID: first.ID, Priority: 5, Duplicate: true}

	for _, again := range []client.PushAck{
		must(jobs.Push(ctx, 9, nil, client.MsgID("1"))),
		must(jobs.Push(ctx, 9, nil, client.Unique("k"))),
		must(jobs.PushMsg(ctx, 9, both)),
	} {
		if first.Duplicate || again != want {
			t.Errorf("pushed %+v, then %+v", first, again)
		}
	}

	item, err := jobs.Lease(ctx, client.AckWait(time.Hour))
	if err != nil || item.Headers.Get("Nats-Msg-Id") != "1" || item.Unique != "k" {
		t.Fatalf("leased %+v, %v", item, err)
	}

	if again := must(jobs.Push(ctx, 1, nil, client.Unique("k"))); again.ID != first.ID {
		t.Errorf("leased, and pushed again: %+v", again)
	}

	// Once the item is acknowledged, its key is free, and its message id is not.
	ok(t, item.Ack(ctx))
	if again := must(jobs.Push(ctx, 1, nil, client.Unique("k"))); again.Duplicate {
		t.Errorf("acknowledged, and pushed again: %+v", again)
	}
	if again := must(jobs.Push(ctx, 1, nil, client.MsgID("1"))); again.ID != first.ID {
		t.Errorf("acknowledged, and pushed again: %+v", again)
	}

	// The same holds in batches, and within one.
	must(mail.Push(ctx, 0, []byte("a"), client.MsgID("1")))
	again := client.Message{}.With(client.MsgID("1"))

	results, err := mail.PushMany(ctx, []client.PushItem{{Message: again}, {}})
	if err != nil || len(results) != 2 || !results[0].Duplicate || results[1].Duplicate {
		t.Errorf("pushed %+v, %v", results, err)
	}

	acks, err := mail.PushBatch(ctx, []client.PushItem{
		{Message: client.Message{}.With(client.MsgID("1"))},
		{Message: client.Message{}.With(client.Unique("k"))},
		{Message: client.Message{}.With(client.Unique("k"))},
	})
	if err != nil || !acks[0].Duplicate || acks[1].Duplicate || !acks[2].Duplicate ||
		acks[1].ID != acks[2].ID {
		t.Errorf("%+v, %v", acks, err)
	}

	const longest = 512
	for _, bad := range []client.PushOption{
		client.MsgID(""), client.Unique(strings.Repeat("x", longest+1)),
	} {
		if _, err := mail.Push(ctx, 0, nil, bad); !errors.Is(err, client.ErrBadRequest) ||
			!strings.Contains(err.Error(), "want 1 to 512") {
			t.Errorf("a bad key: %v", err)
		}
	}
}
