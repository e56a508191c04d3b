package fdbpq_test

import (
	"errors"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// A pop that waits and finds nothing learns when the next item falls due, whether that is
// one of before or was leased in the same batch.
func TestNextDue(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q, fifo := f.queue("jobs"), f.fifoQueue("jobs")
		now := time.Now()
		f.batcher.SetNow(func() time.Time { return now })
		pop := fdbpq.Op{Kind: fdbpq.OpPop, Queue: q, Waits: true}
		lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Minute, Waits: true}
		plain := op(opPopMin, q)
		want := func(what string, r fdbpq.Result, due time.Time) {
			f.Helper()
			if !r.NextDue.Equal(due.Truncate(time.Microsecond)) {
				f.Errorf("%s: next due %v, want %v (error %v)", what, r.NextDue, due, r.Err)
			}
		}
		never := time.Time{}
		want("no items at all", f.apply(pop)[0], never)

		f.apply(opPush(q, 1, "a"), opPush(q, 1, "b"))
		r := f.apply(lease, lease, pop, plain)
		want("an item", r[0], never)
		want("leased in the same batch", r[2], now.Add(time.Minute))
		want("a pop that does not wait", r[3], never)
		token := r[1].Lease.Token
		want("leased before", f.apply(pop)[0], now.Add(time.Minute))

		nak := fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: token, Delay: time.Second}
		want("delayed in the same batch", f.apply(nak, pop)[1], now.Add(time.Second))
		want("another queue", f.apply(op(pop, fifo))[0], never)

		now = now.Add(time.Second)
		r = f.apply(pop, pop)
		if string(r[0].Item.Value) != "b" || r[0].Err != nil {
			f.Errorf("at its due time: popped %q, %v", r[0].Item.Value, r[0].Err)
		}
		want("after that", r[1], now.Add(59*time.Second))
		now = now.Add(time.Minute)
		r = f.apply(pop, pop)
		if r[0].Err != nil || !errors.Is(r[1].Err, fdbpq.ErrEmpty) {
			f.Errorf("after the lease: %v, %v", r[0].Err, r[1].Err)
		}
		want("nothing is left", r[1], never)
	})
}

// A pop that waits learns of an item that its own transaction holds back for longer.
func TestNextDueAfterBackoff(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		clock := newClock(time.Now())
		f.batcher.SetNow(clock.now)
		f.configure(q, func(s *fdbpq.Settings) { s.Backoff = []time.Duration{10 * time.Second} })
		f.push(q, 1, "a")
		until := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Second})[0].Lease.Until
		clock.advance(2 * time.Second)
		for range 2 {
			r := f.apply(waiting(op(opPopMin, q)))[0]
			wantError(f.T, r.Err, fdbpq.ErrEmpty)
			if want := until.Add(10 * time.Second); !r.NextDue.Equal(want) {
				f.Errorf("next due %v, want %v", r.NextDue, want)
			}
		}
	})
}
