package client_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

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
	c, ctx := client.New(e.Conn), t.Context()
	q, mail := c.PriorityQueue("jobs"), c.Queue("mail")
	headers := nats.Header{"a": {"1", "2"}, subjects.HeaderPriority: {"ignored"}}
	ids, err := q.PushBatch(ctx, []client.PushItem{
		pushItem(7, "c"), {Priority: -7, Message: client.Message{Value: []byte("a"), Headers: headers}}, pushItem(7, "d"), pushItem(0, "b"),
	})
	if err != nil || len(ids) != 4 || headers.Get(subjects.HeaderPriority) != "ignored" {
		t.Fatalf("%q, %v, headers %v", ids, err, headers)
	}
	for i, at := range []int{1, 3, 0, 2} {
		item, err := q.PopMin(ctx)
		if err != nil || string(item.Value) != string("abcd"[i]) || item.ID != ids[at] {
			t.Errorf("popped %+v, %v, want item %d", item, err, at)
		}
		if i == 0 && (item.Priority != -7 || !slices.Equal(item.Headers["a"], []string{"1", "2"})) {
			t.Errorf("popped %+v", item)
		}
	}
	ids, err = mail.EnqueueBatch(ctx, []client.Message{{Value: []byte("a")}, {}, {Headers: nats.Header{"b": {"x"}}}})
	ok(t, err)
	for i, id := range ids {
		if item, err := mail.Dequeue(ctx); err != nil || item.ID != id || i == 2 && item.Headers.Get("b") != "x" {
			t.Errorf("item %d: %+v, %v", i, item, err)
		}
	}
}

func TestPushBatchRefuses(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	c, ctx := client.New(e.Conn), t.Context()
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
		ids, err := q.PushBatch(ctx, test.items)
		if ids != nil || !errors.Is(err, test.is) || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: %q, %v", test.name, ids, err)
		}
	}
	failsWith(t, "a priority in a FIFO queue", client.ErrBadRequest)(mail.EnqueueBatch(ctx, []client.Message{{Headers: nats.Header{subjects.HeaderPriority: {"1"}}}}))
	failsWith(t, "a bad name", client.ErrBadRequest)(c.PriorityQueue("a b").PushBatch(ctx, withHeader("a")))
	if n, err := q.Len(ctx); n != 0 || err != nil {
		t.Errorf("%d items, %v", n, err)
	}
	succeeds(t)(q.PushBatch(ctx, make([]client.PushItem, 4096)))
}

// Whoever answers a batch without an id for each item is no bridge, and may have stored it.
func TestPushBatchBadReply(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	for i, reply := range []string{`{"stream":"S","seq":1}`, `{"queue":"jobs","ids":["a"]}`, "", "x"} {
		subject := fmt.Sprintf("other%d.jobs.push.batch", i)
		s, err := e.Conn.Subscribe(subject, func(m *nats.Msg) { _ = m.Respond([]byte(reply)) })
		ok(t, err)
		defer func() { _ = s.Unsubscribe() }()
		g, err := subjects.New(fmt.Sprintf("other%d", i), "q")
		ok(t, err)
		_, err = client.New(e.Conn, client.WithGrammar(g)).PriorityQueue("jobs").PushBatch(t.Context(), make([]client.PushItem, 2))
		if !errors.Is(err, client.ErrBadReply) || !errors.Is(err, client.ErrUnknownOutcome) {
			t.Errorf("%q: %v", reply, err)
		}
	}
}
