package client_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// pushOne pushes an item, and ends the test if that fails.
func pushOne(t *testing.T, q *client.Queue, priority int64, value string) client.PushAck {
	t.Helper()
	ack, err := q.Push(t.Context(), priority, []byte(value))
	if err != nil {
		t.Fatalf("push %q: %v", value, err)
	}

	return ack
}

// value returns the value of an item that a call returned.
func value(t *testing.T) func(*client.Item, error) string {
	return func(item *client.Item, err error) string {
		t.Helper()
		ok(t, err)
		return string(item.Value)
	}
}

// A queue serves the smallest priority from the front and the largest from the back, and keeps what
// wantText peeked. The priority of the call counts, whatever the header says.
func TestPriorityQueue(t *testing.T) {
	_, q := newQueue(t)
	for _, call := range []func(context.Context) (*client.Item, error){q.Peek, q.PeekMax} {
		failsWith(t, "an empty queue", client.ErrEmpty)(call(t.Context()))
	}

	for _, call := range []func(context.Context, ...client.PopOption) (*client.Item, error){
		q.Pop, q.PopMax,
	} {
		failsWith(t, "an empty queue", client.ErrEmpty)(call(t.Context()))
	}

	before := time.Now().Add(-time.Second)
	headers := nats.Header{subjects.HeaderPriority: {"7"}} // which the arguments override, 0 too
	m := client.Message{Value: []byte("first"), Headers: headers}
	first := must(q.PushMsg(t.Context(), -7, m))
	m.Value = []byte("second")
	second := must(q.PushMsg(t.Context(), 0, m))
	pushOne(t, q, 0, "third")

	if n, err := q.Len(t.Context()); n != 3 || err != nil {
		t.Errorf("len: %d, %v", n, err)
	}
	if first.Queue != "jobs" || first.Priority != -7 || first.ID == "" || second.Priority != 0 {
		t.Errorf("acknowledged %+v, %+v", first, second)
	}
	if headers.Get(subjects.HeaderPriority) != "7" {
		t.Errorf("the pushes changed their headers to %v", headers)
	}

	want := value(t)
	if got := want(q.Peek(t.Context())); got != "first" {
		t.Errorf("peek min: %q", got)
	}
	if got := want(q.PeekMax(t.Context())); got != "third" {
		t.Errorf("peek max: %q", got)
	}
	if got := want(q.PopMax(t.Context())); got != "third" {
		t.Errorf("pop max: %q", got)
	}

	item, err := q.Pop(t.Context())
	ok(t, err)
	if item.ID != first.ID || item.Priority != -7 || item.PushedAt.Before(before) ||
		len(item.Headers) > 0 {
		t.Errorf("popped %+v", item)
	}
}

// In a FIFO queue, whatever needs a priority or the back is refused with a text that says why, and
// changes nothing.
func TestFIFOQueueRefuses(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	q, ctx := newClient(e.Conn).FIFOQueue("mail"), t.Context()
	kept := must(q.Push(ctx, 0, []byte("kept")))
	item := []client.PushItem{pushItem(0, "refused"), pushItem(7, "refused")}
	const (
		priority = "priority 7 in a FIFO queue: want 0"
		verb     = "for a queue of kind fifo: want one of push,"
	)

	for call, test := range map[string]struct {
		do   func() error
		text string
	}{
		"Push": {func() error { _, err := q.Push(ctx, 7, nil); return err }, priority},
		"PushMsg": {
			func() error { _, err := q.PushMsg(ctx, 7, client.Message{}); return err },
			priority,
		},
		"PushBatch": {
			func() error { _, err := q.PushBatch(ctx, item); return err },
			"item 1: " + priority,
		},
		"PushMany": {func() error { _, err := q.PushMany(ctx, item[1:]); return err }, priority},
		"PopMax": {
			func() error { _, err := q.PopMax(ctx); return err },
			"unknown verb pop.max " + verb,
		},
		"PopMaxBatch": {
			func() error { _, err := q.PopMaxBatch(ctx, 2); return err },
			"unknown verb pop.max " + verb,
		},
		"LeaseMax": {
			func() error { _, err := q.LeaseMax(ctx); return err },
			"unknown verb pop.max " + verb,
		},
		"LeaseMaxBatch": {
			func() error { _, err := q.LeaseMaxBatch(ctx, 2); return err },
			"unknown verb pop.max " + verb,
		},
		"PeekMax": {
			func() error { _, err := q.PeekMax(ctx); return err },
			"unknown verb peek.max " + verb,
		},
		"RankMax": {func() error { _, _, err := q.RankMax(ctx, kept.ID); return err }, "FIFO"},
		"Items": {
			func() error { _, err := q.Items(ctx, client.ItemsOptions{Max: true}); return err },
			"FIFO",
		},
		"Move": {
			func() error { _, err := q.Move(ctx, kept.ID, 0); return err },
			"unknown verb move " + verb,
		},
		"MoveItems": {
			func() error { _, err := q.MoveItems(ctx, []string{kept.ID}, 0); return err },
			"unknown verb move " + verb,
		},
	} {
		err := test.do()

		if !errors.Is(err, client.ErrBadRequest) || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: %v, want a text with %q", call, err, test.text)
		}
	}

	if n := must(q.Len(ctx)); n != 1 {
		t.Errorf("%d items, want the one from before", n)
	}
}

// A FIFO queue returns values and headers as they were pushed, in that order.
func TestFIFOQueue(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	q := newClient(e.Conn).FIFOQueue("mail")
	headers := nats.Header{"Trace": {"a", "b"}}

	ack, err := q.PushMsg(t.Context(), 0, client.Message{Value: []byte("one"), Headers: headers})
	if err != nil || ack.ID == "" {
		t.Fatalf("%+v, %v", ack, err)
	}

	succeeds(t)(q.Push(t.Context(), 0, nil))
	if n, err := q.Len(t.Context()); n != 2 || err != nil {
		t.Errorf("len: %d, %v", n, err)
	}

	item, err := q.Peek(t.Context())
	if err != nil || string(item.Value) != "one" {
		t.Fatalf("peek: %+v, %v", item, err)
	}
	if len(item.Headers) != 1 || !slices.Equal(item.Headers["Trace"], headers["Trace"]) {
		t.Errorf("headers %v", item.Headers)
	}

	for _, want := range []string{"one", ""} {
		item, err := q.Pop(t.Context())
		if err != nil || string(item.Value) != want {
			t.Errorf("pop: %+v, %v, want %q", item, err, want)
		}
	}
}

// Every code of the protocol has a variable, and only that one matches.
func TestErrorsCompare(t *testing.T) {
	all := []error{
		client.ErrBadRequest, client.ErrEmpty, client.ErrLeaseLost, client.ErrTooLarge,
		client.ErrOverloaded, client.ErrInternal, client.ErrUnavailable, client.ErrUnknownOutcome,
		client.ErrNoBridge, client.ErrNotFound, client.ErrLeased,
	}

	check := func(e *client.Error, want error) {
		for _, target := range all {
			if got := errors.Is(e, target); got != (target == want) {
				t.Errorf("%v is %v: %t", e, target, got)
			}
		}
	}

	for i, code := range subjects.Codes() {
		check(&client.Error{Code: code}, all[i])
		check(&client.Error{Code: code, Unknown: true}, client.ErrUnknownOutcome)
	}
	check(&client.Error{Code: 404, Reason: subjects.ReasonPaused}, client.ErrEmpty)
	check(&client.Error{Code: 404, Reason: subjects.ReasonMissing}, client.ErrNotFound)
	check(&client.Error{Code: 409, Reason: subjects.ReasonLeased}, client.ErrLeased)
	check(&client.Error{Code: 409, Reason: "of a later version"}, client.ErrLeaseLost)
	check(&client.Error{Code: 0}, nil)
	check(&client.Error{Code: 599}, nil)
}

// The error of a bad request shows the value as the caller wrote it, and what would be right.
func TestBadRequestsAreReadable(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	c := newClient(e.Conn)
	q := c.PriorityQueue("jobs")
	pushOne(t, q, 1, "a")
	d := leaseOne(t, q, client.AckWait(time.Hour))
	ctx := t.Context()
	push := func(options ...client.PushOption) func() error {
		return func() error { _, err := q.Push(ctx, 1, nil, options...); return err }
	}
	lease := func(options ...client.LeaseOption) func() error {
		return func() error { _, err := q.Lease(ctx, options...); return err }
	}
	set := func(s client.Settings) func() error {
		return func() error { _, err := q.Configure(ctx, s); return err }
	}
	produce := func(o client.ProducerOptions) func() error {
		return func() error { _, err := q.NewProducer(o); return err }
	}
	batch := func(headers nats.Header) func() error {
		items := []client.PushItem{{Message: client.Message{Headers: headers}}}
		return func() error { _, err := q.PushBatch(ctx, items); return err }
	}

	endless := []client.PopOption{client.Expires(math.MaxInt64), client.IdleHeartbeat(1)}
	twoLines := client.Message{Headers: nats.Header{"a\nb": {""}}}

	for _, test := range []struct {
		call func() error
		want string
	}{
		{lease(client.AckWait(time.Millisecond)), `ack_wait: 1ms: want 100ms to 12h`},
		{lease(client.Expires(-1)), `want 1ms to 1h`},
		{lease(client.Expires(1500)), `expires: 1.5us: want 1ms to 1h`},
		{
			lease(client.Expires(time.Second), client.IdleHeartbeat(time.Millisecond)),
			`idle_heartbeat: 1ms: want 100ms to 1h`,
		},
		{lease(client.MaxBytes(-1)), `max_bytes: -1: want an integer from 0`},
		{
			func() error { _, err := q.LeaseBatch(ctx, 2000); return err },
			`batch: 2000: want an integer from 1 to 1000`,
		},
		{func() error { _, err := q.PopBatch(ctx, 0); return err }, `batch of 0: want 1 to 1000`},
		{
			func() error { _, err := q.PopBatch(ctx, math.MaxInt, endless...); return err },
			`want an integer from 1 to 1000`, // says the bridge
		},
		{func() error { _, err := q.RedriveItems(ctx, nil); return err }, `want 1 to 1000`},
		{func() error { _, err := q.RemoveItems(ctx, []string{}); return err }, `want 1 to 1000`},
		{func() error { _, err := q.ReleaseItems(ctx, nil); return err }, `want 1 to 1000`},
		{produce(client.ProducerOptions{MaxItems: -1}), "MaxItems is -1: want 1 or more"},
		{
			produce(client.ProducerOptions{MaxItems: -2, MaxBytes: -3}),
			"; MaxBytes is -3: want 1 or more",
		},
		{func() error { return d.Nak(ctx, -time.Second) }, `delay: -1s: want 0s to 87600h`},
		{
			func() error { return d.Snooze(ctx, 100000*time.Hour) },
			`delay: 100000h0m0s: want 0s to 87600h`,
		},
		{set(client.Settings{AckWait: time.Millisecond}), `ack_wait: 1ms: want 100ms to 12h`},
		{set(client.Settings{Backoff: []time.Duration{-1}}), `backoff: -1ns: want 0s to 87600h`},
		{
			func() error { _, err := q.Purge(ctx, "old"); return err },
			`state: "old": want "ready", "delayed", "leased" or "done"`,
		},
		{
			func() error { return q.Remove(ctx, "") },
			`item id: "": want one that a push or pop returned`,
		},
		{
			func() error { return c.Delivery("pq.jobs.ack.xyz").Ack(ctx) },
			`token: "xyz"... (3 bytes): want one that came with a leased item`,
		},
		{
			func() error { return c.Delivery("").Ack(ctx) },
			`no subject of acknowledgements: want one as AckSubject returned it`,
		},
		{
			func() error { _, err := q.PushMsg(ctx, 1, twoLines); return err },
			`header "a\nb": want a name of letters`,
		},
		{func() error { _, err := c.PriorityQueue("no.good").Len(ctx); return err }, `"no.good"`},
		{batch(nats.Header{"Pq-Odd": {""}}), `Pq-Odd`},
		{batch(nats.Header{"": {""}}), `item 0: header "": want a name of letters`},
		{
			push(client.MsgID("a\nb")),
			`header Nats-Msg-Id: "a\nb": want one line without spaces at either end`,
		},
		{
			batch(nats.Header{"Nats-Msg-Id": {"a\r"}}),
			`item 0: header Nats-Msg-Id: "a\r": want one line without spaces at either end`,
		},
		{push(client.TTL(time.Millisecond)), `"1ms": want a duration such as 90s`},
		{push(client.Delay(-time.Second)), `"-1s": want a duration with a unit`},
	} {
		err := test.call()

		if !errors.Is(err, client.ErrBadRequest) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: want %s", err, test.want)
		}
	}

	ok(t, d.Ack(context.WithoutCancel(ctx)))
}
