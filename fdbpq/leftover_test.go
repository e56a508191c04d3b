package fdbpq_test

import (
	"sync/atomic"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// duePage is how many entries of the time index a transaction handles.
const duePage = due.Page

// answerLife is how long staged pops may take to collect their items.
const answerLife = 30 * time.Second

// leave gives an item from each of the ends, if there is one, to a staged pop that never collects
// it.
func (f *fixture) leave(q fdbpq.Target, now time.Time, ends ...fdbpq.End) {
	f.Helper()
	l := q.Layout()
	write(f, func(tx kv.Transaction) {
		g := state.NewLedger(tx, l, now, nil)
		for _, end := range ends {
			for _, pair := range must(tx.GetRange(l.ItemRange(), kv.RangeOptions{Limit: 1, Reverse: end == fdbpq.Back}).Get()) {
				id := must(l.ParseItem(pair.Key))
				g.Detach(&state.Stored{Item: fdbpq.Item{ID: id}, Pair: pair})
				request := codec.NewID(0, 0, now, codec.UniqueBytes(1), false).Random
				a := codec.Answer{Deadline: now.Add(answerLife), Item: &id}
				state.SetUntil(l, tx, a.Deadline, l.PartKey(codec.PartAnswer, request), a.Encode())
				tx.Set(l.PartKey(codec.PartValue, request), pair.Value)
			}
		}
		wantError(f.T, g.Flush(), nil)
	})
}

// clock is a clock that moves when told to, and by step each time it is read.
type clock struct {
	micros, step atomic.Int64
}

func newClock(at time.Time) *clock {
	c := &clock{}
	c.micros.Store(at.UnixMicro())
	return c
}

func (c *clock) now() time.Time           { return time.UnixMicro(c.micros.Add(c.step.Load())) }
func (c *clock) advance(d time.Duration)  { c.micros.Add(d.Microseconds()) }
func (c *clock) stepping(d time.Duration) { c.step.Store(d.Microseconds()) }

// setClock gives the Batcher a clock.
func (f *fixture) setClock() *clock {
	c := newClock(time.Now())
	f.batcher.SetNow(c.now)
	return c
}

// fill pushes values with priorities 0, 1, 2...
func (f *fixture) fill(q *fdbpq.PriorityQueue, values ...string) {
	f.Helper()
	for i, value := range values {
		f.push(q, int64(i), value)
	}
}
