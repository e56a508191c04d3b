package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// values returns the values of items that a call returned with the error, joined by spaces.
func values(t *testing.T, want error) func([]*client.Item, error) string {
	return func(items []*client.Item, err error) string {
		t.Helper()
		if !errors.Is(err, want) {
			t.Errorf("got error %v, want %v", err, want)
		}
		var texts []string
		for _, item := range items {
			texts = append(texts, string(item.Value))
		}
		return strings.Join(texts, " ")
	}
}

// leasedValues is values for leases.
func leasedValues(t *testing.T, want error) func([]*client.Delivery, error) string {
	return func(deliveries []*client.Delivery, err error) string {
		t.Helper()
		var items []*client.Item
		for _, d := range deliveries {
			items = append(items, &d.Item)
		}
		return values(t, want)(items, err)
	}
}

func is(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func TestBatches(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	c := client.New(e.Conn)
	q, mail, ctx := c.PriorityQueue("jobs"), c.Queue("mail"), t.Context()
	for i := range 9 {
		v := fmt.Sprint(i)
		pushed(t, q, 1, v)
		succeeds(t)(mail.Enqueue(ctx, []byte(v)))
	}
	is(t, "pop min", values(t, nil)(q.PopMinBatch(ctx, 2)), "0 1")
	is(t, "pop max", values(t, nil)(q.PopMaxBatch(ctx, 2)), "8 7")
	is(t, "one", values(t, nil)(q.PopMinBatch(ctx, 1)), "2")
	is(t, "few bytes", values(t, nil)(q.PopMinBatch(ctx, 1000, client.MaxBytes(2))), "3 4")
	deliveries, err := q.LeaseMinBatch(ctx, 5, client.AckWait(time.Hour))
	is(t, "fewer items than asked for", leasedValues(t, nil)(deliveries, err), "5 6")
	for _, d := range deliveries {
		if d.Deliveries != 1 || time.Until(d.Until) < 59*time.Minute {
			t.Errorf("leased %+v", d)
		}
	}
	is(t, "empty", values(t, client.ErrEmpty)(q.PopMinBatch(ctx, 5)), "")
	is(t, "empty", leasedValues(t, client.ErrEmpty)(q.LeaseMaxBatch(ctx, 5)), "")
	is(t, "empty, one", values(t, client.ErrEmpty)(q.PopMinBatch(ctx, 1)), "")
	ok(t, deliveries[0].Ack(ctx))
	ok(t, deliveries[1].Nak(ctx, 0))
	is(t, "given back", leasedValues(t, nil)(q.LeaseMaxBatch(ctx, 2)), "6")

	is(t, "dequeue", values(t, nil)(mail.DequeueBatch(ctx, 4)), "0 1 2 3")
	is(t, "lease", leasedValues(t, nil)(mail.LeaseBatch(ctx, 4)), "4 5 6 7")
}

// Bad options change nothing.
func TestBadBatches(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	q, ctx := client.New(e.Conn).PriorityQueue("jobs"), t.Context()
	pushed(t, q, 1, "item")
	for _, n := range []int{-1, 0, 1001} {
		is(t, fmt.Sprint(n), values(t, client.ErrBadRequest)(q.PopMinBatch(ctx, n)), "")
		is(t, fmt.Sprint(n), leasedValues(t, client.ErrBadRequest)(q.LeaseMinBatch(ctx, n)), "")
	}
	is(t, "a short lease", leasedValues(t, client.ErrBadRequest)(q.LeaseMinBatch(ctx, 5, client.AckWait(1))), "")
	is(t, "few bytes", values(t, client.ErrTooLarge)(q.PopMinBatch(ctx, 5, client.MaxBytes(3))), "")
	is(t, "a bad name", values(t, client.ErrBadRequest)(client.New(e.Conn).PriorityQueue("no.good").PopMinBatch(ctx, 5)), "")
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := q.PopMinBatch(ended, 5); !errors.Is(err, context.Canceled) || errors.Is(err, client.ErrUnknownOutcome) {
		t.Errorf("a context that had ended: %v", err)
	}
	elsewhere := must(subjects.New("other.pq", "other.q"))
	is(t, "no bridge", values(t, client.ErrNoBridge)(client.New(e.Conn, client.WithGrammar(elsewhere)).PriorityQueue("jobs").PopMinBatch(ctx, 5)), "")
	is(t, "still there", values(t, nil)(q.PopMinBatch(ctx, 5)), "item")
	e.Conn.Close()
	is(t, "a closed connection", values(t, nats.ErrConnectionClosed)(q.PopMinBatch(ctx, 5)), "")
}

// What becomes of replies that break off or say that something failed.
func TestBatchOutcomes(t *testing.T) {
	header := func(count string, e *subjects.Error) nats.Header {
		h := nats.Header{}
		if e != nil {
			h = e.Headers()
		}
		if count != "" {
			h.Set(subjects.HeaderBatchCount, count)
		}
		return h
	}
	refused := &subjects.Error{Code: subjects.CodeUnavailable, Text: "away"}
	unknown := &subjects.Error{Code: subjects.CodeUnavailable, Text: "who knows", Unknown: true}
	large := &subjects.Error{Code: subjects.CodeTooLarge, Text: "too large"}
	type answer struct {
		items int
		end   nats.Header // nil means none
	}
	var next atomic.Pointer[answer]
	nc := fake(t, "pq.>", func(nc *nats.Conn, m *nats.Msg) {
		a := next.Load()
		for i := range a.items {
			_ = nc.PublishMsg(&nats.Msg{Subject: m.Reply, Reply: "pq.jobs.ack.token", Data: fmt.Append(nil, i)}) // else the test fails
		}
		if a.end != nil {
			_ = nc.PublishMsg(&nats.Msg{Subject: m.Reply, Header: a.end})
		}
	})
	for _, c := range []struct {
		what  string
		items int
		end   nats.Header
		want  string
		err   error
		not   error // an error that it is not, or nil
	}{
		{"all, without the end", 3, nil, "0 1 2", nil, nil},
		{"nothing at all", 0, nil, "", client.ErrUnknownOutcome, nil},
		{"without the end", 2, nil, "0 1", client.ErrUnknownOutcome, nil},
		{"one is missing", 1, header("2", nil), "0", client.ErrUnknownOutcome, nil},
		{"a bad count", 1, header("x", nil), "0", client.ErrBadReply, nil},
		{"empty", 0, header("0", &subjects.Error{Code: subjects.CodeNotFound}), "", client.ErrEmpty, nil},
		{"refused", 0, header("0", refused), "", client.ErrUnavailable, client.ErrUnknownOutcome},
		{"refused as a whole", 0, header("", refused), "", client.ErrUnavailable, client.ErrUnknownOutcome},
		{"unknown", 0, header("", unknown), "", client.ErrUnknownOutcome, client.ErrUnavailable},
		{"refused later", 2, header("2", refused), "0 1", client.ErrUnavailable, client.ErrUnknownOutcome},
		{"the first is too large", 0, header("0", large), "", client.ErrTooLarge, nil},
		{"no room for more", 2, header("2", large), "0 1", nil, nil},
		{"more arrived than were sent", 2, header("1", nil), "0 1", client.ErrBadReply, nil},
		{"ended by another bridge", 2, header("0", unknown), "0 1", client.ErrUnknownOutcome, client.ErrBadReply},
	} {
		next.Store(&answer{c.items, c.end})
		timeout := client.DefaultTimeout
		if c.end == nil && c.err != nil {
			timeout = 2 * time.Second // the items must arrive before
		}
		q := client.New(nc, client.WithTimeout(timeout)).PriorityQueue("jobs")
		popped, err := q.PopMinBatch(t.Context(), 3)
		is(t, c.what, values(t, c.err)(popped, err), c.want)
		if c.not != nil && errors.Is(err, c.not) {
			t.Errorf("%s: %v", c.what, err)
		}
		if c.end == nil && c.err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", c.what, err)
		}
		leases, err := q.LeaseMinBatch(t.Context(), 3)
		is(t, c.what+", leased", leasedValues(t, c.err)(leases, err), c.want)
	}
}
