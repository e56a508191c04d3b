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

// wantLeased returns what a lease returned, and fails the test unless it is a delivery of that
// value with that number.
func wantLeased(t *testing.T, value string,
	number int64) func(*client.Delivery, error) *client.Delivery {
	return func(d *client.Delivery, err error) *client.Delivery {
		t.Helper()
		if err != nil {
			t.Fatalf("a lease of %q: %v", value, err)
		}
		if string(d.Value) != value || d.Deliveries != number || d.ID == "" ||
			len(d.Headers) != 1 || !slices.Equal(d.Headers["Trace"], []string{"x"}) {
			t.Fatalf("leased %q, delivery %d, headers %v; want %q, delivery %d",
				d.Value, d.Deliveries, d.Headers, value, number)
		}

		return d
	}
}

// Each kind of acknowledgement does what it says, and is refused once the lease is lost.
func TestLease(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		e := testenv.New(t, testenv.Options{})
		c := client.New(e.Conn)

		for _, q := range []*client.Queue{c.PriorityQueue("jobs"), c.FIFOQueue("mail")} {
			ctx := t.Context()
			isFor := func(want time.Duration, d *client.Delivery) {
				t.Helper()
				if left := time.Until(d.Until).Round(time.Second); left != want {
					t.Errorf("%s: leased for %v, want %v", q.Name(), left, want)
				}
			}

			failsWith(t, q.Name()+": an empty queue", client.ErrEmpty)(q.Lease(ctx))
			for _, v := range []string{"a", "b", "c"} {
				m := client.Message{Value: []byte(v), Headers: nats.Header{"Trace": {"x"}}}
				succeeds(t)(q.PushMsg(ctx, 0, m))
			}

			a := wantLeased(t, "a", 1)(q.Lease(ctx))
			isFor(30*time.Second, a)

			b := wantLeased(t, "b", 1)(q.Lease(ctx, client.AckWait(time.Hour)))
			isFor(time.Hour, b)

			if n, err := q.Len(ctx); n != 1 || err != nil {
				t.Errorf("%s: len %d, %v, with one item ready", q.Name(), n, err)
			}

			// An item that is given back is at its old place, and its token is worth nothing.
			ok(t, a.Nak(ctx, 0))
			for what, call := range map[string]func() error{
				"ack":    func() error { return a.Ack(ctx) },
				"nak":    func() error { return a.Nak(ctx, time.Second) },
				"snooze": func() error { return a.Snooze(ctx, time.Second) },
				"extend": func() error { _, err := a.Extend(ctx); return err },
				"next":   func() error { _, err := a.Next(ctx); return err },
			} {
				if err := call(); !errors.Is(err, client.ErrLeaseLost) ||
					errors.Is(err, client.ErrUnknownOutcome) {
					t.Errorf("%s: %s after nak: %v", q.Name(), what, err)
				}
			}

			again := wantLeased(t, "a", 2)(q.Lease(ctx))
			ok(t, again.Snooze(ctx, 0))
			again = wantLeased(t, "a", 2)(q.Lease(ctx))

			time.Sleep(20 * time.Second)
			if until, err := again.Extend(ctx); err != nil ||
				time.Until(until).Round(time.Second) != 30*time.Second {
				t.Errorf("%s: extended to %v, %v", q.Name(), until, err)
			}

			// Another process, which knows only the subject, can end a lease too.
			ok(t, client.New(e.Connect()).Delivery(again.AckSubject()).Ack(ctx))
			failsWith(t, q.Name()+": acknowledged twice", client.ErrLeaseLost)(nil, again.Ack(ctx))

			// Next: done with b, and c, for as long as b.
			c := wantLeased(t, "c", 1)(b.Next(ctx))
			isFor(time.Hour, c)

			failsWith(t, q.Name()+": next after next", client.ErrLeaseLost)(b.Next(ctx))
			ok(t, c.Nak(ctx, time.Minute))
			began := time.Now()
			c = wantLeased(t, "c", 2)(q.Lease(ctx, client.Expires(time.Hour)))

			if took := time.Since(began).Round(time.Second); took != time.Minute {
				t.Errorf("%s: given back for a minute, and back after %v", q.Name(), took)
			}

			failsWith(t, q.Name()+": next of an empty queue", client.ErrEmpty)(c.Next(ctx))
			failsWith(t, q.Name()+": ack after next", client.ErrLeaseLost)(nil, c.Ack(ctx))
		}

		succeeds(t)(fdbpqtest.CheckInvariants(t.Context(), e.DB, "pq", "q"))
	})
}

// MaxBytes refuses an item that is too large, and Next goes on from the end that LeaseMax began
// with.
func TestLeaseMaxAndOptions(t *testing.T) {
	_, q := newQueue(t)
	succeeds(t)(q.Configure(t.Context(), client.Settings{AckWait: time.Hour}))

	for i, v := range []string{"low", "mid", "high"} {
		pushOne(t, q, int64(i), v)
	}

	tooLarge := failsWith(t, "an item of three bytes", client.ErrTooLarge)
	tooLarge(q.Lease(t.Context(), client.MaxBytes(2)))

	d, err := q.LeaseMax(t.Context(), client.MaxBytes(4), client.AckWait(0))
	if err != nil || string(d.Value) != "high" || d.Priority != 2 {
		t.Fatalf("%+v, %v", d, err)
	}

	// From the same end, though the acknowledgement counts even if the next item is too large.
	next, err := d.Next(t.Context(), client.AckWait(time.Hour))
	if err != nil || string(next.Value) != "mid" || time.Until(next.Until) < 59*time.Minute {
		t.Fatalf("%+v, %v", next, err)
	}

	tooLarge(next.Next(t.Context(), client.MaxBytes(2)))
	failsWith(t, "ack after next", client.ErrLeaseLost)(nil, next.Ack(t.Context()))
	if got := value(t)(q.Pop(t.Context())); got != "low" {
		t.Errorf("left in the queue: %q", got)
	}
}

// AckAll acknowledges the deliveries that hold, whichever else are lost: in one request if none is,
// and in a second one if it knows which are lost. Otherwise, as if the bridge knows no such
// requests, it acknowledges each by itself. A request of unknown outcome is not repeated.
func TestAckAll(t *testing.T) {
	unknown := &subjects.Error{Code: subjects.CodeUnavailable, Unknown: true}
	unknownOutcome := func(int) *nats.Msg { return &nats.Msg{Header: unknown.Headers()} }
	refuse := func(code subjects.Code) func(int) *nats.Msg {
		return func(int) *nats.Msg { return errorReply(code) }
	}
	secondIsUnknown := func(n int) *nats.Msg {
		if n == 1 {
			return nil
		}
		return unknownOutcome(n)
	}

	for name, test := range map[string]struct {
		lost     []int                       // of six deliveries
		relay    func(request int) *nats.Msg // that acknowledges several, from 1; nil: none meddles
		requests int
		want     error // of those that hold
	}{
		"all":   {nil, nil, 1, nil},
		"named": {[]int{0, 3}, nil, 2, nil},

		"not named": {[]int{0, 3}, refuse(subjects.CodeConflict), 7, nil},
		"refused":   {[]int{0}, refuse(subjects.CodeBadRequest), 7, nil},

		"unknown":          {nil, unknownOutcome, 1, client.ErrUnknownOutcome},
		"the rest unknown": {[]int{0, 3}, secondIsUnknown, 2, client.ErrUnknownOutcome},
	} {
		subtest(t, name, func(t *testing.T) {
			s := newWorkshop(t)
			requests, counts := 0, false

			q := s.relayed(func(m *nats.Msg) *nats.Msg {
				if !counts || !strings.Contains(m.Subject, ".ack.") {
					return nil
				}

				requests++ // one at a time
				a, err := subjects.ParseAck(m.Data)

				if test.relay == nil || err != nil || len(a.Also) == 0 {
					return nil
				}

				return test.relay(requests)
			})

			s.push("a", "b", "c", "d", "e", "f")
			list := must(q.LeaseBatch(t.Context(), 6, client.AckWait(time.Minute)))

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
				s.waitUntilEmpty()
			}

			if name != "all" {
				return
			}

			// Again, with one that holds in another queue, and is there twice.
			pushOne(t, c.PriorityQueue("other"), 1, "x")
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

// A context whose cause is an error of this package, as of a job whose lease is lost, says nothing
// about the deliveries.
func TestAckAllContextEnds(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		s := newWorkshop(t)
		for _, cause := range []error{
			client.ErrLeaseLost, client.ErrBadRequest, client.ErrInternal,
		} {
			s.push("a", "b")
			q := client.New(s.e.Conn).PriorityQueue("jobs")
			list := must(q.LeaseBatch(t.Context(), 2, client.AckWait(time.Minute)))
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
