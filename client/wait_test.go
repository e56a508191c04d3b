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

// ends compares what a call returned.
func ends(t *testing.T, what string, got outcome, err error, values string) {
	t.Helper()
	if !errors.Is(got.err, err) || got.values != values {
		t.Errorf("%s: got %q, %v; want %q, %v", what, got.values, got.err, values, err)
	}
}

// rarely is a time between heartbeats that a slow machine keeps, too: a call ends when they stay away for twice as long.
const rarely = testenv.Patience

// waiting waits until that many pops of a queue wait.
func waiting(t *testing.T, e *testenv.Env, n int) {
	t.Helper()
	testenv.Eventually(t, func() error {
		if now := e.Bridge.Waiters(); now != n {
			return fmt.Errorf("%d pops wait, not %d", now, n)
		}
		return nil
	})
}

func one(item *client.Item, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return string(item.Value), nil
}

func oneLeased(d *client.Delivery, err error) (string, error) {
	if err != nil {
		return "", err
	}
	return one(&d.Item, d.Ack(context.Background()))
}

// Each call that pops or leases waits if it is told to.
func TestWaits(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		e := testenv.New(t, testenv.Options{})
		c := client.New(e.Conn)
		q, mail, ctx := c.PriorityQueue("jobs"), c.Queue("mail"), t.Context()
		hour, beats := client.Expires(time.Hour), client.IdleHeartbeat(rarely)
		toJobs := func(value string) { pushed(t, q, 1, value) }
		toMail := func(value string) { succeeds(t)(mail.Enqueue(ctx, []byte(value))) }
		for what, test := range map[string]struct {
			push func(value string)
			call func() (string, error)
		}{
			"pop min":             {toJobs, func() (string, error) { return one(q.PopMin(ctx, hour)) }},
			"pop max, heartbeats": {toJobs, func() (string, error) { return one(q.PopMax(ctx, hour, beats)) }},
			"lease min":           {toJobs, func() (string, error) { return oneLeased(q.LeaseMin(ctx, hour)) }},
			"lease max, heartbeats": {toJobs, func() (string, error) {
				return oneLeased(q.LeaseMax(ctx, hour, beats, client.AckWait(time.Minute), client.NoWait()))
			}},
			"a batch of one": {toJobs, func() (string, error) {
				items, err := q.PopMinBatch(ctx, 1, hour, beats)
				if len(items) != 1 {
					return "", err
				}
				return one(items[0], err)
			}},
			"dequeue": {toMail, func() (string, error) { return one(mail.Dequeue(ctx, hour)) }},
			"lease":   {toMail, func() (string, error) { return oneLeased(mail.Lease(ctx, hour)) }},
		} {
			done := async(test.call)
			waiting(t, e, 1)
			test.push(what)
			ends(t, what, <-done, nil, what)
			waiting(t, e, 0)
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
				items, err := q.PopMinBatch(ctx, n, options...)
				return joined(items), err
			})
		}
		done := batch(3, client.Expires(time.Hour), client.IdleHeartbeat(rarely))
		for _, value := range []string{"a", "b", "c"} {
			waiting(t, e, 1)
			pushed(t, q, 1, value)
		}
		ends(t, "all", <-done, nil, "a b c")
		pushed(t, q, 1, "d")
		ends(t, "some", <-batch(3, client.Expires(50*time.Millisecond)), nil, "d")
		ends(t, "none", <-batch(3, client.Expires(50*time.Millisecond)), client.ErrEmpty, "")
		pushed(t, q, 1, "e")
		ends(t, "what is there", <-batch(3, client.Expires(time.Hour), client.NoWait()), nil, "e")
		// What had arrived when the bridge went comes with the error.
		waiting(t, e, 0)
		done = batch(3, client.Expires(time.Hour))
		waiting(t, e, 1)
		pushed(t, q, 1, "f")
		waiting(t, e, 1)
		e.Bridge.BeginStop()
		ends(t, "a shutdown", <-done, client.ErrUnavailable, "f")
	})
}

// Next acknowledges at once and then waits.
func TestNextWaits(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		e := testenv.New(t, testenv.Options{})
		q, ctx := client.New(e.Conn).PriorityQueue("jobs"), t.Context()
		pushed(t, q, 1, "a")
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
			waiting(t, e, 1)
			failsWith(t, "it is acknowledged", client.ErrLeaseLost)(nil, d.Ack(ctx))
			pushed(t, q, 1, "b")
			if got := <-done; got.err != nil || string(next.Value) != "b" {
				t.Fatalf("got %+v, %v", next, got.err)
			}
			waiting(t, e, 0) // it is counted until the batch that answered it ends
			d = next
		}
		failsWith(t, "nothing comes", client.ErrEmpty)(d.Next(ctx, client.Expires(time.Millisecond)))
	})
}

// A call that waits ends when heartbeats stay away, and a while after it should be answered.
func TestWaitsEnd(t *testing.T) {
	testenv.Bubble(t, func(t *testing.T) {
		var beats atomic.Int64
		nc := fake(t, "pq.>", func(nc *nats.Conn, m *nats.Msg) {
			if o, _ := subjects.ParsePopOptions(m.Data); o.IdleHeartbeat == 0 {
				return
			}
			for range beats.Load() {
				_ = nc.PublishMsg(&nats.Msg{Subject: m.Reply, Header: nats.Header{subjects.HeaderHeartbeat: {"1"}}}) // else the test fails
			}
		})
		q := client.New(nc, client.WithTimeout(time.Hour)).PriorityQueue("jobs")
		ctx := t.Context()
		for n := range int64(3) {
			beats.Store(n)
			began := time.Now()
			_, err := q.PopMin(ctx, client.Expires(time.Hour), client.IdleHeartbeat(100*time.Millisecond))
			if !errors.Is(err, client.ErrNoHeartbeat) || !errors.Is(err, client.ErrUnknownOutcome) || time.Since(began) < 200*time.Millisecond {
				t.Errorf("%d heartbeats: %v after %v", n, err, time.Since(began))
			}
		}
		long, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		began := time.Now()
		_, err := q.PopMin(long, client.Expires(time.Millisecond))
		if took := time.Since(began); !errors.Is(err, client.ErrUnknownOutcome) || took < 5*time.Second || took > testenv.Patience {
			t.Errorf("no answer: %v after %v", err, took)
		}
		if want := "waited 5.001s"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	})
}
