package fdbpq_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Items that have expired together take a few reads, however many they are: in the pops that meet them, in sweeps, and
// in peeks that step over them.
func TestReadsOfExpired(t *testing.T) {
	for _, test := range []struct {
		op    fdbpq.Op
		n     int // items that expire, in as many transactions as the operation takes
		reads int // of each of them
	}{
		{opPopMin, 2000, 40}, {opPopMax, 2000, 40}, {fdbpq.Op{Kind: fdbpq.OpSweep}, 1500, 10}, {opPeekMin, 2000, 40},
	} {
		f := newRoundsFixture(t, 1, false)
		clock := newClock(time.Now())
		f.batcher.SetNow(clock.now)
		for done := 0; done < test.n; done += 500 {
			f.batch(many(500, func(i int) fdbpq.Op { return withTTL(opPush(nil, int64(i/300), "expires"), time.Second) }))
		}
		clock.advance(time.Second)
		f.store.Take()
		left := f.batch([]fdbpq.Op{test.op})[0].Err
		for _, cost := range f.store.Take() {
			if cost.Reads > test.reads {
				t.Errorf("%v took %d reads in %d rounds: want at most %d reads", test.op.Kind, cost.Reads, cost.Rounds, test.reads)
			}
		}
		if left != nil && !errors.Is(left, fdbpq.ErrEmpty) {
			t.Errorf("%v: %v", test.op.Kind, left)
		}
	}
}

// many returns n operations.
func many(n int, op func(i int) fdbpq.Op) []fdbpq.Op {
	list := make([]fdbpq.Op, n)
	for i := range list {
		list[i] = op(i)
	}
	return list
}

// Expired items are removed among items in all other states, whose keys lie between theirs, and nothing else is.
func TestExpiredAmongOthers(t *testing.T) {
	random, _ := newRandom(t)
	removals := map[string]fdbpq.Op{"pop": opPopMin, "pop.max": opPopMax, "sweep": {Kind: fdbpq.OpSweep}, "len": opLen}
	onEngines(t, func(f *fixture) {
		for name, removal := range removals {
			clock := newClock(time.Now())
			f.batcher.SetNow(clock.now)
			q := f.queue(strings.ReplaceAll(name, ".", "-"))
			if random.IntN(2) == 0 {
				f.configure(q, func(s *fdbpq.Settings) { s.MaxBytes = 1 << 30 })
			}

			// The third of them expires, in stretches.
			stretch, ttl := 0, time.Duration(0)
			kept := map[fdbpq.ID]string{}
			expires := map[fdbpq.ID]bool{}
			var pushes []fdbpq.Op
			for i := range 400 {
				if stretch--; stretch <= 0 {
					stretch, ttl = 1+random.IntN(40), []time.Duration{0, 2 * time.Second, 10 * time.Hour}[random.IntN(3)]
				}
				push := opPush(q, int64(i/150), fmt.Sprint(i))
				push.Message.Headers, push.TTL = map[string][]string{"N": {fmt.Sprint(i)}}, ttl
				switch random.IntN(30) {
				case 0:
					push.Message.Value = []byte(strings.Repeat(fmt.Sprint(i%10), 100_000))
				case 1:
					push.Message.Unique = fmt.Sprint("unique", i)
				case 2:
					push.Delay = time.Hour
				}
				pushes = append(pushes, push)
			}
			for i, r := range f.apply(pushes...) {
				wantError(f.T, r.Err, nil)
				if expires[r.Item.ID] = pushes[i].TTL == 2*time.Second; !expires[r.Item.ID] {
					kept[r.Item.ID] = string(pushes[i].Message.Value)
				}
			}

			// A staged pop has some, others are leased, and others have been.
			f.leave(q, clock.now(), fdbpq.Front, fdbpq.Back, fdbpq.Back)
			for range 100 {
				r := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Hour, End: fdbpq.End(random.IntN(2))})[0]
				if random.IntN(3) == 0 {
					expires[r.Item.ID], kept[r.Item.ID] = false, string(r.Item.Value)
					continue
				}
				f.apply(fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: r.Lease.Token, Delay: time.Duration(random.IntN(2)) * time.Hour})
			}

			clock.advance(2 * time.Second)
			removal.Queue = q
			for range 20 {
				if removal.Kind != fdbpq.OpPop {
					f.apply(removal)
					continue
				}
				if r := f.apply(removal)[0]; r.Err == nil {
					if value, ok := kept[r.Item.ID]; !ok || value != string(r.Item.Value) {
						f.Errorf("%s: popped %.20q", name, r.Item.Value)
					}
					delete(kept, r.Item.ID)
				}
				f.check()
			}
			f.check()

			clock.advance(answerLife + time.Second) // what the staged pop has comes back, or expires
			f.apply(op(opLen, q))
			f.check()
			for id, value := range kept {
				r := f.apply(fdbpq.Op{Kind: fdbpq.OpGet, Queue: q, ID: id})[0]
				if r.Err != nil || string(r.Item.Value) != value || len(r.Item.Headers["N"]) != 1 {
					f.Errorf("%s: %v has %.20q, headers %v, error %v: want %.20q", name, id, r.Item.Value, r.Item.Headers, r.Err, value)
				}
			}
			for id, gone := range expires {
				if r := f.apply(fdbpq.Op{Kind: fdbpq.OpGet, Queue: q, ID: id})[0]; gone && !errors.Is(r.Err, fdbpq.ErrNotFound) {
					f.Errorf("%s: expired: %v", name, r.Err)
				}
			}
			write(f, func(tx kv.Transaction) { tx.ClearRange(everything(f.priority)) })
		}
	})
}
