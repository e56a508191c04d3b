package fdbpq_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// opSetConsumer replaces the record of a consumer; "" removes it.
func opSetConsumer(q fdbpq.Target, name, value string) fdbpq.Op {
	return fdbpq.Op{Kind: fdbpq.OpSetConsumer, Queue: q, Record: name, Change: func([]byte, time.Time) ([]byte, error) { return []byte(value), nil }}
}

// setConsumer is opSetConsumer, which must succeed.
func (f *fixture) setConsumer(q fdbpq.Target, name, value string) {
	f.Helper()
	wantError(f.T, f.apply(opSetConsumer(q, name, value))[0].Err, nil)
}

// wantConsumers checks the records of a queue, given as "name=value".
func (f *fixture) wantConsumers(what string, q fdbpq.Target, want ...string) {
	f.Helper()
	r := f.apply(fdbpq.Op{Kind: fdbpq.OpConsumers, Queue: q})[0]
	wantError(f.T, r.Err, nil)
	wantList(f.T, what, texts(r.Records), want...)
}

func texts(consumers []fdbpq.Record) (list []string) {
	for _, c := range consumers {
		list = append(list, c.Name+"="+string(c.Value))
	}
	return list
}

// Records are created, changed and removed by what they are, and kept in the order of their names.
func TestConsumers(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q, fifo := f.queue("jobs"), f.fifoQueue("jobs")
		f.wantConsumers("at first", q)
		f.setConsumer(q, "b", "1")
		f.setConsumer(q, "ä", "2")
		f.setConsumer(q, "a", "3")
		f.setConsumer(fifo, "a", "other")
		f.wantStored(tuple.Tuple{f.priority, "jobs", "p", "b"}.Pack(), []byte("1"))
		f.wantConsumers("set", q, "a=3", "b=1", "ä=2")
		f.wantListed("with consumers", "jobs")
		f.check()

		// Operations of a batch see those before them.
		list, missing := fdbpq.Op{Kind: fdbpq.OpConsumers, Queue: q}, errors.New("missing")
		longer := func(name string) fdbpq.Op {
			return fdbpq.Op{Kind: fdbpq.OpSetConsumer, Queue: q, Record: name, Change: func(old []byte, _ time.Time) ([]byte, error) {
				if old == nil {
					return nil, missing
				}
				return append(slices.Clone(old), "+"...), nil
			}}
		}
		results := f.apply(list, longer("b"), longer("c"), opSetConsumer(q, "c", "4"), longer("c"), list, opSetConsumer(q, "a", ""),
			opSetConsumer(q, "ä", ""), list, longer("a"))
		for i := range results {
			want := error(nil)
			if i == 2 || i == 9 {
				want = missing
			}
			wantError(f.T, results[i].Err, want)
		}
		wantList(f.T, "first", texts(results[0].Records), "a=3", "b=1", "ä=2")
		wantList(f.T, "second", texts(results[5].Records), "a=3", "b=1+", "c=4+", "ä=2")
		wantList(f.T, "third", texts(results[8].Records), "b=1+", "c=4+")
		f.wantConsumers("in the end", q, "b=1+", "c=4+")
		f.wantConsumers("of another", fifo, "a=other")

		f.setConsumer(q, "b", "")
		f.setConsumer(q, "c", "")
		f.setConsumer(q, "c", "") // there is none
		if left := f.stored(f.priority); len(left) > 0 {
			f.Errorf("left: %q", left)
		}
	})
}

// Names, values and numbers out of bounds are refused, and nothing changes.
func TestConsumerBounds(t *testing.T) {
	f := onMem(t)
	q := f.queue("jobs")
	long, most := strings.Repeat("n", fdbpq.MaxRecordName), strings.Repeat("v", fdbpq.MaxConsumerValue)
	for _, name := range []string{"", "a.b", "a b", "*", "a>", "a\tb", "a\x00", "\u00a0", "\x85", "\xff", long + "n"} {
		wantError(t, f.apply(opSetConsumer(q, name, "x"))[0].Err, fdbpq.ErrOp)
	}
	wantError(t, f.apply(opSetConsumer(q, "a", most+"v"))[0].Err, fdbpq.ErrOp)
	wantError(t, f.apply(fdbpq.Op{Kind: fdbpq.OpSetConsumer, Queue: q, Record: "a"})[0].Err, fdbpq.ErrOp)
	results := must(kv.ReadTransact(f.ctx, f.db, func(r kv.Reader) ([]fdbpq.Result, error) {
		return fdbpq.Read(r, []fdbpq.Op{opSetConsumer(q, "a", "x"), {Kind: fdbpq.OpConsumers, Queue: q}})
	}))
	wantError(t, results[0].Err, fdbpq.ErrOp)
	wantEqual(t, "consumers", len(results[1].Records), 0)
	wantEqual(t, "keys", len(f.stored(f.priority)), 0)

	f.setConsumer(q, long, most)
	for i := range fdbpq.MaxConsumers - 1 {
		f.setConsumer(q, fmt.Sprint(i), most)
	}
	wantError(t, f.apply(opSetConsumer(q, "more", "x"))[0].Err, fdbpq.ErrMaxRecords)
	f.setConsumer(q, "7", "x")
	f.check()
	f.setConsumer(q, "7", "")
	f.setConsumer(q, "more", "x")
}

// The records of many queues are as much as a batch may return, and those that have no room are
// returned by the next.
func TestConsumersOfManyQueues(t *testing.T) {
	f := onMem(t)
	most := strings.Repeat("v", fdbpq.MaxConsumerValue)
	var sets, lists []fdbpq.Op
	for i := range 20 {
		q := f.queue(fmt.Sprint("queue-", i))
		for n := range 10 {
			sets = append(sets, opSetConsumer(q, fmt.Sprint(n), most))
		}
		lists = append(lists, fdbpq.Op{Kind: fdbpq.OpConsumers, Queue: q})
	}
	for _, r := range f.apply(sets...) {
		wantError(t, r.Err, nil)
	}
	f.batcher.LimitReturned(8 * 10 * (len(most) + 1))
	for len(lists) > 0 {
		results := f.apply(lists...)
		done := slices.IndexFunc(results, func(r fdbpq.Result) bool { return r.Err != nil })
		if done < 0 {
			done = len(results)
		}
		wantEqual(t, "done", done, min(8, len(lists)))
		for _, r := range results[done:] {
			wantError(t, r.Err, fdbpq.ErrNoRoom)
		}
		lists = lists[done:]
	}
}

// A queue that has nothing but consumers keeps them, and its place in the list, whatever Retire does,
// and a purge leaves them. Without them it leaves, and Clear removes them.
func TestRetireLeavesConsumers(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		f.push(q, 1, "a")
		f.values(q.PopMin)
		mark := fdbpq.NewMark()
		f.retire("empty", []fdbpq.Target{q}, mark, "", fdbpq.Marked)
		f.setConsumer(q, "c", "1")
		f.retire("with a consumer", []fdbpq.Target{q}, fdbpq.NewMark(), mark, fdbpq.InUse)
		f.wantListed("with a consumer", "jobs")
		f.push(q, 1, "b")
		wantError(f.T, f.apply(fdbpq.Op{Kind: fdbpq.OpPurge, Queue: q, State: fdbpq.AnyState})[0].Err, nil)
		f.wantConsumers("after a purge", q, "c=1")
		page := must(f.ListPriorityQueues(f.ctx, f.db, "", 10, time.Now()))
		if len(page.Queues) != 1 || page.Queues[0].Name != "jobs" {
			f.Errorf("listed: %+v", page)
		}
		f.check()

		f.setConsumer(q, "c", "")
		f.retire("without", []fdbpq.Target{q}, mark, "", fdbpq.Marked)
		f.retire("again", []fdbpq.Target{q}, fdbpq.NewMark(), mark, fdbpq.NotListed)
		f.setConsumer(q, "c", "1")
		write(f, func(tx kv.Transaction) { q.Clear(tx) })
		wantEqual(f.T, "keys", len(f.stored(f.priority)), 0)
	})
}

// A change of a consumer conflicts with others of the same queue, and with nothing else.
func TestConsumersConflict(t *testing.T) {
	for _, test := range []struct {
		name string
		op   fdbpq.Op
		want bool // it conflicts
	}{
		{"the same", opSetConsumer(nil, "a", "2"), true},
		{"another", opSetConsumer(nil, "b", "2"), true}, // there might be too many
		{"push", opPush(nil, 5, "x"), false},
		{"pop", opPopMin, false},
		{"lease that counts", fdbpq.Op{Kind: fdbpq.OpLease, Count: true}, false},
		{"configure", fdbpq.Op{Kind: fdbpq.OpConfigure, Configure: func(*fdbpq.Settings) {}}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := onMem(t)
			q := f.queue("jobs")
			f.push(q, 1, "a")
			f.setConsumer(q, "c", "1") // it is in the list
			test.op.Queue = q
			f.wantConflict(test.want, func() { f.setConsumer(q, "a", "1") }, test.op)
		})
	}
}

// A change of unknown outcome is made once, whatever became of the commit.
func TestConsumersWithFaults(t *testing.T) {
	for _, fault := range append(slices.Clone(unanswered), faultkv.Conflict) {
		f := newUnsure(t, faultkv.Options{})
		q := f.queue("jobs")
		f.faults.Next(fault, fault)
		wantError(t, f.apply(fdbpq.Op{Kind: fdbpq.OpSetConsumer, Queue: q, Record: "a", Change: func(old []byte, _ time.Time) ([]byte, error) {
			return append(slices.Clone(old), "+"...), nil
		}})[0].Err, nil)
		f.calm()
		f.wantConsumers(fmt.Sprint(fault), q, "a=+")
	}
}

// A record whose name cannot be read fails operations on consumers, and nothing else.
func TestCorruptConsumers(t *testing.T) {
	f := onMem(t)
	f.corrupt = true
	q := f.queue("jobs")
	write(f, func(tx kv.Transaction) { tx.Set(tuple.Tuple{f.priority, "jobs", "p", int64(5)}.Pack(), []byte("x")) })
	results := f.apply(opSetConsumer(q, "a", "1"), fdbpq.Op{Kind: fdbpq.OpConsumers, Queue: q}, opPush(q, 1, "a"))
	wantError(t, results[0].Err, fdbpq.ErrCorrupt)
	wantError(t, results[1].Err, fdbpq.ErrCorrupt)
	wantError(t, results[2].Err, nil)
}

// Pops and leases count what is ready after them, with all that their transaction has done before.
func TestReady(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q, clock := f.queue("jobs"), newClock(time.Now())
		f.batcher.SetNow(clock.now)
		pop, lease := op(counting(opPopMin), q), op(counting(fdbpq.Op{Kind: fdbpq.OpLease, Lease: time.Minute}), q)
		wantReady := func(what string, results []fdbpq.Result, want ...int64) {
			f.Helper()
			var got []int64
			for _, r := range results[len(results)-len(want):] {
				got = append(got, r.Ready)
			}
			wantEqual(f.T, what, got, want)
		}
		wantReady("empty", f.apply(pop, lease), 0, 0)
		wantReady("beside pushes", f.apply(opPush(q, 1, "a"), opPush(q, 2, "b"), opPush(q, 3, "c"), pop, lease, lease, lease), 2, 1, 0, 0)

		// Another program's item does not count, nor does one that expires before it.
		write(f, func(tx kv.Transaction) {
			tx.Set(items(f.priority, "jobs").Pack(tuple.Tuple{int64(9), int64(0), make([]byte, 20)}), []byte("other"))
		})
		expires := opPush(q, 1, "short")
		expires.TTL = time.Second
		f.apply(expires, opPush(q, 2, "d"), opPush(q, 3, "e"))
		clock.advance(10 * time.Second)
		wantReady("beside others", f.apply(pop, pop, pop), 1, 0, 0)

		clock.advance(time.Hour)
		wantReady("when leases are over", f.apply(pop), 1)
		wantReady("without counting", f.apply(op(opPopMin, q)), 0)

		// Dead letters that come and go in the same transaction.
		f.configure(q, func(s *fdbpq.Settings) { s.DeadLetter, s.MaxDeliver = "dead", 1 })
		dead := f.queue("dead")
		tokens := func() (ops []fdbpq.Op) {
			f.apply(opPush(q, 1, "x"), opPush(q, 1, "y"))
			for _, r := range f.apply(lease, lease) {
				ops = append(ops, fdbpq.Op{Kind: fdbpq.OpTerm, Queue: q, Token: r.Lease.Token})
			}
			return ops
		}
		wantReady("beside burials", f.apply(append(tokens(), op(pop, dead))...), 1)
		wantReady("after them", f.apply(append(tokens(), op(pop, dead))...), 2)
		wantReady("beside a redrive", f.apply(fdbpq.Op{Kind: fdbpq.OpRedrive, Queue: dead}, pop, op(pop, dead)), 1, 0)
	})
}
