package fdbpq_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// sweep runs an OpPurge or OpRedrive to its end, in as many transactions as it needs.
func (f *fixture) sweep(at time.Time, op fdbpq.Op) (done int64, transactions int) {
	f.Helper()
	for {
		r := f.one(at, op)
		if r.Err != nil {
			f.Fatal(r.Err)
		}
		transactions++
		if op.Progress = r.Progress; op.Progress.Next == "" {
			return op.Progress.Done, transactions
		}
	}
}

func TestPurge(t *testing.T) {
	bothKinds(t, func(f *fixture, q fdbpq.Target) {
		now := time.Now()
		for _, size := range []int{5, 250_000} {
			for _, state := range []fdbpq.ItemState{fdbpq.Ready, fdbpq.Delayed, fdbpq.Leased, fdbpq.AnyState} {
				ready, held, lent, lease := f.threeStates(q, now, size)
				f.one(now, fdbpq.Op{Kind: fdbpq.OpConfigure, Queue: q, Configure: func(s *fdbpq.Settings) { s.MaxDeliver = 5 }})
				want := int64(1)
				if state == fdbpq.AnyState {
					want = 3
				}
				if n, _ := f.sweep(now, fdbpq.Op{Kind: fdbpq.OpPurge, Queue: q, State: state}); n != want {
					f.Errorf("purged %d that are %v: want %d", n, state, want)
				}
				for id, was := range map[fdbpq.ID]fdbpq.ItemState{ready: fdbpq.Ready, held: fdbpq.Delayed, lent: fdbpq.Leased} {
					r := f.one(now, fdbpq.Op{Kind: fdbpq.OpGet, Queue: q, ID: id})
					if gone := errors.Is(r.Err, fdbpq.ErrNotFound); gone != (state == was || state == fdbpq.AnyState) {
						f.Errorf("after a purge of those that are %v, one that was %v: %v", state, was, r.Err)
					}
				}
				f.check()
				f.sweep(now, fdbpq.Op{Kind: fdbpq.OpPurge, Queue: q})
				wantError(f.T, f.one(now, fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: lease.Token}).Err, fdbpq.ErrLeaseLost)
			}
		}
		// What is due counts as ready.
		f.threeStates(q, now, 5)
		if n, _ := f.sweep(now.Add(30*time.Minute), fdbpq.Op{Kind: fdbpq.OpPurge, Queue: q, State: fdbpq.Ready}); n != 2 {
			f.Errorf("purged %d: want the ready item and the one whose delay is over", n)
		}
		if r := f.one(now, fdbpq.Op{Kind: fdbpq.OpSettings, Queue: q}); r.Err != nil || r.Settings.MaxDeliver != 5 {
			f.Errorf("settings after the purges: %+v, %v", r.Settings, r.Err)
		}
	})
}

// A purge takes many items in few transactions, and walks over those in other states.
func TestPurgeInTransactions(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("q")
		now := time.Now()
		const n = 3000
		for range n / 1000 {
			ops := make([]fdbpq.Op, 1000)
			for i := range ops {
				ops[i] = fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Priority: int64(i % 10)}
			}
			f.applyAt(now, ops...)
			for i := range ops {
				ops[i] = fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Hour}
			}
			leases := f.applyAt(now, ops...)
			for i := range ops {
				ops[i] = fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: leases[i].Lease.Token, Delay: time.Duration(i%2) * time.Hour}
			}
			f.applyAt(now, ops...)
		}
		if purged, times := f.sweep(now, fdbpq.Op{Kind: fdbpq.OpPurge, Queue: q, State: fdbpq.Leased}); purged != 0 || times > 1 {
			f.Errorf("purged %d leased items in %d transactions", purged, times)
		}
		if purged, times := f.sweep(now, fdbpq.Op{Kind: fdbpq.OpPurge, Queue: q}); purged != n || times > 3 || times < 2 {
			f.Errorf("purged %d in %d transactions: want %d in 2 or 3", purged, times, n)
		}
		if info := f.infoOf(q, 0); info.Ready+info.Leased+info.Delayed != 0 {
			f.Errorf("%+v", info)
		}
	})
}

// bury makes dead letters of new items, with the values given, of a queue.
func (f *fixture) bury(at time.Time, q fdbpq.Target, values ...string) {
	f.Helper()
	for _, value := range values {
		m := fdbpq.Message{Value: []byte(value), Headers: map[string][]string{"Name": {value[:1]}, "Drop": {"x"}}}
		f.one(at, fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Priority: 3, Message: m})
		lease := f.one(at, fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})
		if r := f.one(at, fdbpq.Op{Kind: fdbpq.OpTerm, Queue: q, Token: lease.Lease.Token}); r.Err != nil {
			f.Fatal(r.Err)
		}
	}
}

func TestRedrive(t *testing.T) {
	onEngines(t, func(f *fixture) {
		large := string(make([]byte, 300_000))
		outside := tuple.NewSubspace(tuple.Tuple{f.priority + "-outside"})
		alone := fdbpq.NewPriorityQueue(outside, f.format)
		for _, target := range [][2]fdbpq.Target{
			{f.queue("q"), f.queue("q-dead")}, {f.fifoQueue("q"), f.fifoQueue("q-dead")}, {alone, alone.DeadLetters()},
		} {
			q, dead := target[0], target[1]
			now := time.Now()
			f.bury(now, q, "a", "b", "c"+large, "d")
			f.one(now, fdbpq.Op{Kind: fdbpq.OpPush, Queue: dead, Priority: 3, Message: message("no dead letter")})
			f.one(now, fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Priority: 3, Message: message("first")})
			// One that is leased stays, and one that came back from a lease goes, its deliveries forgotten.
			leased := f.one(now, fdbpq.Op{Kind: fdbpq.OpLease, Queue: dead, Lease: time.Hour})
			tried := f.one(now, fdbpq.Op{Kind: fdbpq.OpLease, Queue: dead, Lease: time.Hour})
			f.one(now, fdbpq.Op{Kind: fdbpq.OpNak, Queue: dead, Token: tried.Lease.Token})
			later := now.Add(time.Minute)
			redrive := fdbpq.Op{Kind: fdbpq.OpRedrive, Queue: dead, Limit: 2, DropHeader: func(name string) bool { return name == "Drop" }}
			if n, _ := f.sweep(later, redrive); n != 2 {
				f.Errorf("redriven %d: want 2", n)
			}
			redrive.Limit = 0
			if n, _ := f.sweep(later, redrive); n != 1 {
				f.Errorf("redriven %d: want 1", n)
			}
			f.one(later, fdbpq.Op{Kind: fdbpq.OpNak, Queue: dead, Token: leased.Lease.Token})
			if n, _ := f.sweep(later, redrive); n != 1 {
				f.Errorf("redriven %d: want the one that was leased", n)
			}
			f.check()
			for _, want := range []string{"first", "b", "c", "d", "a"} {
				r := f.one(later, fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})
				if r.Err != nil {
					f.Fatal(r.Err)
				}
				i := r.Item
				if want == "first" {
					continue
				}
				if string(i.Value[:1]) != want || r.Lease.Deliveries != 1 || i.DeadLetter != nil || !slices.Equal(i.Headers["Name"], []string{want}) ||
					len(i.Headers) != 1 || i.PushedAt.Sub(later).Abs() > time.Millisecond || want == "c" && len(i.Value) != len(large)+1 {
					f.Errorf("%.20q, delivery %d, dead letter %v, headers %v, pushed %v: want %s", i.Value, r.Lease.Deliveries, i.DeadLetter, i.Headers, i.PushedAt, want)
				}
			}
			if r := f.one(later, fdbpq.Op{Kind: fdbpq.OpPop, Queue: dead}); string(r.Item.Value) != "no dead letter" {
				f.Errorf("%q, %v stayed", r.Item.Value, r.Err)
			}
			f.sweep(later, fdbpq.Op{Kind: fdbpq.OpPurge, Queue: q})
		}
		write(f, func(tx kv.Transaction) { tx.ClearRange(everything(f.priority + "-outside")) })
	})
}

// A redrive is a new push, so items expire as the settings of their queue say, and not as they did before.
func TestRedriveExpires(t *testing.T) {
	onEngines(t, func(f *fixture) {
		now := time.UnixMicro(time.Now().UnixMicro()).UTC()
		for _, target := range [][2]fdbpq.Target{{f.queue("q"), f.queue("q-dead")}, {f.fifoQueue("q"), f.fifoQueue("q-dead")}} {
			q, dead := target[0], target[1]
			for _, ttl := range []time.Duration{0, time.Minute} {
				f.bury(now, q, "a")
				f.configure(q, func(s *fdbpq.Settings) { s.TTL = ttl })
				later := now.Add(time.Hour)
				if n, _ := f.sweep(later, fdbpq.Op{Kind: fdbpq.OpRedrive, Queue: dead}); n != 1 {
					f.Errorf("redriven %d", n)
				}
				f.check()
				got := f.one(later, fdbpq.Op{Kind: fdbpq.OpPop, Queue: q}).Item
				if want := later.Add(ttl); got.Expires.IsZero() != (ttl == 0) || ttl > 0 && !got.Expires.Equal(want) {
					f.Errorf("with a ttl of %v it expires at %v, redriven at %v", ttl, got.Expires, later)
				}
				f.configure(q, func(s *fdbpq.Settings) { s.TTL = 0 })
			}
		}
	})
}

// Counts are exact and nothing happens twice, whatever is unknown of the outcome of commits.
func TestUnknownPurge(t *testing.T) {
	onScripts(t, func(f *unsure, q *fdbpq.PriorityQueue, fifo *fdbpq.Queue, ready func()) {
		ready()
		r := f.apply(fdbpq.Op{Kind: fdbpq.OpPurge, Queue: q}, fdbpq.Op{Kind: fdbpq.OpPurge, Queue: fifo}, opPush(fifo, 0, "new"))
		wantEqual(f.T, "purged", []int64{r[0].Progress.Done, r[1].Progress.Done}, []int64{5, 6})
		f.calm()
		wantEqual(f.T, "left", f.length(q)+f.length(fifo), 0)
	})
}

func TestUnknownRedrive(t *testing.T) {
	onScripts(t, func(f *unsure, q *fdbpq.PriorityQueue, fifo *fdbpq.Queue, ready func()) {
		f.bury(time.Now(), f.queue("b"), "x", "y", "z")
		ready()
		r := f.apply(fdbpq.Op{Kind: fdbpq.OpRedrive, Queue: f.queue("b-dead"), Limit: 2})
		wantEqual(f.T, "redriven", r[0].Progress.Done, 2)
		f.calm()
		wantList(f.T, "home", f.values(f.queue("b").PopMin), "x", "y")
		wantList(f.T, "dead", f.values(f.queue("b-dead").PopMin), "z")
	})
}

func TestUnknownRemoveAndMove(t *testing.T) {
	onScripts(t, func(f *unsure, q *fdbpq.PriorityQueue, fifo *fdbpq.Queue, ready func()) {
		ids := f.order(q)
		ready()
		r := f.apply(fdbpq.Op{Kind: fdbpq.OpRemove, Queue: q, ID: ids[1]}, fdbpq.Op{Kind: fdbpq.OpMove, Queue: q, ID: ids[0], Priority: 9})
		if r[0].Err != nil || r[1].Err != nil {
			f.Error(r[0].Err, r[1].Err)
		}
		f.calm()
		wantList(f.T, "left", f.values(q.PopMin), "2", "3", "4", "0")
	})
}

// Of a pop and a remove of the same item exactly one gets it; the same for a move, whose new id is
// the one that counts then.
func TestRemoveRacesPop(t *testing.T) {
	bothKinds(t, func(f *fixture, q fdbpq.Target) {
		const n = 60
		ids := map[fdbpq.ID]bool{}
		for range n {
			ids[f.apply(fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Message: fdbpq.Message{Headers: map[string][]string{"Name": {"value"}}}})[0].Item.ID] = true
		}
		var mu sync.Mutex
		got := map[fdbpq.ID]int{}
		run := func(next func(b *fdbpq.Batcher) (fdbpq.ID, bool, error)) func() {
			b := fdbpq.NewBatcher(f.db, f.Keyspace)
			return func() {
				for {
					id, more, err := next(b)
					if err == nil {
						mu.Lock()
						got[id]++
						mu.Unlock()
					} else if !errors.Is(err, fdbpq.ErrNotFound) && !errors.Is(err, fdbpq.ErrEmpty) {
						t := fmt.Sprint(err)
						mu.Lock()
						f.Errorf("%s", t)
						mu.Unlock()
					}
					if !more {
						return
					}
				}
			}
		}
		apply := func(b *fdbpq.Batcher, op fdbpq.Op) fdbpq.Result {
			results, err := b.Apply(context.WithoutCancel(f.ctx), []fdbpq.Op{op})
			if err != nil {
				return fdbpq.Result{Err: err}
			}
			return results[0]
		}
		todo := make(chan fdbpq.ID, n)
		for id := range ids {
			todo <- id
		}
		close(todo)
		pop := func(b *fdbpq.Batcher) (fdbpq.ID, bool, error) {
			r := apply(b, fdbpq.Op{Kind: fdbpq.OpPop, Queue: q})
			return r.Item.ID, r.Err == nil, r.Err
		}
		remove := func(b *fdbpq.Batcher) (fdbpq.ID, bool, error) {
			id, more := <-todo
			if !more {
				return id, false, fdbpq.ErrEmpty
			}
			return id, true, apply(b, fdbpq.Op{Kind: fdbpq.OpRemove, Queue: q, ID: id}).Err
		}
		var running sync.WaitGroup
		for _, work := range []func(){run(pop), run(remove), run(pop), run(remove)} {
			running.Go(work)
		}
		running.Wait()
		if len(got) != n {
			f.Errorf("%d items were popped or removed: want %d", len(got), n)
		}
		for id, times := range got {
			if times != 1 || !ids[id] {
				f.Errorf("%v was popped or removed %d times", id, times)
			}
		}
	})
}

// firstID is the id of the first item, read without conflict.
func firstID(q *fdbpq.PriorityQueue, tx kv.Transaction) fdbpq.ID {
	return must(q.PeekMin(tx.Snapshot())).ID
}

func removeStep(q *fdbpq.PriorityQueue) step {
	return func(tx kv.Transaction) error { return q.Remove(tx, firstID(q, tx)) }
}

func moveStep(q *fdbpq.PriorityQueue, priority int64) step {
	return func(tx kv.Transaction) error {
		_, err := q.Move(tx, firstID(q, tx), priority)
		return err
	}
}

func purgeStep(q *fdbpq.PriorityQueue) step {
	return func(tx kv.Transaction) error {
		_, err := q.Purge(tx, fdbpq.AnyState, fdbpq.Progress{})
		return err
	}
}
