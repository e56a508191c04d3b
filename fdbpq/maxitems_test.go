package fdbpq_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
)

func maxItems(n int64) func(*fdbpq.Settings) {
	return func(s *fdbpq.Settings) { s.MaxItems = n }
}

// What is due and cannot be read does not keep pushes from an answer.
func TestMaxItemsBesideCorruptItem(t *testing.T) {
	f := onMem(t)
	f.corrupt = true
	q := f.queue("jobs")
	f.configure(q, maxItems(1))
	clock := newClock(time.Now())
	f.batcher.SetNow(clock.now)
	push := opPush(q, 1, "a")
	f.apply(push)
	f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Second})
	for _, pair := range f.stored(f.priority) {
		if strings.Contains(string(pair.Key), "\x02h\x00") && len(pair.Value) > 0 {
			write(f, func(tx kv.Transaction) { tx.Set(pair.Key, []byte("x")) })
		}
	}
	clock.advance(time.Hour)
	wantError(t, f.apply(push)[0].Err, fdbpq.ErrFull)
}

// A queue without a limit is not read more than its settings, and its pushes do not conflict; those to
// a queue with one conflict with what changes the number of items.
func TestMaxItemsConflicts(t *testing.T) {
	for _, limit := range []int64{0, 1000} {
		f := onMem(t)
		q := f.queue("jobs")
		f.configure(q, func(s *fdbpq.Settings) { s.MaxItems, s.AckWait = limit, time.Minute })
		f.push(q, 1, "a")
		f.wantConflict(limit > 0, func() { f.push(q, 1, "c") }, opPush(q, 1, "b"))
	}
}

// Retiring a queue whose items a program has removed with the recipe does not conflict with a push.
func TestRetireBesidePush(t *testing.T) {
	f := onMem(t)
	q := f.queue("jobs")
	f.push(q, 1, "a")
	write(f, func(tx kv.Transaction) { q.ClearItems(tx) })
	mark := fdbpq.NewMark()
	f.retire("empty", []fdbpq.Target{q}, mark, "", fdbpq.Marked)
	f.wantConflict(false, func() {
		f.retire("again", []fdbpq.Target{q}, fdbpq.NewMark(), mark, fdbpq.NotListed)
	}, opPush(q, 1, "b"))
}

// Many push, pop, lease and acknowledge at the same time: there are never more items than the limit, as
// the store has it after each push, and in the end exactly that many fit.
func TestMaxItemsRaces(t *testing.T) {
	onEngines(t, func(f *fixture) {
		for _, set := range []func(*fdbpq.Settings){
			maxItems(7), func(s *fdbpq.Settings) { s.MaxItems, s.MaxBytes = 0, 7*4 }, discardOld(7, 0), discardOld(0, 7*4),
		} {
			f.raceLimit(set)
		}
	})
}

// raceLimit does that with a limit of 7 items of 4 bytes.
func (f *fixture) raceLimit(set func(*fdbpq.Settings)) {
	q := f.queue("jobs")
	const limit, workers, each = 7, 4, 15
	old := f.configure(q, set).Discard == fdbpq.DiscardOld
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			b := fdbpq.NewBatcher(f.db, f.Keyspace)
			var tokens []fdbpq.Token
			for n := range each {
				ops := []fdbpq.Op{opPush(q, int64(n%3), fmt.Sprintf("%d-%02d", w, n))}
				switch n % 4 {
				case 1:
					ops = append(ops, fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Hour})
				case 2:
					ops = append(ops, op(opPopMin, q))
				case 3:
					if len(tokens) > 0 {
						ops = append(ops, fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: tokens[0]})
						tokens = tokens[1:]
					}
				}
				ops = append(ops, fdbpq.Op{Kind: fdbpq.OpInfo, Queue: q})
				results, err := b.Apply(f.ctx, ops)
				if err != nil {
					f.Error(err)
					return
				}
				for i := range results {
					if results[i].Err == nil && ops[i].Kind == fdbpq.OpLease {
						tokens = append(tokens, results[i].Lease.Token)
					}
				}
				if i := results[len(results)-1].Info; i.Ready+i.Leased+i.Delayed > limit {
					f.Errorf("there are %+v: want at most %d", i, limit)
				}
			}
		})
	}
	wg.Wait()
	info := f.infoOf(q, 0)
	for n := info.Ready + info.Leased; n < limit; n++ {
		wantError(f.T, f.apply(opPush(q, 1, "fill"))[0].Err, nil)
	}
	wantError(f.T, f.apply(opPush(q, 9, "full"))[0].Err, fdbpq.ErrFull)
	if old && info.Leased < limit {
		wantError(f.T, f.apply(opPush(q, -1, "more"))[0].Err, nil)
	}
	f.check()
	f.apply(fdbpq.Op{Kind: fdbpq.OpPurge, Queue: q})
}

// Whatever becomes of commits, there are never more items than the limit, and a push that was done
// counts.
func TestMaxItemsWithFaults(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	f, faults := onFaults(t, faultkv.Options{})
	q := f.queue("jobs")
	f.configure(q, maxItems(20))
	kinds := append([]faultkv.Fault{faultkv.Conflict}, unanswered...)
	for range 60 {
		for range random.IntN(3) {
			faults.Next(kinds[random.IntN(len(kinds))])
		}
		results, err := f.batcher.Apply(f.ctx, []fdbpq.Op{opPush(q, 1, "a"), opPush(q, 1, "b")})
		if err != nil && !kv.MaybeCommitted(err) {
			t.Fatal(err)
		}
		full := err == nil && errors.Is(results[1].Err, fdbpq.ErrFull)
		if n := f.length(q); n > 20 || full && n < 20 {
			t.Fatalf("%d items; refused: %v", n, full)
		}
		if random.IntN(4) == 0 {
			if _, err := f.take(q.PopMin); err != nil && !errors.Is(err, fdbpq.ErrEmpty) && !kv.MaybeCommitted(err) {
				t.Fatal(err)
			}
		}
	}
}
