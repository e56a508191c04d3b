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

// An item that exceeds MaxBytes is not leased, and stays in the queue.
func TestLeaseMaxBytes(t *testing.T) {
	_, q := newQueue(t)
	pushOne(t, q, 1, "abc")

	_, err := q.Lease(t.Context(), client.MaxBytes(2))

	failsWith(t, "a lease of three bytes", client.ErrTooLarge)(nil, err)
	wantText(t, "left", value(t)(q.Pop(t.Context())), "abc")
}

// Next leases from the end that the delivery came from.
func TestNextOfLeaseMax(t *testing.T) {
	_, q := newQueue(t)
	for priority, v := range []string{"low", "mid", "high"} {
		pushOne(t, q, int64(priority), v)
	}
	d, err := q.LeaseMax(t.Context())
	ok(t, err)

	next, err := d.Next(t.Context(), client.AckWait(time.Hour))

	ok(t, err)
	wantText(t, "first", string(d.Value), "high")
	wantText(t, "next", string(next.Value), "mid")
	if left := time.Until(next.Until); left < 59*time.Minute {
		t.Errorf("the next lease is over in %v, want an hour", left)
	}
}

// An AckWait of 0 means the setting of the queue.
func TestLeaseWithTheAckWaitOfTheQueue(t *testing.T) {
	_, q := newQueue(t)
	succeeds(t)(q.Configure(t.Context(), client.Settings{AckWait: time.Hour}))
	pushOne(t, q, 1, "a")

	d := leaseOne(t, q, client.AckWait(0))

	if d.AckWait != time.Hour {
		t.Errorf("leased for %v, want an hour", d.AckWait)
	}
}

// Next acknowledges the item even if the next one is too large.
func TestNextTooLarge(t *testing.T) {
	_, q := newQueue(t)
	pushOne(t, q, 1, "a")
	pushOne(t, q, 2, "large")
	d := leaseOne(t, q)

	_, err := d.Next(t.Context(), client.MaxBytes(2))

	failsWith(t, "next", client.ErrTooLarge)(nil, err)
	failsWith(t, "ack after next", client.ErrLeaseLost)(nil, d.Ack(t.Context()))
	wantText(t, "left", value(t)(q.Pop(t.Context())), "large")
}

// allAcked is what came of AckAll for the deliveries of six items, a to f.
type allAcked struct {
	*workshop
	errs     map[byte]error // by the item
	requests int
}

// ackSix leases the items, ends the leases of the lost ones, and acknowledges them all. answer may
// answer a request that acknowledges several in place of the bridge. It is told the number of the
// request, from 1.
func ackSix(t *testing.T, lost string, answer func(request int) *nats.Msg) *allAcked {
	t.Helper()
	r := &allAcked{workshop: newWorkshop(t), errs: map[byte]error{}}
	counts := false
	q := r.relayed(func(m *nats.Msg) *nats.Msg {
		if !counts || !strings.Contains(m.Subject, ".ack.") {
			return nil
		}
		r.requests++ // one at a time
		ack, err := subjects.ParseAck(m.Data)
		if err != nil || len(ack.Also) == 0 {
			return nil
		}
		return answer(r.requests)
	})

	r.push("a", "b", "c", "d", "e", "f")
	list := must(q.LeaseBatch(t.Context(), 6, client.AckWait(time.Minute)))
	for _, d := range list {
		if strings.Contains(lost, string(d.Value)) {
			ok(t, d.Ack(t.Context()))
		}
	}

	counts = true
	errs := client.New(r.e.Conn).AckAll(t.Context(), list...)
	counts = false
	for i, err := range errs {
		r.errs[list[i].Value[0]] = err
	}
	return r
}

// wantErrors fails the test unless the lost deliveries have ErrLeaseLost, and the others this
// error.
func (r *allAcked) wantErrors(lost string, others error) {
	r.Helper()
	for _, item := range []byte("abcdef") {
		want := others
		if strings.IndexByte(lost, item) >= 0 {
			want = client.ErrLeaseLost
		}
		if err := r.errs[item]; !errors.Is(err, want) {
			r.Errorf("%c: %v, want %v", item, err, want)
		}
	}
}

func (r *allAcked) wantRequests(n int) {
	r.Helper()
	if r.requests != n {
		r.Errorf("%d requests, want %d", r.requests, n)
	}
}

func noAnswer(int) *nats.Msg { return nil }

// unknownOutcome is a reply of a bridge that does not know whether the request counts.
func unknownOutcome() *nats.Msg {
	told := subjects.Error{Code: subjects.CodeUnavailable, Unknown: true}
	return &nats.Msg{Header: told.Headers()}
}

// AckAll acknowledges deliveries of one queue in one request.
func TestAckAll(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		r := ackSix(t, "", noAnswer)

		r.wantErrors("", nil)
		r.wantRequests(1)
		r.waitUntilEmpty()
	})
}

// If the bridge says which leases are lost, a second request acknowledges the others.
func TestAckAllWithLostLeases(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		r := ackSix(t, "ad", noAnswer)

		r.wantErrors("ad", nil)
		r.wantRequests(2)
		r.waitUntilEmpty()
	})
}

// If the bridge does not take a request for several, each delivery is acknowledged by itself.
func TestAckAllOneByOne(t *testing.T) {
	for name, code := range map[string]subjects.Code{
		"lost, but not which": subjects.CodeConflict,
		"refused":             subjects.CodeBadRequest,
	} {
		subtest(t, name, func(t *testing.T) {
			r := ackSix(t, "ad", func(int) *nats.Msg { return errorReply(code) })

			r.wantErrors("ad", nil)
			r.wantRequests(1 + 6)
			r.waitUntilEmpty()
		})
	}
}

// A request of unknown outcome is not repeated: all its deliveries have that error.
func TestAckAllOfUnknownOutcome(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		r := ackSix(t, "", func(int) *nats.Msg { return unknownOutcome() })

		r.wantErrors("", client.ErrUnknownOutcome)
		r.wantRequests(1)
	})
}

// If the outcome of the second request is unknown, the deliveries that the first one found lost
// stay lost.
func TestAckAllLostAndUnknown(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		replies := map[int]*nats.Msg{2: unknownOutcome()}
		r := ackSix(t, "ad", func(request int) *nats.Msg { return replies[request] })

		r.wantErrors("ad", client.ErrUnknownOutcome)
		r.wantRequests(2)
	})
}

// AckAll of deliveries of two queues returns their errors in the order of the deliveries.
func TestAckAllOfSeveralQueues(t *testing.T) {
	e, jobs := newQueue(t)
	c := newClient(e.Conn)
	other := c.PriorityQueue("other")
	pushOne(t, jobs, 1, "gone")
	pushOne(t, other, 1, "held")
	gone, held := leaseOne(t, jobs), leaseOne(t, other)
	ok(t, gone.Ack(t.Context()))

	errs := c.AckAll(t.Context(), gone, held)

	wantErrors(t, errs, client.ErrLeaseLost, nil)
}

// Of a delivery that is there twice, one acknowledgement counts.
func TestAckAllOfOneTwice(t *testing.T) {
	e, jobs := newQueue(t)
	pushOne(t, jobs, 1, "a")
	d := leaseOne(t, jobs)

	errs := newClient(e.Conn).AckAll(t.Context(), d, d)

	wantErrors(t, errs, nil, client.ErrLeaseLost)
}

// AckAll of no deliveries succeeds.
func TestAckAllOfNone(t *testing.T) {
	wantErrors(t, client.New(nil).AckAll(t.Context()))
}

// wantErrors fails the test unless these are the errors, in this order.
func wantErrors(t *testing.T, got []error, want ...error) {
	t.Helper()
	if !slices.EqualFunc(got, want, errors.Is) {
		t.Errorf("got errors %v, want %v", got, want)
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
