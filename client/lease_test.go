package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// leaser is what both kinds of queues have.
type leaser struct {
	name  string
	push  func(ctx context.Context, m client.Message, options ...client.PushOption) (client.PushAck, error)
	lease func(ctx context.Context, options ...client.LeaseOption) (*client.Delivery, error)
	len   func(ctx context.Context) (int64, error)
}

func leasers(e *testenv.Env) []leaser {
	c := client.New(e.Conn)
	jobs, mail := c.PriorityQueue("jobs"), c.Queue("mail")
	push := func(ctx context.Context, m client.Message, options ...client.PushOption) (client.PushAck, error) {
		return jobs.PushMsg(ctx, 3, m, options...)
	}
	return []leaser{
		{"priority queue", push, jobs.LeaseMin, jobs.Len},
		{"FIFO queue", mail.EnqueueMsg, mail.Lease, mail.Len},
	}
}

// fill pushes the values.
func (q *leaser) fill(t *testing.T, values ...string) {
	t.Helper()
	for _, v := range values {
		succeeds(t)(q.push(t.Context(), client.Message{Value: []byte(v), Headers: nats.Header{"Trace": {"x"}}}))
	}
}

// leased returns what a lease returned, and fails the test unless it is a delivery of that
// value with that number.
func leased(t *testing.T, value string, number int64) func(*client.Delivery, error) *client.Delivery {
	return func(d *client.Delivery, err error) *client.Delivery {
		t.Helper()
		if err != nil {
			t.Fatalf("a lease of %q: %v", value, err)
		}
		if string(d.Value) != value || d.Deliveries != number || d.ID == "" ||
			len(d.Headers) != 1 || !slices.Equal(d.Headers["Trace"], []string{"x"}) {
			t.Fatalf("leased %q for the %d. time, headers %v; want %q for the %d. time", d.Value, d.Deliveries, d.Headers, value, number)
		}
		return d
	}
}

// Each kind of acknowledgement does what it says, and is refused once the lease is lost.
func TestLease(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		e := testenv.New(t, testenv.Options{})
		for _, q := range leasers(e) {
			ctx := t.Context()
			isFor := func(want time.Duration, d *client.Delivery) {
				t.Helper()
				if left := time.Until(d.Until).Round(time.Second); left != want {
					t.Errorf("%s: leased for %v, want %v", q.name, left, want)
				}
			}
			failsWith(t, q.name+": an empty queue", client.ErrEmpty)(q.lease(ctx))
			q.fill(t, "a", "b", "c")
			a := leased(t, "a", 1)(q.lease(ctx))
			isFor(30*time.Second, a)
			b := leased(t, "b", 1)(q.lease(ctx, client.AckWait(time.Hour)))
			isFor(time.Hour, b)
			if n, err := q.len(ctx); n != 1 || err != nil {
				t.Errorf("%s: len %d, %v, with one item ready", q.name, n, err)
			}

			// What is given back is at its old place, and its token is worth nothing.
			ok(t, a.Nak(ctx, 0))
			for what, call := range map[string]func() error{
				"ack":    func() error { return a.Ack(ctx) },
				"nak":    func() error { return a.Nak(ctx, time.Second) },
				"snooze": func() error { return a.Snooze(ctx, time.Second) },
				"extend": func() error { _, err := a.Extend(ctx); return err },
				"next":   func() error { _, err := a.Next(ctx); return err },
			} {
				if err := call(); !errors.Is(err, client.ErrLeaseLost) || errors.Is(err, client.ErrUnknownOutcome) {
					t.Errorf("%s: %s after nak: %v", q.name, what, err)
				}
			}
			again := leased(t, "a", 2)(q.lease(ctx))
			ok(t, again.Snooze(ctx, 0))
			again = leased(t, "a", 2)(q.lease(ctx))
			time.Sleep(20 * time.Second)
			if until, err := again.Extend(ctx); err != nil || time.Until(until).Round(time.Second) != 30*time.Second {
				t.Errorf("%s: extended to %v, %v", q.name, until, err)
			}
			ok(t, again.Ack(ctx))

			// Next: done with b, and c, for as long as b.
			c := leased(t, "c", 1)(b.Next(ctx))
			isFor(time.Hour, c)
			failsWith(t, q.name+": next after next", client.ErrLeaseLost)(b.Next(ctx))
			ok(t, c.Nak(ctx, time.Minute))
			began := time.Now()
			c = leased(t, "c", 2)(q.lease(ctx, client.Expires(time.Hour)))
			if took := time.Since(began).Round(time.Second); took != time.Minute {
				t.Errorf("%s: given back for a minute, and back after %v", q.name, took)
			}
			failsWith(t, q.name+": next of an empty queue", client.ErrEmpty)(c.Next(ctx))
			failsWith(t, q.name+": ack after next", client.ErrLeaseLost)(nil, c.Ack(ctx))
		}
		succeeds(t)(fdbpqtest.CheckInvariants(t.Context(), e.DB, "pq", "q"))
	})
}

func TestLeaseMaxAndOptions(t *testing.T) {
	_, q := newQueue(t)
	for i, v := range []string{"low", "mid", "high"} {
		pushed(t, q, int64(i), v)
	}
	failsWith(t, "an item of three bytes, of two", client.ErrTooLarge)(q.LeaseMin(t.Context(), client.MaxBytes(2)))
	d, err := q.LeaseMax(t.Context(), client.MaxBytes(4), client.AckWait(0))
	if err != nil || string(d.Value) != "high" || d.Priority != 2 {
		t.Fatalf("%+v, %v", d, err)
	}
	failsWith(t, "a negative delay", client.ErrBadRequest)(nil, d.Nak(t.Context(), -1))
	failsWith(t, "next for a nanosecond", client.ErrBadRequest)(d.Next(t.Context(), client.AckWait(1)))
	// From the same end, though the acknowledgement counts even if the next item is too large.
	next, err := d.Next(t.Context(), client.AckWait(time.Hour))
	if err != nil || string(next.Value) != "mid" || time.Until(next.Until) < 59*time.Minute {
		t.Fatalf("%+v, %v", next, err)
	}
	failsWith(t, "next of two bytes", client.ErrTooLarge)(next.Next(t.Context(), client.MaxBytes(2)))
	failsWith(t, "ack after next", client.ErrLeaseLost)(nil, next.Ack(t.Context()))
	if got := value(t)(q.PopMin(t.Context())); got != "low" {
		t.Errorf("left in the queue: %q", got)
	}
}

// Another process, which knows only the subject, can end a lease too.
func TestDeliveryOfAnotherProcess(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	for _, q := range leasers(e) {
		q.fill(t, "a")
		d := leased(t, "a", 1)(q.lease(t.Context(), client.AckWait(time.Hour)))
		elsewhere := client.New(e.Connect()).Delivery(d.AckSubject())
		if until, err := elsewhere.Extend(t.Context()); err != nil || time.Until(until) < time.Minute {
			t.Errorf("%s: extended to %v, %v", q.name, until, err)
		}
		ok(t, elsewhere.Ack(t.Context()))
		failsWith(t, q.name+": acknowledged twice", client.ErrLeaseLost)(nil, d.Ack(t.Context()))
	}
}

// AckAll acknowledges the deliveries that hold, whichever else are lost, and whatever the bridge knows.
func TestAckAll(t *testing.T) {
	for _, refuses := range []bool{false, true} {
		subtest(t, fmt.Sprintf("refuses=%t", refuses), func(t *testing.T) {
			s := newWorkshop(t)
			requests := 0
			q := s.relayed(func(m *nats.Msg) *nats.Msg {
				if strings.Contains(m.Subject, ".ack.") {
					requests++ // one at a time
				}
				if a, err := subjects.ParseAck(m.Data); refuses && err == nil && len(a.Also) > 0 {
					return refusal(subjects.CodeBadRequest)
				}
				return nil
			})
			s.push("a", "b", "c", "d", "e", "f")
			c := client.New(s.e.Conn)
			list := must(q.LeaseMinBatch(t.Context(), 6, client.AckWait(time.Minute)))
			if errs := c.AckAll(t.Context()); errs != nil {
				t.Errorf("none: %v", errs)
			}
			if errs := c.AckAll(t.Context(), list[:3]...); errs != nil {
				t.Errorf("three that hold: %v", errs)
			}
			if want := map[bool]int{false: 1, true: 4}[refuses]; requests != want {
				t.Errorf("%d requests, want %d", requests, want)
			}
			// One is lost, one is in another queue, and one is there twice.
			other := s.e.Request("pq.other.push", nil, []byte("x"))
			if other == nil {
				t.Fatal("no reply")
			}
			far := must(client.New(s.e.Conn).PriorityQueue("other").LeaseMin(t.Context()))
			errs := c.AckAll(t.Context(), list[3], list[0], far, list[4], list[4], list[5])
			for i, want := range []error{nil, client.ErrLeaseLost, nil, nil, client.ErrLeaseLost, nil} {
				if len(errs) != 6 || !errors.Is(errs[i], want) {
					t.Fatalf("errors %v: want %v for %d", errs, want, i)
				}
			}
			s.empty()
		})
	}
}

// If some leases are lost, a second request acknowledges the others. Without word of which are, or if its outcome is
// unknown, AckAll does as for any other refusal.
func TestAckAllLeavesOutLostLeases(t *testing.T) {
	for _, test := range []struct {
		name     string
		relay    func(request int) *nats.Msg // of AckAll, from 1
		requests int
		want     error // of those that hold
	}{
		{"named", func(int) *nats.Msg { return nil }, 2, nil},
		{"not named", func(n int) *nats.Msg {
			if n == 1 {
				return refusal(subjects.CodeConflict)
			}
			return nil
		}, 6, nil},
		{"and the rest unknown", func(n int) *nats.Msg {
			if n == 2 {
				return &nats.Msg{Header: (&subjects.Error{Code: subjects.CodeUnavailable, Unknown: true}).Headers()}
			}
			return nil
		}, 2, client.ErrUnknownOutcome},
	} {
		subtest(t, test.name, func(t *testing.T) {
			s := newWorkshop(t)
			requests, counts := 0, false
			q := s.relayed(func(m *nats.Msg) *nats.Msg {
				if !counts || !strings.Contains(m.Subject, ".ack.") {
					return nil
				}
				requests++ // one at a time
				return test.relay(requests)
			})
			s.push("a", "b", "c", "d", "e")
			list := must(q.LeaseMinBatch(t.Context(), 5, client.AckWait(time.Minute)))
			for _, n := range []int{0, 3} {
				ok(t, list[n].Ack(t.Context()))
			}
			counts = true
			c := client.New(s.e.Conn)
			errs := c.AckAll(t.Context(), list...)
			for i, want := range []error{client.ErrLeaseLost, test.want, test.want, client.ErrLeaseLost, test.want} {
				if len(errs) != 5 || !errors.Is(errs[i], want) {
					t.Fatalf("errors %v: want %v for %d", errs, want, i)
				}
			}
			if requests != test.requests {
				t.Errorf("%d requests, want %d", requests, test.requests)
			}
			if test.want != nil {
				if errs := c.AckAll(t.Context(), list[1], list[2], list[4]); errs != nil {
					t.Errorf("once more: %v", errs)
				}
			}
			s.empty()
		})
	}
}

// A context whose cause is an error of this package, such as that of a job whose lease is lost, says nothing about the
// deliveries.
func TestAckAllContextEnds(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		for _, cause := range []error{client.ErrLeaseLost, client.ErrBadRequest, client.ErrInternal} {
			s := newWorkshop(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			returned, relayed := make(chan struct{}), make(chan struct{})
			q := s.relayed(func(m *nats.Msg) *nats.Msg {
				if !strings.Contains(m.Subject, ".ack.") {
					return nil
				}
				defer close(relayed)
				s.e.Request("pq"+strings.TrimPrefix(m.Subject, "far"), nil, m.Data) // it counts
				cancel(cause)
				<-returned
				return &nats.Msg{} // too late
			})
			s.push("a", "b")
			list := must(q.LeaseMinBatch(t.Context(), 2, client.AckWait(time.Minute)))
			c := client.New(s.e.Conn)
			for _, err := range c.AckAll(ctx, list...) {
				if !errors.Is(err, client.ErrUnknownOutcome) {
					t.Errorf("%v, under way: %v, want %v", cause, err, client.ErrUnknownOutcome)
				}
			}
			close(returned)
			<-relayed
			for _, err := range c.AckAll(ctx, list...) {
				if !errors.Is(err, context.Canceled) {
					t.Errorf("%v, before: %v", cause, err)
				}
			}
		}
	})
}
