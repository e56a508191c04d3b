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

// Records are kept under a key each, in the order of their names, and are gone with the last.
func TestConsumers(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q, fifo := f.queue("jobs"), f.fifoQueue("jobs")
		f.setConsumer(q, "b", "1")
		f.setConsumer(q, "ä", "2")
		f.setConsumer(q, "a", "3")
		f.setConsumer(fifo, "a", "other")
		f.wantStored(tuple.Tuple{f.priority, "jobs", "p", "b"}.Pack(), []byte("1"))
		f.wantConsumers("set", q, "a=3", "b=1", "ä=2")
		f.wantListed("with consumers", "jobs")
		f.check()

		refused := errors.New("refused")
		refuse := opSetConsumer(q, "b", "")
		refuse.Change = func([]byte, time.Time) ([]byte, error) { return nil, refused }
		list := fdbpq.Op{Kind: fdbpq.OpConsumers, Queue: q}
		results := f.apply(list, opSetConsumer(q, "c", "4"), refuse, list, opSetConsumer(q, "c", ""), opSetConsumer(q, "a", ""))
		wantError(f.T, results[2].Err, refused)
		wantList(f.T, "before", texts(results[0].Records), "a=3", "b=1", "ä=2")
		wantList(f.T, "in between", texts(results[3].Records), "a=3", "b=1", "c=4", "ä=2")
		f.wantConsumers("in the end", q, "b=1", "ä=2")

		f.setConsumer(q, "b", "")
		f.setConsumer(q, "ä", "")
		f.setConsumer(q, "ä", "") // there is none
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
	wantErrors(t, f.apply(sets...))
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

// A record whose name cannot be read fails operations on consumers, and nothing else.
func TestCorruptConsumers(t *testing.T) {
	f := onMem(t)
	f.corrupt = true
	q := f.queue("jobs")
	write(f, func(tx kv.Transaction) { tx.Set(tuple.Tuple{f.priority, "jobs", "p", int64(5)}.Pack(), []byte("x")) })
	results := f.apply(opSetConsumer(q, "a", "1"), fdbpq.Op{Kind: fdbpq.OpConsumers, Queue: q}, opPush(q, 1, "a"))
	wantErrors(t, results, fdbpq.ErrCorrupt, fdbpq.ErrCorrupt, nil)
}

// Pops and leases count what is ready after them, but for another program's items and those that expire before. The
// model has the rest.
func TestReady(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q, clock := f.queue("jobs"), newClock(time.Now())
		f.batcher.SetNow(clock.now)
		write(f, func(tx kv.Transaction) {
			tx.Set(items(f.priority, "jobs").Pack(tuple.Tuple{int64(9), int64(0), make([]byte, 20)}), []byte("other"))
		})
		f.apply(withTTL(opPush(q, 1, "short"), time.Second), opPush(q, 2, "d"), opPush(q, 3, "e"))
		clock.advance(10 * time.Second)
		for i, r := range f.apply(slices.Repeat([]fdbpq.Op{op(counting(opPopMin), q)}, 3)...) {
			wantEqual(f.T, "ready", r.Ready, []int64{1, 0, 0}[i])
		}
	})
}

// A queue that has nothing but settings, consumers or a source keeps them, and its place in the list, whatever Retire
// and a purge do. Without them it leaves, and Clear removes them.
func TestRetireLeavesRecords(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		for name, set := range map[string]func(on string){
			"settings": func(on string) { f.configure(q, func(s *fdbpq.Settings) { s.MaxDeliver = int64(len(on)) }) },
			"consumer": func(on string) { f.setConsumer(q, "c", on) },
			"source":   func(on string) { f.setSource(q, strings.Repeat(`{"stream":"S"}`, len(on))) },
		} {
			f.push(q, 1, "a")
			f.values(q.PopMin)
			mark := fdbpq.NewMark()
			f.retire(name+": empty", []fdbpq.Target{q}, mark, "", fdbpq.Marked)
			set("1")
			f.retire(name, []fdbpq.Target{q}, fdbpq.NewMark(), mark, fdbpq.InUse)
			f.push(q, 1, "b")
			wantError(f.T, f.apply(fdbpq.Op{Kind: fdbpq.OpPurge, Queue: q, State: fdbpq.AnyState})[0].Err, nil)
			f.retire(name+", purged", []fdbpq.Target{q}, fdbpq.NewMark(), mark, fdbpq.InUse)
			page := must(f.ListPriorityQueues(f.ctx, f.db, "", 10, time.Now()))
			if len(page.Queues) != 1 || page.Queues[0].Name != "jobs" {
				f.Errorf("%s: listed: %+v", name, page)
			}
			f.check()

			set("")
			f.retire(name+" without", []fdbpq.Target{q}, mark, "", fdbpq.Marked)
			f.retire(name+" again", []fdbpq.Target{q}, fdbpq.NewMark(), mark, fdbpq.NotListed)
			set("1")
			write(f, func(tx kv.Transaction) { q.Clear(tx) })
			wantEqual(f.T, name+": keys", len(f.stored(f.priority)), 0)
		}
	})
}

// A change of unknown outcome is made once, whatever became of the commit: of settings, of a consumer, and of what is
// drawn from a source.
func TestChangesWithFaults(t *testing.T) {
	for _, fault := range append(slices.Clone(unanswered), faultkv.Conflict) {
		f := newUnsure(t, faultkv.Options{})
		q := f.queue("jobs")
		f.setSource(q, `{"stream":"S"}`)
		for _, change := range [][]fdbpq.Op{
			{{Kind: fdbpq.OpConfigure, Queue: q, Configure: func(s *fdbpq.Settings) { s.MaxDeliver++ }}},
			{{Kind: fdbpq.OpSetConsumer, Queue: q, Record: "a", Change: func(old []byte, _ time.Time) ([]byte, error) {
				return append(slices.Clone(old), "+"...), nil
			}}},
			draws(q, 0, "a", "b"),
		} {
			f.faults.Next(fault, fault)
			wantError(t, f.apply(change...)[0].Err, nil)
		}
		f.calm()
		wantEqual(t, fmt.Sprint(fault, ": max_deliver"), must(kv.ReadTransact(f.ctx, f.db, q.Settings)).MaxDeliver, 1)
		f.wantConsumers(fmt.Sprint(fault), q, "a=+")
		f.wantSource(fmt.Sprint(fault), q, 2, "a", "b")
	}
}
