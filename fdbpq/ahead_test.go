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
)

// ahead returns what is ahead of a queue.
func (f *fixture) ahead(q fdbpq.Target) fdbpq.Ahead {
	f.Helper()
	return must(kv.ReadTransact(f.ctx, f.db, func(r kv.Reader) ([]fdbpq.Ahead, error) {
		return fdbpq.ReadAhead(r, []fdbpq.Target{q})
	}))[0]
}

// allSwept is what sweeps of queues have done together.
type allSwept struct {
	expired int64
	msgIDs  int
	filled  []fdbpq.QueueName // sorted, each once
	results []fdbpq.Result    // of the last
}

// sweepDue sweeps queues until there is no more to do, in a process of its own, and returns the sums.
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
	slices.SortFunc(all.filled, func(a, b fdbpq.QueueName) int { return strings.Compare(a.Name, b.Name) })
	all.filled = slices.Compact(all.filled)
	all.expired = b.Removed().Expired
	return all
}

// sweeps is an OpSweep for each of the queues.
func sweeps(queues []fdbpq.Target) (ops []fdbpq.Op) {
	for _, q := range queues {
		ops = append(ops, op(fdbpq.Op{Kind: fdbpq.OpSweep}, q))
	}
	return ops
}

// A sweep does all that is due, in all queues, and nothing that is not.
func TestSweep(t *testing.T) {
	onEngines(t, func(f *fixture) {
		clock := f.setClock()
		full, dead, ids, later := f.queue("many"), f.queue("dead"), f.fifoQueue("ids"), f.queue("later")
		const n = 700 // more than a page of one transaction
		ops := many(n, func(i int) fdbpq.Op { return withTTL(opPush(full, 1, fmt.Sprint(i)), time.Second) })
		f.apply(append(ops, withDelay(opPush(full, 2, "delayed"), time.Second), opPush(full, 3, "stays"))...)
		f.configure(dead, func(s *fdbpq.Settings) { s.MaxDeliver = 1 })
		f.apply(opPush(dead, 1, "x"))
		f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: dead, Lease: time.Second})
		f.apply(fdbpq.Op{Kind: fdbpq.OpConfigure, Queue: ids, Configure: func(s *fdbpq.Settings) { s.DuplicateWindow = time.Second }})
		ops = nil
		for i := range n {
			ops = append(ops, opPushOnce(ids, fmt.Sprint(i), ""))
		}
		f.apply(ops...)
		f.apply(withTTL(opPush(later, 1, "x"), time.Hour))
		all := []fdbpq.Target{full, dead, ids, later}

		at := clock.now().Truncate(time.Microsecond)
		wantEqual(f.T, "ahead", fmt.Sprint(f.ahead(full).Due.Equal(at.Add(time.Second)), f.ahead(ids).Over.Equal(at.Add(time.Second)), f.ahead(later).Due.Equal(at.Add(time.Hour))), "true true true")
		before := f.sweepDue(clock.now(), all...)
		wantEqual(f.T, "early", fmt.Sprint(before.expired, before.msgIDs, before.filled), "0 0 []")
		clock.advance(time.Second)
		swept := f.sweepDue(clock.now(), all...)
		wantEqual(f.T, "swept", fmt.Sprint(swept.expired, swept.msgIDs, swept.filled), "700 700 [{false dead} {false dead-dead} {false many}]")
		for _, q := range all[:3] {
			wantEqual(f.T, "ahead", f.ahead(q), fdbpq.Ahead{})
		}
		again := f.sweepDue(clock.now(), all...)
		wantEqual(f.T, "again", fmt.Sprint(again.expired, again.msgIDs, again.filled), "0 0 []")
		f.check()
		infos := f.apply(op(opLen, full), op(opLen, dead), op(opLen, dead.DeadLetters()), op(opLen, ids), op(opLen, later))
		wantList(f.T, "left", summary([]fdbpq.Op{opLen, opLen, opLen, opLen, opLen}, infos), "2", "0", "1", "700", "1")
	})
}

// A batch says what falls due of what it has written.
func TestAheadOfABatch(t *testing.T) {
	f := onMem(t)
	clock := f.setClock()
	q, other := f.queue("jobs"), f.fifoQueue("ids")
	ahead := func(ops ...fdbpq.Op) string {
		t.Helper()
		p := f.batcher.Start(f.ctx, ops)
		must(p.Wait())
		var texts []string
		for _, a := range p.Ahead() {
			text := fmt.Sprint(a.Queue.FIFO, a.Queue.Name)
			if !a.Due.IsZero() {
				text += fmt.Sprint(" due ", a.Due.Sub(clock.now()))
			}
			if !a.Over.IsZero() {
				text += fmt.Sprint(" over ", a.Over.Sub(clock.now()))
			}
			texts = append(texts, text)
		}
		return fmt.Sprint(texts)
	}
	wantEqual(t, "plain", ahead(opPush(q, 1, "a"), opPush(other, 0, "b"), op(opPopMin, q)), "[]")
	wantEqual(t, "ids and times", ahead(withTTL(opPush(q, 1, "a"), time.Hour), withDelay(opPush(q, 1, "b"), time.Minute), opPushOnce(other, "id", "")),
		"[falsejobs due 1m0s trueids over 2m0s]")
	wantEqual(t, "a lease", ahead(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Second}), "[falsejobs due 1s]")
	f.configure(q, func(s *fdbpq.Settings) { s.Backoff = []time.Duration{10 * time.Second} })
	clock.advance(time.Second)
	wantEqual(t, "a backoff", ahead(op(opPopMin, q)), "[falsejobs due 10s]")
}

// What cannot be read stays, is reported, and keeps nothing else from being swept.
func TestSweepOfDamagedData(t *testing.T) {
	f := onMem(t)
	f.corrupt = true
	clock := f.setClock()
	bad, good := f.queue("bad"), f.queue("good")
	f.apply(withDelay(opPush(bad, 1, "x"), time.Second), withTTL(opPush(good, 1, "x"), time.Second))
	write(f, func(tx kv.Transaction) {
		for _, pair := range must(tx.GetRange(everythingIn(f, "bad", "h"), kv.RangeOptions{}).Get()) {
			tx.Set(pair.Key, []byte("nonsense"))
		}
	})
	clock.advance(time.Second)
	swept := f.sweepDue(clock.now(), bad, good)
	wantError(t, swept.results[0].Err, fdbpq.ErrCorrupt)
	wantError(t, swept.results[1].Err, nil)
	wantEqual(t, "expired", swept.expired, 1)
}

// Whoever removes expired items, and whatever the store says of the commits, each is counted once.
func TestExpiredAreCountedOnce(t *testing.T) {
	_, seed := newRandom(t)
	f := newUnsure(t, faultkv.Options{Seed: seed, MaxDelay: time.Microsecond, Rates: map[faultkv.Fault]float64{
		faultkv.Conflict: 0.1, faultkv.UnknownLost: 0.1, faultkv.UnknownMade: 0.1, faultkv.UnknownBeforeNext: 0.1, faultkv.UnknownDuringNext: 0.1,
	}})
	clock := f.setClock()
	queues := []fdbpq.Target{f.queue("a"), f.queue("b"), f.fifoQueue("c")}
	const n = 600
	for done := 0; done < n; done += 200 {
		f.apply(many(200, func(i int) fdbpq.Op {
			return withTTL(opPush(queues[i%len(queues)], int64(i%3), fmt.Sprint(i)), time.Second+time.Duration(i)*time.Millisecond)
		})...)
	}
	var popped, counted atomic.Int64
	f.run(seed, 4, func(w *worker) {
		context := w.givingUp()
		w.batcher.SetNow(clock.now)
		for range 60 {
			clock.advance(5 * time.Millisecond)
			ctx, cancel := context()
			q := queues[w.random.IntN(len(queues))]
			ops := [][]fdbpq.Op{{op(opPopMin, q), op(opLen, queues[w.random.IntN(len(queues))])}, {op(opLen, q)}, sweeps(queues)}[w.random.IntN(3)]
			results, err := w.batcher.Apply(ctx, ops)
			if err == nil && ops[0].Kind == fdbpq.OpPop && results[0].Err == nil {
				popped.Add(1)
			} else if err != nil && ctx.Err() == nil || err == nil && results[0].Err != nil && !errors.Is(results[0].Err, fdbpq.ErrEmpty) {
				t.Errorf("%d: %v, %v", ops[0].Kind, err, results)
			}
			cancel()
		}
		wantError(t, w.batcher.Settle(f.ctx), nil)
		counted.Add(w.batcher.Removed().Expired)
	})
	f.calm()
	clock.advance(time.Hour)
	all := f.sweepDue(clock.now(), queues...).expired + counted.Load() + f.batcher.Removed().Expired + popped.Load()
	wantEqual(t, "expired and popped", all, n)
	if popped.Load() == 0 || popped.Load() > 2*n/3 {
		t.Errorf("%d popped: the test tests little", popped.Load())
	}
}

// A dead letter of the largest size leaves no room for anything else, and is swept all the same, byte for byte.
func TestSweepOfALargeDeadLetter(t *testing.T) {
	onStores(t, func(f *fixture) {
		clock := f.setClock()
		large, ids := f.queue("large"), f.queue("ids")
		f.configure(large, func(s *fdbpq.Settings) { s.MaxDeliver = 1 })
		m := fdbpq.Message{Value: pattern(fdbpq.MaxMessageSize, 1)}
		f.apply(fdbpq.Op{Kind: fdbpq.OpPush, Queue: large, Message: m})
		f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: large, Lease: time.Minute})
		const n = 400
		ops := many(n, func(i int) fdbpq.Op { return opPushOnce(ids, fmt.Sprintf("%0512d", i), "") })
		f.apply(ops...)
		clock.advance(time.Hour)
		swept := f.sweepDue(clock.now(), large, ids)
		wantEqual(f.T, "swept", fmt.Sprint(swept.msgIDs, swept.filled), "400 [{false large} {false large-dead}]")
		f.wantDead(large.DeadLetters(), m, fdbpq.DeadLetter{Queue: "large", Reason: fdbpq.ReasonMaxDeliver, Deliveries: 1})
	})
}
