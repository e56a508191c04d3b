package fdbpq_test

import (
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
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/subjects/schedule"
)

func opSchedule(q fdbpq.Target, s schedule.Schedule) fdbpq.Op {
	return opChange(q, s.ID, func(old *schedule.Record, now time.Time) *schedule.Record {
		return schedule.Set(old, &s, now)
	})
}

func opRun(q fdbpq.Target, id string) fdbpq.Op {
	return opChange(q, id, func(r *schedule.Record, now time.Time) *schedule.Record {
		return r.Run(now)
	})
}

func opPause(q fdbpq.Target, id string, paused bool) fdbpq.Op {
	return opChange(q, id, func(r *schedule.Record, now time.Time) *schedule.Record {
		return r.Pause(paused, now)
	})
}

func opUnschedule(q fdbpq.Target, id string) fdbpq.Op {
	return opChange(q, id, func(*schedule.Record, time.Time) *schedule.Record { return nil })
}

// opChange changes a schedule, or removes it with nil.
func opChange(
	q fdbpq.Target, id string, change func(old *schedule.Record, now time.Time) *schedule.Record,
) fdbpq.Op {
	return fdbpq.Op{
		Kind:   fdbpq.OpSetSchedule,
		Queue:  q,
		Record: id,
		Change: func(value []byte, now time.Time) ([]byte, error) {
			var old *schedule.Record
			if value != nil {
				var err error
				if old, err = schedule.Parse(value); err != nil {
					return nil, err
				}
			}

			if set := change(old, now); set != nil {
				return set.Encode(), nil
			}

			return nil, nil
		},
	}
}

func (f *fixture) setSchedule(q fdbpq.Target, s schedule.Schedule, now time.Time) {
	f.Helper()
	wantError(f.T, s.Check(), nil)
	wantError(f.T, f.one(now, opSchedule(q, s)).Err, nil)
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
		id := r.Item.Headers[fdbpq.HeaderSchedule][0]
		list = append(list, fmt.Sprint(id, " ", at.Sub(begin), " ", string(r.Item.Value)))
	}
}

const minutely = schedule.Duration(time.Minute)

// Any look at a queue, or a sweep, fires the schedules that are due, and their items get their
// places in the order. A queue whose schedules were removed fires no more.
func TestSchedules(t *testing.T) {
	onEngines(t, func(f *fixture) {
		begin := time.Now().Truncate(time.Second)
		q, fifo := f.queue("jobs"), f.fifoQueue("mail")
		late := schedule.Schedule{ID: "late", Every: minutely, Priority: 9, Value: []byte("x")}
		f.setSchedule(q, late, begin)

		f.setSchedule(q, schedule.Schedule{
			ID:       "early",
			Every:    2 * minutely,
			Priority: -1,
			Value:    []byte("y"),
			Headers:  map[string][]string{"A": {"b"}},
		}, begin)

		post := schedule.Schedule{ID: "post", Every: minutely, Priority: 5, Value: []byte("z")}
		f.setSchedule(fifo, post, begin)
		f.wantListed("with schedules", "jobs")
		wantEqual(f.T, "ahead", f.ahead(q).Due.Sub(begin), time.Minute)

		// A second before the first is due, and at the time of the last.
		f.push(q, 3, "pushed")
		before := f.one(begin.Add(59*time.Second), op(opLen, q)).Len
		wantEqual(f.T, "length before", before, 1)

		now := begin.Add(2 * time.Minute)
		wantEqual(f.T, "length", f.one(now, op(opLen, q)).Len, 4)

		info := f.one(now, fdbpq.Op{Kind: fdbpq.OpInfo, Queue: q}).Info
		wantEqual(f.T, "ready", info.Ready, 4)

		peeked := f.one(now, op(opPeekMin, q)).Item
		got := fmt.Sprint(string(peeked.Value), peeked.Headers["A"], peeked.PushedAt.Equal(now))
		wantEqual(f.T, "peeked", got, "y[b] true")
		f.check()

		wantEqual(f.T, "popped", string(f.one(now, op(opPopMin, q)).Item.Value), "y")
		wantEqual(f.T, "popped", string(f.one(now, op(opPopMin, q)).Item.Value), "pushed")
		wantList(f.T, "fired", f.popFired(q, begin, now), "late 1m0s x", "late 2m0s x")

		// A pop that is the first to look gets the item, and one that finds nothing knows when one
		// comes.
		wantList(f.T, "by a pop", f.popFired(fifo, begin, now), "post 1m0s z", "post 2m0s z")

		waits := f.one(now, fdbpq.Op{Kind: fdbpq.OpPop, Queue: fifo, Waits: true})
		wantEqual(f.T, "next due", waits.NextDue.Sub(begin), 3*time.Minute)

		// A sweep fires without any other look.
		f.sweepDue(now.Add(time.Minute), fifo)
		wantEqual(f.T, "swept", f.popFired(fifo, begin, now)[0], "post 3m0s z")

		s := f.schedules(q, now)[1]
		state := fmt.Sprint(s.ID, s.Fired, s.Next.Sub(begin), s.Last.Sub(begin))
		wantEqual(f.T, "state", state, fmt.Sprint("late", 2, 3*time.Minute, 2*time.Minute))

		// Without a schedule nothing fires, and the queue can leave the list.
		for _, id := range []string{"late", "early"} {
			wantError(f.T, f.one(now, opUnschedule(q, id)).Err, nil)
		}
		wantEqual(f.T, "ahead", f.ahead(q).Due.IsZero(), true)
		wantEqual(f.T, "left", len(f.popFired(q, begin, now.Add(time.Hour))), 0)
	})
}

// A schedule does as its policies say about times that were missed, overlap, are delayed, paused
// or over.
func TestSchedulePolicies(t *testing.T) {
	onEngines(t, func(f *fixture) {
		begin := time.Now().Truncate(time.Second)
		q := f.queue("jobs")
		fired := func(after time.Duration) []string {
			return f.popFired(q, begin, begin.Add(after))
		}
		remove := func(id string) {
			wantError(f.T, f.one(begin, opUnschedule(q, id)).Err, nil)
		}

		// Overlap: nothing fires while the item of before is ready, leased or delayed.
		f.setSchedule(q, schedule.Schedule{ID: "c", Every: minutely, Overlap: schedule.Skip}, begin)
		at := func(d time.Duration, op fdbpq.Op) fdbpq.Result {
			op.Queue = q
			return f.one(begin.Add(d), op)
		}
		wantEqual(f.T, "length", at(2*time.Minute, fdbpq.Op{Kind: fdbpq.OpLen}).Len, 1) // ready

		lease := at(2*time.Minute, fdbpq.Op{Kind: fdbpq.OpLease, Lease: 10 * time.Minute})
		wantEqual(f.T, "while leased", at(3*time.Minute, fdbpq.Op{Kind: fdbpq.OpLen}).Len, 0)

		nak := fdbpq.Op{Kind: fdbpq.OpNak, Token: lease.Lease.Token, Delay: 2 * time.Minute}
		wantError(f.T, at(3*time.Minute, nak).Err, nil)
		wantEqual(f.T, "while delayed", at(4*time.Minute, fdbpq.Op{Kind: fdbpq.OpLen}).Len, 0)

		overlapped := f.schedules(q, begin)[0]
		wantEqual(f.T, "counted", fmt.Sprint(overlapped.Fired, overlapped.Skipped), "1 3")
		wantEqual(f.T, "outcome", overlapped.Outcome, schedule.Overlapped)
		wantList(f.T, "with the old one", fired(5*time.Minute), "c 1m0s ")
		wantList(f.T, "without it", fired(6*time.Minute), "c 6m0s ")
		wantEqual(f.T, "outcome", f.schedules(q, begin)[0].Outcome, schedule.Pushed)

		remove("c")

		// Jitter holds the item back, and a paused schedule fires only when it is run.
		f.setSchedule(q, schedule.Schedule{
			ID:     "d",
			Every:  minutely,
			Jitter: schedule.Duration(50 * time.Second),
		}, begin)

		ready := f.schedules(q, begin)[0].ReadyAt(q.Layout().Prefix, begin.Add(time.Minute))
		wantEqual(f.T, "jitter", len(fired(time.Minute)), 0)
		wantEqual(f.T, "delayed", f.ahead(q).Due.Equal(ready.Truncate(time.Microsecond)), true)
		wantList(f.T, "jitter over", fired(ready.Sub(begin)), "d 1m0s ")
		wantError(f.T, at(0, opPause(q, "d", true)).Err, nil)
		wantEqual(f.T, "paused", len(fired(time.Hour)), 0)

		runNow := opChange(q, "d", func(r *schedule.Record, now time.Time) *schedule.Record {
			r.Jitter = 0
			return r.Run(now)
		})
		wantError(f.T, at(time.Hour, runNow).Err, nil)
		wantList(f.T, "run", fired(2*time.Hour), "d 1h0m0s ")
		wantEqual(f.T, "still paused", f.ahead(q).Due.IsZero(), true)

		remove("d")

		// Its items are pushed beyond max_items, expire like others, and end with Until.
		f.configure(q, func(s *fdbpq.Settings) { s.MaxItems, s.TTL = 1, time.Minute })
		ends := schedule.Schedule{ID: "e", Every: minutely, Until: begin.Add(2 * time.Minute)}
		f.setSchedule(q, ends, begin)
		wantEqual(f.T, "beyond the limit", at(2*time.Minute, fdbpq.Op{Kind: fdbpq.OpLen}).Len, 2)
		wantEqual(f.T, "expired, until", at(4*time.Minute, fdbpq.Op{Kind: fdbpq.OpLen}).Len, 0)

		remove("e")

		// The jitter of this one is longer than the minute after which its item expires.
		late := schedule.Schedule{
			ID:     "f",
			Every:  minutely,
			Jitter: 60 * minutely,
			Until:  begin.Add(time.Minute),
		}

		for !late.ReadyAt(q.Layout().Prefix, late.Until).After(late.Until.Add(time.Minute)) {
			late.ID += "f"
		}

		f.setSchedule(q, late, begin)
		wantEqual(f.T, "delayed", at(time.Minute, fdbpq.Op{Kind: fdbpq.OpInfo}).Info.Delayed, 1)
		wantEqual(f.T, "expired before it is ready",
			at(2*time.Minute, fdbpq.Op{Kind: fdbpq.OpInfo}).Info.Delayed, 0)

		f.configure(q, func(s *fdbpq.Settings) { *s = fdbpq.Settings{} })
	})
}

// A schedule that is due fires before it changes, whether or not anybody has looked at the queue.
func TestChangesLoseNoTime(t *testing.T) {
	onEngines(t, func(f *fixture) {
		begin := time.Now().Truncate(time.Second)
		q := f.queue("jobs")
		every := func(n schedule.Duration) fdbpq.Op {
			return opSchedule(q, schedule.Schedule{ID: "a", Every: n, Value: []byte("new")})
		}

		for _, c := range []struct {
			name   string
			s      schedule.Schedule
			after  time.Duration
			change fdbpq.Op
			want   []string
			next   time.Duration // 0 is none
		}{
			{
				name:   "set again",
				after:  61 * time.Second,
				change: every(minutely),
				want:   []string{"1m0s "},
				next:   2 * time.Minute,
			},
			{
				name:   "at its time",
				after:  time.Minute,
				change: every(minutely),
				want:   []string{"1m0s "},
				next:   2 * time.Minute,
			},
			{
				name:   "set otherwise",
				after:  61 * time.Second,
				change: every(2 * minutely),
				want:   []string{"1m0s "},
				next:   181 * time.Second,
			},
			{
				name:   "paused",
				after:  61 * time.Second,
				change: opPause(q, "a", true),
				want:   []string{"1m0s "},
			},
			{
				name:   "run",
				after:  61 * time.Second,
				change: opRun(q, "a"),
				want:   []string{"1m0s ", "1m1s "},
				next:   2 * time.Minute,
			},
			{
				name:   "removed",
				after:  61 * time.Second,
				change: opUnschedule(q, "a"),
				want:   []string{"1m0s "},
			},
			{
				name:   "once",
				after:  10 * time.Minute,
				change: opPause(q, "a", true),
				want:   []string{"1m0s ", "9m0s ", "10m0s "},
			},
			{
				name:   "skip",
				s:      schedule.Schedule{IfMissed: schedule.Skip},
				after:  10*time.Minute + time.Second,
				change: every(minutely),
				want:   []string{"10m0s "},
				next:   11 * time.Minute,
			},
			{
				name:   "overlap",
				s:      schedule.Schedule{Overlap: schedule.Skip},
				after:  2 * time.Minute,
				change: opRun(q, "a"),
				want:   []string{"1m0s "},
				next:   3 * time.Minute,
			},
		} {
			now := begin.Add(c.after)
			c.s.ID, c.s.Every = "a", minutely
			f.setSchedule(q, c.s, begin)

			results := f.applyAt(now, c.change, op(opLen, q))
			wantError(f.T, results[0].Err, nil)
			wantEqual(f.T, c.name, results[1].Len, int64(len(c.want)))

			for i := range c.want {
				c.want[i] = "a " + c.want[i]
			}

			for _, s := range f.schedules(q, now) {
				next := s.Next.Sub(begin)
				if s.Next.IsZero() {
					next = 0
				}
				wantEqual(f.T, c.name+": next", next, c.next)
			}
			f.check()
			wantList(f.T, c.name, f.popFired(q, begin, now), c.want...)

			f.one(now, opUnschedule(q, "a"))
		}
	})
}

// A change waits until all that is due has fired, which may take several transactions, though a
// schedule can be removed before. Bridges whose clocks differ fire each time once.
func TestChangesOfBacklog(t *testing.T) {
	const missed = 2*schedule.MostAtOnce + 50 // three transactions fire them
	f := onMem(t)
	begin := time.Now().Truncate(time.Second)
	q, now := f.queue("jobs"), begin.Add(missed*time.Minute)
	all := schedule.Schedule{ID: "a", Every: minutely, IfMissed: schedule.All}
	f.setSchedule(q, all, begin)

	for i := range 3 {
		want := error(nil)
		if i < 2 { // these have fired MostAtOnce times
			want = fdbpq.ErrNoRoom
		}
		wantError(t, f.one(now, opPause(q, "a", true)).Err, want)
	}
	wantEqual(t, "items", len(f.popFired(q, begin, now)), missed)

	// A removal gives up the times beyond those of its own transaction.
	f.setSchedule(q, all, begin)
	wantError(t, f.one(now.Add(missed*time.Minute), opUnschedule(q, "a")).Err, nil)
	fired := f.popFired(q, begin, now.Add(2*missed*time.Minute))
	wantEqual(t, "before the removal", len(fired), schedule.MostAtOnce)

	// The second of a batch finds the first due.
	f.setSchedule(q, all, now)
	results := f.applyAt(now, opRun(q, "a"), opRun(q, "a"), op(opLen, q))
	wantErrors(t, results, nil, fdbpq.ErrNoRoom, nil)
	wantEqual(t, "run twice", results[2].Len, 1)
	wantError(t, f.one(now, opRun(q, "a")).Err, nil)
	wantEqual(t, "run again", f.one(now, op(opLen, q)).Len, 2)

	// One that was run does not go before its item has come.
	results = f.applyAt(now, opRun(q, "a"), opUnschedule(q, "a"), op(opLen, q))
	wantErrors(t, results, nil, fdbpq.ErrNoRoom, nil)
	wantEqual(t, "run and removed", results[2].Len, 3)
	wantEqual(t, "popped", len(f.popFired(q, now, now)), 3)

	for range 2 {
		wantError(t, f.one(now, opRun(q, "a")).Err, nil)
		wantError(t, f.one(now, op(opLen, q)).Err, nil)
	}

	// A bridge fires a time, and another, whose clock is a second behind, changes the schedule.
	wantEqual(t, "fires", f.one(now.Add(time.Minute), op(opLen, q)).Len, 3)

	for _, change := range []fdbpq.Op{
		opSchedule(q, all), opRun(q, "a"), opPause(q, "a", true), opPause(q, "a", false),
	} {
		wantError(t, f.applyAt(now.Add(59*time.Second), change, op(opLen, q))[0].Err, nil)
	}
	wantEqual(t, "next", f.schedules(q, now)[0].Next.Sub(now), 2*time.Minute)

	// The result of one that runs has what became of it.
	now = now.Add(90 * time.Second)
	ran := f.one(now, opRun(q, "a"))

	stored := f.schedules(q, now)[0]
	wantEqual(t, "record", string(ran.Records[0].Value), string(stored.Encode()))
	wantEqual(t, "next due", fmt.Sprint(stored.Last.Equal(now), ran.NextDue.Sub(now)),
		fmt.Sprint(true, 30*time.Second))
}

// A removal waits until the times of a schedule that are due have had their turn.
func TestRemovalsLoseNoTime(t *testing.T) {
	f := onMem(t)
	begin := time.Now().Truncate(time.Second)
	q, now := f.queue("jobs"), begin.Add(time.Minute)
	const n = 300 // more than one transaction fires

	for i := range n {
		f.setSchedule(q, schedule.Schedule{ID: fmt.Sprint(i), Every: minutely}, begin)
	}

	for i := n - 1; i >= 0; i-- {
		for err := fdbpq.ErrNoRoom; err != nil; {
			err = f.one(now, opUnschedule(q, fmt.Sprint(i))).Err
			if err != nil {
				wantError(t, err, fdbpq.ErrNoRoom)
			}
		}
	}
	wantEqual(t, "items", len(f.popFired(q, begin, now)), n)
}

// A queue takes a bounded number of schedules with a bounded number of bytes, and each can be
// changed or removed at the bound.
func TestScheduleBounds(t *testing.T) {
	f := onMem(t)
	begin := time.Now().Truncate(time.Second)
	q := f.queue("jobs")

	// setAll sets n schedules, the first with the number from, and a value of size bytes each.
	setAll := func(from, n, size int) {
		sets := many(n, func(i int) fdbpq.Op {
			return opSchedule(q, schedule.Schedule{
				ID:    fmt.Sprint(from + i),
				Every: minutely,
				Value: make([]byte, size),
			})
		})
		wantErrors(t, f.applyAt(begin, sets...))
	}

	// As many as there may be, with 1.2 MB.
	setAll(0, 100, 12_000)
	setAll(100, fdbpq.MaxSchedules-100, 0)

	wantRefused := func(s schedule.Schedule, text string) {
		t.Helper()
		r := f.one(begin, opSchedule(q, s))
		if !errors.Is(r.Err, fdbpq.ErrMaxRecords) || !strings.Contains(r.Err.Error(), text) {
			t.Errorf("%s: %v: want %s", s.ID, r.Err, text)
		}
	}
	wantRefused(schedule.Schedule{ID: "more", Every: minutely}, "1000 schedules")

	// With 3 MB of 60 others there is no room for more large ones.
	setAll(100, 60, 30_000)
	setAll(500, 1, schedule.MaxContent)
	wantRefused(schedule.Schedule{
		ID:    "501",
		Every: minutely,
		Value: make([]byte, schedule.MaxContent),
	}, "4194304 bytes")

	setAll(100, 60, 0) // smaller ones can take their places

	// Neither a bad id nor a record that is no schedule is stored.
	wantError(t, f.one(begin, opSchedule(q, schedule.Schedule{ID: "a.b"})).Err, fdbpq.ErrOp)

	set := fdbpq.Op{
		Kind:   fdbpq.OpSetSchedule,
		Queue:  q,
		Record: "0",
		Change: func([]byte, time.Time) ([]byte, error) { return []byte("x"), nil },
	}
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
	write(f, func(tx kv.Transaction) {
		tx.Set(tuple.Tuple{f.priority, "jobs", "s", "0"}.Pack(), []byte("{"))
	})
	wantError(t, f.one(now.Add(time.Minute), op(opPopMin, q)).Err, nil)
}

// Each time of a schedule is one item, however many Batchers fire it and whatever becomes of their
// commits.
func TestSchedulesFireOnce(t *testing.T) {
	_, seed := newRandom(t)
	f := newUnsure(t,
		faultkv.Options{Seed: seed, MaxDelay: time.Microsecond, Rates: commitFaults})
	begin := time.Now().Truncate(time.Second)
	clock := newClock(begin)
	f.batcher.SetNow(clock.now)
	q := f.queue("jobs")
	var want []string
	var again []fdbpq.Op
	const times = 50

	for id := range 4 {
		every := time.Duration(id+1) * time.Second
		again = append(again, opSchedule(q, schedule.Schedule{
			ID:       fmt.Sprint(id),
			Every:    schedule.Duration(every),
			Priority: int64(id % 2),
			IfMissed: schedule.All,
		}))

		f.apply(again[id])
		for n := range int(times * time.Second / every) {
			want = append(want, fmt.Sprint(id, " ", time.Duration(n+1)*every, " "))
		}
	}

	var counted atomic.Int64
	f.run(seed, 4, func(w *worker) {
		context := w.givingUp()
		w.batcher.SetNow(clock.now)

		for range 80 {
			if clock.now().Before(begin.Add(times * time.Second)) {
				clock.advance(times * time.Second / 200) // the 4*80 steps are enough for all
			}

			ctx, cancel := context()
			ops := [][]fdbpq.Op{
				{op(opPeekMin, q), op(opLen, q)},
				{opPush(f.queue("other"), 1, "x"), op(opLen, q)},
				sweeps([]fdbpq.Target{q}),
				{again[w.random.IntN(len(again))]},
			}[w.random.IntN(4)]

			results, err := w.batcher.Apply(ctx, ops)
			if err == nil && results[1%len(results)].Err != nil || err != nil && ctx.Err() == nil {
				t.Errorf("%v, %v", err, results)
			}

			cancel()
		}
		wantError(t, w.batcher.Settle(f.ctx), nil)

		counted.Add(w.batcher.SideEffects().Fired)
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
