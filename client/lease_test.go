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

			// Another process, which knows only the subject, can end a lease too.
			ok(t, client.New(e.Connect()).Delivery(again.AckSubject()).Ack(ctx))
			failsWith(t, q.name+": acknowledged twice", client.ErrLeaseLost)(nil, again.Ack(ctx))

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
	succeeds(t)(q.Configure(t.Context(), client.Settings{AckWait: time.Hour}))
	for i, v := range []string{"low", "mid", "high"} {
		pushed(t, q, int64(i), v)
	}
	failsWith(t, "an item of three bytes, of two", client.ErrTooLarge)(q.LeaseMin(t.Context(), client.MaxBytes(2)))
	d, err := q.LeaseMax(t.Context(), client.MaxBytes(4), client.AckWait(0))
	if err != nil || string(d.Value) != "high" || d.Priority != 2 {
		t.Fatalf("%+v, %v", d, err)
	}
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

// AckAll acknowledges the deliveries that hold, whichever else are lost: in one request if none is, and
// in a second one if it knows which are lost. Otherwise, as if the bridge knows no such requests, it
// acknowledges each by itself. A request of unknown outcome is not repeated.
func TestAckAll(t *testing.T) {
	told := func(e subjects.Error) *nats.Msg { return &nats.Msg{Header: e.Headers()} }
	unknown := subjects.Error{Code: subjects.CodeUnavailable, Unknown: true}
	for name, test := range map[string]struct {
		lost     []int                       // of six deliveries
		relay    func(request int) *nats.Msg // that acknowledges several, from 1; nil: none meddles
		requests int
		want     error // of those that hold
	}{
		"all":       {nil, nil, 1, nil},
		"named":     {[]int{0, 3}, nil, 2, nil},
		"not named": {[]int{0, 3}, func(n int) *nats.Msg { return refusal(subjects.CodeConflict) }, 7, nil},
		"refused":   {[]int{0}, func(n int) *nats.Msg { return refusal(subjects.CodeBadRequest) }, 7, nil},
		"unknown":   {nil, func(n int) *nats.Msg { return told(unknown) }, 1, client.ErrUnknownOutcome},
		"the rest unknown": {[]int{0, 3}, func(n int) *nats.Msg {
			if n == 1 {
				return nil
			}
			return told(unknown)
		}, 2, client.ErrUnknownOutcome},
	} {
		subtest(t, name, func(t *testing.T) {
			s := newWorkshop(t)
			requests, counts := 0, false
			q := s.relayed(func(m *nats.Msg) *nats.Msg {
				if !counts || !strings.Contains(m.Subject, ".ack.") {
					return nil
				}
				requests++ // one at a time
				if a, err := subjects.ParseAck(m.Data); test.relay == nil || err != nil || len(a.Also) == 0 {
					return nil
				}
				return test.relay(requests)
			})
			s.push("a", "b", "c", "d", "e", "f")
			list := must(q.LeaseMinBatch(t.Context(), 6, client.AckWait(time.Minute)))
			for _, n := range test.lost {
				ok(t, list[n].Ack(t.Context()))
			}
			counts = true
			c := client.New(s.e.Conn)
			errs := c.AckAll(t.Context(), list...)
			if name == "all" && errs == nil {
				errs = make([]error, 6) // which it is short for
			}
			for i := range list {
				want := test.want
				if slices.Contains(test.lost, i) {
					want = client.ErrLeaseLost
				}
				if len(errs) != 6 || !errors.Is(errs[i], want) {
					t.Fatalf("errors %v: want %v for %d", errs, want, i)
				}
			}
			if requests != test.requests {
				t.Errorf("%d requests, want %d", requests, test.requests)
			}
			if counts = false; test.want == nil {
				s.empty()
			}
			if name != "all" {
				return
			}
			// Again, with one that holds in another queue, and is there twice.
			pushed(t, c.PriorityQueue("other"), 1, "x")
			far := leaseOne(t, c.PriorityQueue("other"))
			errs = c.AckAll(t.Context(), list[0], far, far)
			for i, want := range []error{client.ErrLeaseLost, nil, client.ErrLeaseLost} {
				if len(errs) != 3 || !errors.Is(errs[i], want) {
					t.Fatalf("two queues: %v, want %v for %d", errs, want, i)
				}
			}
			if errs := c.AckAll(t.Context()); errs != nil {
				t.Errorf("none: %v", errs)
			}
		})
	}
}

// A context whose cause is an error of this package, such as that of a job whose lease is lost, says
// nothing about the deliveries.
func TestAckAllContextEnds(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		for _, cause := range []error{client.ErrLeaseLost, client.ErrBadRequest, client.ErrInternal} {
			s.push("a", "b")
			q := client.New(s.e.Conn).PriorityQueue("jobs")
			list := must(q.LeaseMinBatch(t.Context(), 2, client.AckWait(time.Minute)))
			ok(t, s.e.Bridge.Stop())
			heard := must(s.e.Conn.SubscribeSync("pq.jobs.ack.*")) // and nobody answers
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				_, _ = heard.NextMsg(testenv.Patience)
				cancel(cause)
			}()
			c := client.New(s.e.Conn)
			for _, err := range c.AckAll(ctx, list...) {
				if !errors.Is(err, client.ErrUnknownOutcome) || !errors.Is(err, context.Canceled) {
					t.Errorf("%v, under way: %v, want %v", cause, err, client.ErrUnknownOutcome)
				}
			}
			for _, err := range c.AckAll(ctx, list...) {
				if !errors.Is(err, context.Canceled) {
					t.Errorf("%v, before: %v", cause, err)
				}
			}
			ok(t, heard.Unsubscribe())
			s.e.Bridge = s.e.StartBridge()
			s.e.Bridge.WaitReady()
		}
	})
}
