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
)

// withDelay is a push with a delay.
func withDelay(push fdbpq.Op, delay time.Duration) fdbpq.Op {
	push.Delay = delay
	return push
}

// Delays at their bounds hold an item back, and times in the past do not.
func TestDelayBounds(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		now := time.Now().Truncate(time.Microsecond) // a nanosecond later is none later
		f.batcher.SetNow(func() time.Time { return now })
		past, future := opPush(q, 1, "past"), opPush(q, 3, "future")
		past.At = time.Unix(-1<<40, 0)
		future.At = time.Date(2199, 12, 31, 23, 59, 59, 999_999_999, time.UTC)
		results := f.apply(past, withDelay(opPush(q, 1, "ns"), 1),
			withDelay(opPush(q, 2, "long"), fdbpq.MaxDelay), future)

		for i, r := range results {
			wantError(f.T, r.Err, nil)
			wantEqual(f.T, fmt.Sprint("delayed, push ", i), !r.NextDue.IsZero(), i > 1)
		}

		now = now.Add(fdbpq.MaxDelay)
		wantEqual(f.T, "ready after ten years", f.apply(op(opLen, q))[0].Len, 3)
	})
}

// withTTL is a push of an item that expires.
func withTTL(push fdbpq.Op, ttl time.Duration) fdbpq.Op {
	push.TTL = ttl
	return push
}

// An item is never both popped and expired, even if a clock is ahead.
func TestExpiryConflicts(t *testing.T) {
	f := onMem(t)
	q := f.queue("jobs")
	f.apply(withTTL(opPush(q, 1, "x"), time.Hour))

	tx := must(f.db.Begin(f.ctx, kv.BeginOptions{}))
	ahead := time.Now().Add(time.Hour)
	wantError(t, must(fdbpq.Apply(tx, []fdbpq.Op{op(opPopMin, q)}, ahead))[0].Err, fdbpq.ErrEmpty)
	wantError(t, f.apply(op(opPopMin, q))[0].Err, nil)
	wantError(t, errOf(tx.Commit().Get()), kv.ErrConflict)
}

// errOf is the error of a function with another result.
func errOf[V any](_ V, err error) error { return err }

// An entry of the time index whose item another program has taken is removed when it is due.
func TestExpiryOfATakenItem(t *testing.T) {
	f := onMem(t)
	f.corrupt = true // that program leaves the rest behind
	clock := f.setClock()
	q := f.queue("jobs")
	const n, taken = 40, 10
	f.apply(many(n, func(int) fdbpq.Op { return withTTL(opPush(q, 1, "x"), time.Second) })...)

	write(f, func(tx kv.Transaction) {
		items := tx.GetRange(everythingIn(f, "jobs", "i"), kv.RangeOptions{})
		for i, pair := range must(items.Get()) {
			if i%(n/taken) == 0 {
				tx.Clear(pair.Key)
			}
		}
	})

	clock.advance(time.Second)
	wantError(t, f.apply(op(opPopMin, q))[0].Err, fdbpq.ErrEmpty)
	wantEqual(t, "expired", f.batcher.SideEffects().Expired, n-taken)

	for _, pair := range f.stored(f.priority) { // "t" is the kind of its entries
		if strings.Contains(string(pair.Key), "\x02t\x00") {
			t.Errorf("left in the time index: %x", pair.Key)
		}
	}
}

// An item that expires before its push commits leaves once, even if pops from both ends meet it.
func TestExpiredAtBothEnds(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		push := opPush(q, 1, "x")
		push.Message.Expires = time.Now().Add(-time.Minute)

		results := f.apply(push, op(opPopMin, q), op(opPopMax, q), op(opLen, q))
		wantError(f.T, results[0].Err, nil)
		wantError(f.T, results[1].Err, fdbpq.ErrEmpty)
		wantError(f.T, results[2].Err, fdbpq.ErrEmpty)
		wantEqual(f.T, "expired", f.batcher.SideEffects().Expired, 1)
		wantEqual(f.T, "length", f.apply(op(opLen, q))[0].Len, 0)
	})
}

// Items that have expired together take a few reads, however many they are.
func TestReadsOfExpired(t *testing.T) {
	for _, test := range []struct {
		op    fdbpq.Op
		n     int // items that expire, in as many transactions as the operation takes
		reads int // at most, of each of these transactions
	}{
		{opPopMin, 2000, 40},
		{opPopMax, 2000, 40},
		{fdbpq.Op{Kind: fdbpq.OpSweep}, 1500, 10},
		{opPeekMin, 2000, 40},
	} {
		f := newRoundsFixture(t, 1, false)
		clock := f.setClock()

		for done := 0; done < test.n; done += 500 {
			f.batch(many(500, func(i int) fdbpq.Op {
				return withTTL(opPush(nil, int64(i/300), "expires"), time.Second)
			}))
		}

		clock.advance(time.Second)
		f.store.Take()
		left := f.batch([]fdbpq.Op{test.op})[0].Err

		for _, cost := range f.store.Take() {
			if cost.Reads > test.reads {
				t.Errorf("%v took %d reads in %d rounds: want at most %d reads",
					test.op.Kind, cost.Reads, cost.Rounds, test.reads)
			}
		}
		if left != nil && !errors.Is(left, fdbpq.ErrEmpty) {
			t.Errorf("%v: %v", test.op.Kind, left)
		}
	}
}

// many returns n operations, or other things.
func many[V any](n int, make func(i int) V) (list []V) {
	for i := range n {
		list = append(list, make(i))
	}
	return list
}

// ahead returns the Upcoming of a queue.
func (f *fixture) ahead(q fdbpq.Target) fdbpq.Upcoming {
	f.Helper()
	return f.aheadAt(time.Now(), q)
}

// aheadAt is ahead by another clock.
func (f *fixture) aheadAt(now time.Time, q fdbpq.Target) fdbpq.Upcoming {
	f.Helper()
	return must(kv.ReadTransact(f.ctx, f.db, func(r kv.Reader) ([]fdbpq.Upcoming, error) {
		return fdbpq.ReadUpcoming(r, []fdbpq.Target{q}, now)
	}))[0]
}

// allSwept is what sweeps of queues have done together.
type allSwept struct {
	expired int64
	msgIDs  int
	filled  []fdbpq.QueueName // sorted, each once
	results []fdbpq.Result    // of the last
}

// sweepDue sweeps queues until there is no more to do, in a process of its own, and returns the
// sums.
func (f *fixture) sweepDue(now time.Time, queues ...fdbpq.Target) (all allSwept) {
	f.Helper()
	b := fdbpq.NewBatcher(f.db, f.Keyspace)
	b.SetNow(func() time.Time { return now })

	for more := true; more; {
		p := b.Start(f.ctx, sweeps(queues))
		results := must(p.Wait())
		more = slices.ContainsFunc(results, func(r fdbpq.Result) bool { return r.Swept.More })

		for i := range results {
			all.msgIDs += results[i].Swept.MsgIDs
		}

		all.filled, all.results = append(all.filled, p.Filled()...), results
	}

	byName := func(a, b fdbpq.QueueName) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(all.filled, byName)
	all.filled = slices.Compact(all.filled)
	all.expired = b.SideEffects().Expired

	return all
}

// sweeps is an OpSweep for each of the queues.
func sweeps(queues []fdbpq.Target) (ops []fdbpq.Op) {
	for _, q := range queues {
		ops = append(ops, op(fdbpq.Op{Kind: fdbpq.OpSweep}, q))
	}
	return ops
}

// A sweep does all that is due, in all queues, and nothing else: it removes expired items and
// message ids, lets delayed items come back, and buries those whose deliveries are used up.
func TestSweep(t *testing.T) {
	onEngines(t, func(f *fixture) {
		clock := f.setClock()
		full, dead := f.queue("many"), f.queue("dead")
		ids, later := f.fifoQueue("ids"), f.queue("later")
		const n = 700 // more than a page of one transaction

		ops := many(n, func(i int) fdbpq.Op {
			return withTTL(opPush(full, 1, fmt.Sprint(i)), time.Second)
		})
		ops = append(ops, withDelay(opPush(full, 2, "delayed"), time.Second))
		f.apply(append(ops, opPush(full, 3, "stays"))...)

		f.configure(dead, func(s *fdbpq.Settings) { s.MaxDeliver = 1 })
		f.apply(opPush(dead, 1, "x"))
		f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: dead, Lease: time.Second})

		f.configure(ids, func(s *fdbpq.Settings) { s.DuplicateWindow = time.Second })
		ops = nil
		for i := range n {
			ops = append(ops, opPushOnce(ids, fmt.Sprint(i), ""))
		}

		f.apply(ops...)
		f.apply(withTTL(opPush(later, 1, "x"), time.Hour))
		all := []fdbpq.Target{full, dead, ids, later}

		at := clock.now().Truncate(time.Microsecond)
		// Nothing is due for a second.
		wantEqual(f.T, "ahead", fmt.Sprint(
			f.ahead(full).Due.Equal(at.Add(time.Second)),
			f.ahead(ids).Over.Equal(at.Add(time.Second)),
			f.ahead(later).Due.Equal(at.Add(time.Hour)),
		), "true true true")

		before := f.sweepDue(clock.now(), all...)
		wantEqual(f.T, "early", fmt.Sprint(before.expired, before.msgIDs, before.filled), "0 0 []")

		clock.advance(time.Second)
		swept := f.sweepDue(clock.now(), all...)
		wantEqual(f.T, "swept", fmt.Sprint(swept.expired, swept.msgIDs, swept.filled),
			fmt.Sprintf("%d %d [{false dead} {false dead-dead} {false many}]", n, n))
		for _, q := range all[:3] {
			wantEqual(f.T, "ahead", f.ahead(q), fdbpq.Upcoming{})
		}

		again := f.sweepDue(clock.now(), all...)
		wantEqual(f.T, "again", fmt.Sprint(again.expired, again.msgIDs, again.filled), "0 0 []")
		f.check()

		infos := f.apply(op(opLen, full), op(opLen, dead), op(opLen, dead.DeadLetters()),
			op(opLen, ids), op(opLen, later))
		lens := slices.Repeat([]fdbpq.Op{opLen}, len(infos))
		// The delayed item and the one that stays, the dead letter, and items without their ids.
		wantList(f.T, "left", summary(lens, infos), "2", "0", "1", fmt.Sprint(n), "1")
	})
}

// A batch says when what it has written falls due, and which queues have got or lost a source.
func TestAheadOfABatch(t *testing.T) {
	f := onMem(t)
	clock := f.setClock()
	q, other := f.queue("jobs"), f.fifoQueue("ids")

	ahead := func(ops ...fdbpq.Op) string {
		t.Helper()
		p := f.batcher.Start(f.ctx, ops)
		must(p.Wait())
		var texts []string

		for _, a := range p.Upcoming() {
			text := fmt.Sprint(a.Queue.FIFO, a.Queue.Name)
			if !a.Due.IsZero() {
				text += fmt.Sprint(" due ", a.Due.Sub(clock.now()))
			}

			if !a.Over.IsZero() {
				text += fmt.Sprint(" over ", a.Over.Sub(clock.now()))
			}

			if a.Source {
				text += " source"
			}

			texts = append(texts, text)
		}

		return fmt.Sprint(texts)
	}
	wantEqual(t, "plain", ahead(opPush(q, 1, "a"), opPush(other, 0, "b"), op(opPopMin, q)), "[]")

	expires := withTTL(opPush(q, 1, "a"), time.Hour)
	late := withDelay(opPush(q, 1, "b"), time.Minute)
	wantEqual(t, "ids and times", ahead(expires, late, opPushOnce(other, "id", "")),
		"[falsejobs due 1m0s trueids over 2m0s]")

	lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Second}
	wantEqual(t, "a lease", ahead(lease), "[falsejobs due 1s]")

	f.configure(q, func(s *fdbpq.Settings) { s.Backoff = []time.Duration{10 * time.Second} })
	clock.advance(time.Second)
	wantEqual(t, "a backoff", ahead(op(opPopMin, q)), "[falsejobs due 10s]")

	set := func(source string) fdbpq.Op {
		change := func(s *fdbpq.Settings) { s.Source = source }
		return fdbpq.Op{Kind: fdbpq.OpConfigure, Queue: q, Configure: change}
	}
	for range 2 { // the second time as a client does that does not know the outcome
		wantEqual(t, "a source", ahead(set(`{"stream":"S"}`)), "[falsejobs source]")
	}
	wantEqual(t, "removed and once more", ahead(set(""), set("")), "[falsejobs source]")
	wantEqual(t, "no source", ahead(set("")), "[]")
}

// What cannot be read stays, is reported, and keeps nothing else from being swept.
func TestSweepOfDamagedData(t *testing.T) {
	f := onMem(t)
	f.corrupt = true
	clock := f.setClock()
	bad, good := f.queue("bad"), f.queue("good")
	f.apply(withDelay(opPush(bad, 1, "x"), time.Second), withTTL(opPush(good, 1, "x"), time.Second))

	write(f, func(tx kv.Transaction) {
		held := tx.GetRange(everythingIn(f, "bad", "h"), kv.RangeOptions{})
		for _, pair := range must(held.Get()) {
			tx.Set(pair.Key, []byte("nonsense"))
		}
	})

	clock.advance(time.Second)
	swept := f.sweepDue(clock.now(), bad, good)
	wantError(t, swept.results[0].Err, fdbpq.ErrCorrupt)
	wantError(t, swept.results[1].Err, nil)
	wantEqual(t, "expired", swept.expired, 1)
}

// Each expired item is counted once, whichever operation removes it and whatever becomes of the
// commit.
func TestExpiredAreCountedOnce(t *testing.T) {
	_, seed := newRandom(t)
	f := newUnsure(t,
		faultkv.Options{Seed: seed, MaxDelay: time.Microsecond, Rates: commitFaults})
	clock := f.setClock()
	queues := []fdbpq.Target{f.queue("a"), f.queue("b"), f.fifoQueue("c")}
	const n = 600

	for done := 0; done < n; done += 200 {
		f.apply(many(200, func(i int) fdbpq.Op {
			return withTTL(opPush(queues[i%len(queues)], int64(i%3), fmt.Sprint(i)),
				time.Second+time.Duration(i)*time.Millisecond)
		})...)
	}

	// Workers pop, sweep and look, with contexts that end, while the items expire one by one.
	var popped, counted atomic.Int64
	f.run(seed, 4, func(w *worker) {
		context := w.givingUp()
		w.batcher.SetNow(clock.now)

		for range 60 {
			clock.advance(5 * time.Millisecond)
			ctx, cancel := context()
			q := queues[w.random.IntN(len(queues))]

			ops := [][]fdbpq.Op{
				{op(opPopMin, q), op(opLen, queues[w.random.IntN(len(queues))])},
				{op(opLen, q)},
				sweeps(queues),
			}[w.random.IntN(3)]

			results, err := w.batcher.Apply(ctx, ops)
			if err == nil && ops[0].Kind == fdbpq.OpPop && results[0].Err == nil {
				popped.Add(1)
			} else if err != nil && ctx.Err() == nil ||
				err == nil && results[0].Err != nil && !errors.Is(results[0].Err, fdbpq.ErrEmpty) {
				t.Errorf("%d: %v, %v", ops[0].Kind, err, results)
			}

			cancel()
		}
		wantError(t, w.batcher.Settle(f.ctx), nil)

		counted.Add(w.batcher.SideEffects().Expired)
	})

	f.calm()
	clock.advance(time.Hour)

	all := f.sweepDue(clock.now(), queues...).expired + counted.Load() +
		f.batcher.SideEffects().Expired + popped.Load()
	wantEqual(t, "expired and popped", all, n)
	if popped.Load() == 0 || popped.Load() > 2*n/3 {
		t.Errorf("%d popped: the test tests little", popped.Load())
	}
}

// A dead letter of the largest size is swept byte for byte, though it leaves no room for anything
// else.
func TestSweepOfALargeDeadLetter(t *testing.T) {
	onStores(t, func(f *fixture) {
		clock := f.setClock()
		large, ids := f.queue("large"), f.queue("ids")
		f.configure(large, func(s *fdbpq.Settings) { s.MaxDeliver = 1 })
		m := fdbpq.Message{Value: pattern(fdbpq.MaxMessageSize, 1)}
		f.apply(fdbpq.Op{Kind: fdbpq.OpPush, Queue: large, Message: m})
		f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: large, Lease: time.Minute})
		f.apply(many(400, func(i int) fdbpq.Op {
			return opPushOnce(ids, fmt.Sprintf("%0512d", i), "")
		})...)
		clock.advance(time.Hour)

		swept := f.sweepDue(clock.now(), large, ids)
		wantEqual(f.T, "swept", fmt.Sprint(swept.msgIDs, swept.filled),
			"400 [{false large} {false large-dead}]")

		want := fdbpq.DeadLetter{Queue: "large", Reason: fdbpq.ReasonMaxDeliver, Deliveries: 1}
		f.wantDead(large.DeadLetters(), m, want)
	})
}

// Some expired items that take the most room are removed by the transaction of a pop or a sweep,
// even beside the largest push.
func TestRoomOfExpired(t *testing.T) {
	onEngines(t, func(f *fixture) {
		clock := f.setClock()
		for name, removal := range map[string]fdbpq.Op{
			"pop":   opPopMin,
			"sweep": {Kind: fdbpq.OpSweep},
		} {
			// Zeros take two bytes each in keys.
			q := f.queue(name + strings.Repeat("\x00", 100))
			f.configure(q, func(s *fdbpq.Settings) { s.MaxBytes = 1 << 40 })

			for n := range 3 {
				f.apply(many(400, func(i int) fdbpq.Op {
					push := withTTL(opPush(q, int64(n*400+i)<<40, "expires"), time.Second)
					push.Message.Unique = fmt.Sprint(n, i, strings.Repeat("\x00", 500))
					return push
				})...)
			}

			clock.advance(time.Second)

			for _, beside := range []fdbpq.Op{
				op(opLen, q), opPush(q, 1<<60, strings.Repeat("x", fdbpq.MaxMessageSize)),
			} {
				before := f.batcher.SideEffects().Expired
				for _, r := range f.apply(beside, op(removal, q)) {
					if r.Err != nil && !errors.Is(r.Err, fdbpq.ErrNoRoom) {
						f.Error(r.Err)
					}
				}

				if gone := f.batcher.SideEffects().Expired - before; gone < 20 {
					f.Errorf("%s beside %v: %d items have gone", name, beside.Kind, gone)
				}
			}
		}
	})
}

// A transaction reads a bounded number of bytes of expired items, and removes some of them, so the
// next ones go on, wherever the bytes are, and whoever meets the items: pops or sweeps.
func TestLargeExpired(t *testing.T) {
	const size = 89_000
	value := fdbpq.Message{Value: make([]byte, size)}
	headers := fdbpq.Message{Headers: map[string][]string{"Large": {strings.Repeat("x", size)}}}

	for _, test := range []struct {
		name    string
		message fdbpq.Message
		removal fdbpq.Op
	}{
		{"values, popped", value, opPopMin},
		{"values, swept", value, fdbpq.Op{Kind: fdbpq.OpSweep}},
		{"headers, popped", headers, opPopMin},
		{"headers, swept", headers, fdbpq.Op{Kind: fdbpq.OpSweep}},
	} {
		t.Run(test.name, func(t *testing.T) {
			store := newSizeStore()
			f := newFixture(t, store, fdbpq.RawValues)
			clock := f.setClock()
			q := f.queue("large")
			f.configure(q, func(s *fdbpq.Settings) { s.MaxBytes = 1 << 40 })

			const batches, perBatch = 6, 50 // 50 items fit into a transaction
			for range batches {
				f.apply(many(perBatch, func(i int) fdbpq.Op {
					push := withTTL(opPush(q, int64(i%3), ""), time.Second)
					push.Message = test.message
					return push
				})...)
			}
			for range 50 {
				f.push(q, 1, "live")
			}
			clock.advance(time.Second)

			for gone := int64(0); gone < batches*perBatch; {
				store.bytes = 0
				r := f.apply(op(test.removal, q))[0]
				if r.Err != nil && !errors.Is(r.Err, fdbpq.ErrNoRoom) {
					t.Fatal(r.Err)
				}

				if store.bytes > 32<<20 {
					t.Errorf("a transaction read %d bytes: want at most 32 MiB", store.bytes)
				}
				before := gone
				if gone = f.batcher.SideEffects().Expired; gone == before {
					t.Fatalf("a transaction has removed nothing after %d items", gone)
				}
			}
			f.check()
		})
	}
}

// A peek behind expired items that damage keeps from being removed fails with ErrCorrupt, which is
// not to be retried.
func TestPeekBehindExpiredAndDamage(t *testing.T) {
	f := onMem(t)
	clock := f.setClock()
	q := f.queue("jobs")

	for range 3 {
		f.apply(many(1000, func(int) fdbpq.Op {
			return withTTL(opPush(q, 1, "expires"), time.Second)
		})...)
	}

	write(f, func(tx kv.Transaction) {
		for i := range duePage {
			tx.Set(tuple.Tuple{f.priority, "jobs", "t", int64(i), "unknown"}.Pack(), nil)
		}
	})

	clock.advance(time.Second)
	r := f.apply(op(opPeekMin, q))[0]
	if !errors.Is(r.Err, fdbpq.ErrCorrupt) || errors.Is(r.Err, fdbpq.ErrNoRoom) {
		t.Error(r.Err)
	}

	write(f, func(tx kv.Transaction) { tx.ClearRange(everything(f.priority)) })
}
