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

// outcome is what a call returned.
type outcome struct {
	values string
	err    error
}

// async calls f in a goroutine, and returns its outcome.
func async(f func() (string, error)) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		values, err := f()
		done <- outcome{values, err}
	}()

	return done
}

// wantOutcome compares what a call returned.
func wantOutcome(t *testing.T, what string, got outcome, err error, values string) {
	t.Helper()
	if !errors.Is(got.err, err) || got.values != values {
		t.Errorf("%s: got %q, %v; want %q, %v", what, got.values, got.err, values, err)
	}
}

// rarely is a time between heartbeats that a slow machine keeps, too: a call ends when they stay
// away for twice as long.
const rarely = testenv.Patience

// waitForPops waits until that many pops of a queue wait.
func waitForPops(t *testing.T, e *testenv.Env, n int) {
	t.Helper()
	testenv.Eventually(t, func() error {
		if now := e.Bridge.Waiters(); now != n {
			return fmt.Errorf("%d pops wait, not %d", now, n)
		}
		return nil
	})
}

// valueOf returns the value of an item that a call returned.
func valueOf(item *client.Item, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return string(item.Value), nil
}

// valueAcked acknowledges a delivery that a call returned, and returns its value.
func valueAcked(d *client.Delivery, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return valueOf(&d.Item, d.Ack(context.Background()))
}

// Each call that pops or leases waits if it is told to.
func TestWaits(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		e := testenv.New(t, testenv.Options{})
		c := client.New(e.Conn)
		q, mail, ctx := c.PriorityQueue("jobs"), c.FIFOQueue("mail"), t.Context()
		hour, beats := client.Expires(time.Hour), client.IdleHeartbeat(rarely)
		minute := client.AckWait(time.Minute)
		toJobs := func(value string) { pushOne(t, q, 1, value) }
		toMail := func(value string) { succeeds(t)(mail.Push(ctx, 0, []byte(value))) }

		for what, test := range map[string]struct {
			push func(value string)
			call func() (string, error)
		}{
			"pop min": {
				toJobs,
				func() (string, error) { return valueOf(q.Pop(ctx, hour)) },
			},
			"pop max, heartbeats": {
				toJobs,
				func() (string, error) { return valueOf(q.PopMax(ctx, hour, beats)) },
			},
			"lease min": {
				toJobs,
				func() (string, error) { return valueAcked(q.Lease(ctx, hour)) },
			},
			"lease max, heartbeats": {
				toJobs,
				func() (string, error) {
					return valueAcked(q.LeaseMax(ctx, hour, beats, minute, client.NoWait()))
				},
			},
			"a batch of one": {
				toJobs,
				func() (string, error) {
					items, err := q.PopBatch(ctx, 1, hour, beats)
					return joinValues(items), err
				},
			},
			"FIFO pop": {
				toMail,
				func() (string, error) { return valueOf(mail.Pop(ctx, hour)) },
			},
			"FIFO lease": {
				toMail,
				func() (string, error) { return valueAcked(mail.Lease(ctx, hour)) },
			},
		} {
			done := async(test.call)
			waitForPops(t, e, 1)

			test.push(what)

			wantOutcome(t, what, <-done, nil, what)
			waitForPops(t, e, 0)
		}
	})
}

// Several items may arrive over time.
func TestWaitForBatches(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		e := testenv.New(t, testenv.Options{})
		q, ctx := client.New(e.Conn).PriorityQueue("jobs"), t.Context()

		batch := func(n int, options ...client.PopOption) <-chan outcome {
			return async(func() (string, error) {
				items, err := q.PopBatch(ctx, n, options...)
				return joinValues(items), err
			})
		}

		done := batch(3, client.Expires(time.Hour), client.IdleHeartbeat(rarely))
		for _, value := range []string{"a", "b", "c"} {
			waitForPops(t, e, 1)
			pushOne(t, q, 1, value)
		}

		wantOutcome(t, "all", <-done, nil, "a b c")
		pushOne(t, q, 1, "d")
		wantOutcome(t, "some", <-batch(3, client.Expires(50*time.Millisecond)), nil, "d")
		wantOutcome(t, "none", <-batch(3, client.Expires(50*time.Millisecond)), client.ErrEmpty, "")
		pushOne(t, q, 1, "e")
		wantOutcome(t, "what is there", <-batch(3, client.Expires(time.Hour), client.NoWait()), nil,
			"e")

		// What had arrived when the bridge went comes with the error.
		waitForPops(t, e, 0)
		done = batch(3, client.Expires(time.Hour))
		waitForPops(t, e, 1)
		pushOne(t, q, 1, "f")
		waitForPops(t, e, 1)
		e.Bridge.BeginStop()
		wantOutcome(t, "a shutdown", <-done, client.ErrUnavailable, "f")
	})
}

// Next acknowledges at once and then waits.
func TestNextWaits(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		e := testenv.New(t, testenv.Options{})
		q, ctx := client.New(e.Conn).PriorityQueue("jobs"), t.Context()
		pushOne(t, q, 1, "a")
		d := leaseOne(t, q)

		for _, options := range [][]client.LeaseOption{
			{client.Expires(time.Hour)},
			{client.Expires(time.Hour), client.IdleHeartbeat(rarely)},
		} {
			var next *client.Delivery
			done := async(func() (_ string, err error) {
				next, err = d.Next(ctx, options...)
				return "", err
			})

			waitForPops(t, e, 1)
			failsWith(t, "it is acknowledged", client.ErrLeaseLost)(nil, d.Ack(ctx))
			pushOne(t, q, 1, "b")

			if got := <-done; got.err != nil || string(next.Value) != "b" {
				t.Fatalf("got %+v, %v", next, got.err)
			}

			waitForPops(t, e, 0) // it is counted until the batch that answered it ends
			d = next
		}

		_, err := d.Next(ctx, client.Expires(time.Millisecond))
		failsWith(t, "nothing comes", client.ErrEmpty)(nil, err)
	})
}

// A call that waits ends when heartbeats stay away, and a while after it should be answered.
func TestWaitsEnd(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		var beats atomic.Int64
		nc := fakeBridge(t, "pq.>", func(nc *nats.Conn, m *nats.Msg) {
			if o, _ := subjects.ParsePopOptions(m.Data); o.IdleHeartbeat == 0 {
				return
			}
			for range beats.Load() {
				_ = nc.PublishMsg(&nats.Msg{ // if this fails, so does the test
					Subject: m.Reply,
					Header:  nats.Header{subjects.HeaderHeartbeat: {"1"}},
				})
			}
		})

		q := client.New(nc, client.WithTimeout(time.Hour)).PriorityQueue("jobs")
		ctx := t.Context()

		for n := range int64(3) {
			beats.Store(n)
			began := time.Now()

			beat := client.IdleHeartbeat(100 * time.Millisecond)
			_, err := q.Pop(ctx, client.Expires(time.Hour), beat)

			if !errors.Is(err, client.ErrNoHeartbeat) ||
				!errors.Is(err, client.ErrUnknownOutcome) ||
				time.Since(began) < 200*time.Millisecond {
				t.Errorf("%d heartbeats: %v after %v", n, err, time.Since(began))
			}
		}

		long, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		began := time.Now()

		_, err := q.Pop(long, client.Expires(time.Millisecond))
		if took := time.Since(began); !errors.Is(err, client.ErrUnknownOutcome) ||
			took < 5*time.Second || took > testenv.Patience {
			t.Errorf("no answer: %v after %v", err, took)
		}

		if want := "waited 5.001s"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	})
}
