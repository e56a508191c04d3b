package fdbpq_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/schedule"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// opSchedule sets a schedule at the given time.
func opSchedule(q fdbpq.Target, s schedule.Schedule, now time.Time) fdbpq.Op {
	return opChange(q, s.ID, func(old *schedule.Record) *schedule.Record { return schedule.Set(old, &s, now) })
}

// opChange changes a schedule, or removes it with nil.
func opChange(q fdbpq.Target, id string, change func(old *schedule.Record) *schedule.Record) fdbpq.Op {
	return fdbpq.Op{Kind: fdbpq.OpSetSchedule, Queue: q, Record: id, Change: func(value []byte) ([]byte, error) {
		var old *schedule.Record
		if value != nil {
			var err error
			if old, err = schedule.Parse(value); err != nil {
				return nil, err
			}
		}
		if set := change(old); set != nil {
			return set.Encode(), nil
		}
		return nil, nil
	}}
}

func (f *fixture) setSchedule(q fdbpq.Target, s schedule.Schedule, now time.Time) {
	f.Helper()
	wantError(f.T, s.Check(), nil)
	wantError(f.T, f.one(now, opSchedule(q, s, now)).Err, nil)
}

func (f *fixture) schedules(q fdbpq.Target, now time.Time) (list []*schedule.Record) {
	f.Helper()
	r := f.one(now, fdbpq.Op{Kind: fdbpq.OpSchedules, Queue: q})
	wantError(f.T, r.Err, nil)
	for _, record := range r.Records {
		list = append(list, must(schedule.Parse(record.Value)))
	}
	return list
}

// popFired pops all items, and returns how long after begin each was scheduled, with its value.
func (f *fixture) popFired(q fdbpq.Target, begin, now time.Time) (list []string) {
	f.Helper()
	for {
		r := f.one(now, fdbpq.Op{Kind: fdbpq.OpPop, Queue: q})
		if errors.Is(r.Err, fdbpq.ErrEmpty) {
			return list
		}
		wantError(f.T, r.Err, nil)
		at := must(time.Parse(time.RFC3339Nano, r.Item.Headers[fdbpq.HeaderScheduledAt][0]))
		list = append(list, fmt.Sprint(r.Item.Headers[fdbpq.HeaderSchedule][0], " ", at.Sub(begin), " ", string(r.Item.Value)))
	}
}

const minutely = schedule.Duration(time.Minute)

// Whoever looks at a queue, or sweeps it, fires what is due, at its place in the order.
func TestSchedules(t *testing.T) {
	onEngines(t, func(f *fixture) {
		begin := time.Now().Truncate(time.Second)
		q, fifo := f.queue("jobs"), f.fifoQueue("mail")
		f.setSchedule(q, schedule.Schedule{ID: "late", Every: minutely, Priority: 9, Value: []byte("x")}, begin)
		f.setSchedule(q, schedule.Schedule{ID: "early", Every: 2 * minutely, Priority: -1, Value: []byte("y"), Headers: map[string][]string{"A": {"b"}}}, begin)
		f.setSchedule(fifo, schedule.Schedule{ID: "post", Every: minutely, Priority: 5, Value: []byte("z")}, begin)
		f.wantListed("with schedules", "jobs")
		wantEqual(f.T, "ahead", f.ahead(q).Due.Sub(begin), time.Minute)
		f.push(q, 3, "pushed")
		wantEqual(f.T, "length before", f.one(begin.Add(59*time.Second), fdbpq.Op{Kind: fdbpq.OpLen, Queue: q}).Len, 1)

		now := begin.Add(2 * time.Minute)
		wantEqual(f.T, "length", f.one(now, fdbpq.Op{Kind: fdbpq.OpLen, Queue: q}).Len, 4)
		info := f.one(now, fdbpq.Op{Kind: fdbpq.OpInfo, Queue: q}).Info
		wantEqual(f.T, "ready", info.Ready, 4)
		peeked := f.one(now, fdbpq.Op{Kind: fdbpq.OpPeek, Queue: q}).Item
		wantEqual(f.T, "peeked", fmt.Sprint(string(peeked.Value), peeked.Headers["A"], peeked.PushedAt.Equal(now)), "y[b] true")
		f.check()
		wantEqual(f.T, "popped", string(f.one(now, fdbpq.Op{Kind: fdbpq.OpPop, Queue: q}).Item.Value), "y")
		wantEqual(f.T, "popped", string(f.one(now, fdbpq.Op{Kind: fdbpq.OpPop, Queue: q}).Item.Value), "pushed")
		wantList(f.T, "fired", f.popFired(q, begin, now), "late 1m0s x", "late 2m0s x")

		// A pop that is the first to look gets the item, and one that finds nothing knows when one comes.
		wantList(f.T, "by a pop", f.popFired(fifo, begin, now), "post 1m0s z", "post 2m0s z")
		waits := f.one(now, fdbpq.Op{Kind: fdbpq.OpPop, Queue: fifo, Waits: true})
		wantEqual(f.T, "next due", waits.NextDue.Sub(begin), 3*time.Minute)
		f.sweepDue(now.Add(time.Minute), fifo)
		wantEqual(f.T, "swept", f.popFired(fifo, begin, now)[0], "post 3m0s z")

		list := f.schedules(q, now)
		wantEqual(f.T, "state", fmt.Sprint(list[1].ID, list[1].Fired, list[1].Next.Sub(begin), list[1].Last.Sub(begin)), fmt.Sprint("late", 2, 3*time.Minute, 2*time.Minute))

		// Without a schedule nothing fires, and the queue can leave the list.
		for _, id := range []string{"late", "early"} {
			wantError(f.T, f.one(now, opChange(q, id, func(*schedule.Record) *schedule.Record { return nil })).Err, nil)
		}
		wantEqual(f.T, "ahead", f.ahead(q).Due.IsZero(), true)
		wantEqual(f.T, "left", len(f.popFired(q, begin, now.Add(time.Hour))), 0)
	})
}

// What was missed, overlaps, is delayed, paused or over.
func TestSchedulePolicies(t *testing.T) {
	onEngines(t, func(f *fixture) {
		begin := time.Now().Truncate(time.Second)
		q := f.queue("jobs")
		fired := func(after time.Duration) []string { return f.popFired(q, begin, begin.Add(after)) }
		remove := func(id string) {
			wantError(f.T, f.one(begin, opChange(q, id, func(*schedule.Record) *schedule.Record { return nil })).Err, nil)
		}

		f.setSchedule(q, schedule.Schedule{ID: "a", Every: minutely, IfMissed: schedule.All}, begin)
		wantEqual(f.T, "all", len(fired(250*time.Minute)), 250) // in several transactions
		remove("a")
		f.setSchedule(q, schedule.Schedule{ID: "b", Every: 5 * minutely}, begin)
		wantList(f.T, "once", fired(29*time.Minute), "b 5m0s ")
		remove("b")

		f.setSchedule(q, schedule.Schedule{ID: "c", Every: minutely, Overlap: schedule.Skip}, begin)
		at := func(d time.Duration, op fdbpq.Op) fdbpq.Result { op.Queue = q; return f.one(begin.Add(d), op) }
		wantEqual(f.T, "length", at(2*time.Minute, fdbpq.Op{Kind: fdbpq.OpLen}).Len, 1) // ready
		lease := at(2*time.Minute, fdbpq.Op{Kind: fdbpq.OpLease, Lease: 10 * time.Minute})
		wantEqual(f.T, "while leased", at(3*time.Minute, fdbpq.Op{Kind: fdbpq.OpLen}).Len, 0)
		wantError(f.T, at(3*time.Minute, fdbpq.Op{Kind: fdbpq.OpNak, Token: lease.Lease.Token, Delay: 2 * time.Minute}).Err, nil)
		wantEqual(f.T, "while delayed", at(4*time.Minute, fdbpq.Op{Kind: fdbpq.OpLen}).Len, 0)
		wantEqual(f.T, "counted", fmt.Sprint(f.schedules(q, begin)[0].Fired, f.schedules(q, begin)[0].Skipped), "1 3")
		wantList(f.T, "with the old one", fired(5*time.Minute), "c 1m0s ")
		wantList(f.T, "without it", fired(6*time.Minute), "c 6m0s ")
		remove("c")

		f.setSchedule(q, schedule.Schedule{ID: "d", Every: minutely, Jitter: schedule.Duration(50 * time.Second)}, begin)
		ready := f.schedules(q, begin)[0].ReadyAt(begin.Add(time.Minute))
		wantEqual(f.T, "jitter", len(fired(time.Minute)), 0)
		wantEqual(f.T, "delayed", f.ahead(q).Due.Equal(ready.Truncate(time.Microsecond)), true)
		wantList(f.T, "jitter over", fired(ready.Sub(begin)), "d 1m0s ")
		wantError(f.T, at(0, opChange(q, "d", func(r *schedule.Record) *schedule.Record { return r.Pause(true, begin) })).Err, nil)
		wantEqual(f.T, "paused", len(fired(time.Hour)), 0)
		wantError(f.T, at(0, opChange(q, "d", func(r *schedule.Record) *schedule.Record { r.Jitter = 0; return r.Run(begin.Add(time.Hour)) })).Err, nil)
		wantList(f.T, "run", fired(2*time.Hour), "d 1h0m0s ")
		wantEqual(f.T, "still paused", f.ahead(q).Due.IsZero(), true)
		remove("d")

		f.configure(q, func(s *fdbpq.Settings) { s.MaxItems, s.TTL = 1, time.Minute })
		f.setSchedule(q, schedule.Schedule{ID: "e", Every: minutely, Until: begin.Add(2 * time.Minute)}, begin)
		wantEqual(f.T, "beyond the limit", at(2*time.Minute, fdbpq.Op{Kind: fdbpq.OpLen}).Len, 2)
		wantEqual(f.T, "expired, until", at(4*time.Minute, fdbpq.Op{Kind: fdbpq.OpLen}).Len, 0)
		f.configure(q, func(s *fdbpq.Settings) { *s = fdbpq.Settings{} })
	})
}

func TestScheduleBounds(t *testing.T) {
	f := onMem(t)
	begin := time.Now().Truncate(time.Second)
	q := f.queue("jobs")
	for i := range fdbpq.MaxSchedules {
		size := 0
		if i < 100 {
			size = 12_000
		}
		f.setSchedule(q, schedule.Schedule{ID: fmt.Sprint(i), Every: minutely, Value: make([]byte, size)}, begin)
	}
	wantRefused := func(s schedule.Schedule, text string) {
		t.Helper()
		r := f.one(begin, opSchedule(q, s, begin))
		if !errors.Is(r.Err, fdbpq.ErrMaxRecords) || !strings.Contains(r.Err.Error(), text) {
			t.Errorf("%s: %v: want %s", s.ID, r.Err, text)
		}
	}
	wantRefused(schedule.Schedule{ID: "more", Every: minutely}, "1000 schedules")
	large := schedule.Schedule{Every: minutely, Value: make([]byte, 30_000)}
	n := 100
	for ; n < 160; n++ {
		large.ID = fmt.Sprint(n)
		f.setSchedule(q, large, begin)
	}
	large.ID, large.Value = "500", make([]byte, schedule.MaxContent)
	f.setSchedule(q, large, begin)
	large.ID = "501"
	wantRefused(large, "4194304 bytes")
	for ; n > 100; n-- { // smaller ones can take their places
		f.setSchedule(q, schedule.Schedule{ID: fmt.Sprint(n - 1), Every: minutely}, begin)
	}
	wantError(t, f.one(begin, opSchedule(q, schedule.Schedule{ID: "a.b"}, begin)).Err, fdbpq.ErrOp)
	set := fdbpq.Op{Kind: fdbpq.OpSetSchedule, Queue: q, Record: "0", Change: func([]byte) ([]byte, error) { return []byte("x"), nil }}
	wantError(t, f.one(begin, set).Err, fdbpq.ErrOp)

	// More is due than a transaction has room for.
	now := begin.Add(time.Minute)
	for n := 0; ; n++ {
		swept := f.one(now, fdbpq.Op{Kind: fdbpq.OpSweep, Queue: q}).Swept
		if !swept.More && n > 0 {
			break
		}
		if !swept.Done || n == 99 {
			t.Fatalf("after %d transactions: %+v", n, swept)
		}
	}
	wantEqual(t, "fired", f.one(now, fdbpq.Op{Kind: fdbpq.OpLen, Queue: q}).Len, fdbpq.MaxSchedules)

	// What cannot be read stays, and is not in the way.
	f.corrupt = true
	write(f, func(tx kv.Transaction) { tx.Set(tuple.Tuple{f.priority, "jobs", "s", "0"}.Pack(), []byte("{")) })
	wantEqual(t, "the others fire", f.one(now.Add(time.Minute), fdbpq.Op{Kind: fdbpq.OpPop, Queue: q}).Err, nil)
}

// Batchers fire the schedules of a queue side by side, while the store fails and does not say what
// became of commits: each time is one item.
func TestSchedulesFireOnce(t *testing.T) {
	_, seed := newRandom(t)
	f := newUnsure(t, faultkv.Options{Seed: seed, MaxDelay: time.Microsecond, Rates: map[faultkv.Fault]float64{
		faultkv.Conflict: 0.1, faultkv.UnknownLost: 0.1, faultkv.UnknownMade: 0.1, faultkv.UnknownBeforeNext: 0.1, faultkv.UnknownDuringNext: 0.1,
	}})
	begin := time.Now().Truncate(time.Second)
	clock := newClock(begin)
	f.batcher.SetNow(clock.now)
	q := f.queue("jobs")
	var want []string
	const times = 50
	for id := range 4 {
		every := time.Duration(id+1) * time.Second
		f.apply(opSchedule(q, schedule.Schedule{ID: fmt.Sprint(id), Every: schedule.Duration(every), Priority: int64(id % 2), IfMissed: schedule.All}, begin))
		for n := range int(times * time.Second / every) {
			want = append(want, fmt.Sprint(id, " ", time.Duration(n+1)*every, " "))
		}
	}

	var counted atomic.Int64
	f.run(seed, 4, func(w *worker) {
		w.batcher.SetNow(clock.now)
		for range 60 {
			if clock.now().Before(begin.Add(times * time.Second)) {
				clock.advance(times * time.Second / 200)
			}
			ctx, cancel := context.WithTimeout(f.ctx, time.Duration(w.random.IntN(4000))*time.Microsecond)
			ops := [][]fdbpq.Op{{op(opPeekMin, q), op(opLen, q)}, {opPush(f.queue("other"), 1, "x"), op(opLen, q)}, sweeps([]fdbpq.Target{q})}[w.random.IntN(3)]
			if results, err := w.batcher.Apply(ctx, ops); err == nil && results[1%len(results)].Err != nil || err != nil && ctx.Err() == nil {
				t.Errorf("%v, %v", err, results)
			}
			cancel()
		}
		wantError(t, w.batcher.Settle(f.ctx), nil)
		counted.Add(w.batcher.Removed().Fired)
	})
	f.calm()
	end := begin.Add(times * time.Second)
	swept := f.sweepDue(end, q)
	got := f.popFired(q, begin, end)
	slices.Sort(got)
	slices.Sort(want)
	wantList(t, "fired", got, want...)
	if n := counted.Load(); n > int64(len(want)) || n < int64(len(want))/2 {
		t.Errorf("%d counted of %d, %+v", n, len(want), swept)
	}
}
