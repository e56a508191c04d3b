package fdbpq_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Batches of only pushes do not conflict, receipts included, even from different Batchers:
// in any interleaving, each needs one attempt.
func TestBatchesOfPushesDoNotConflict(t *testing.T) {
	f := onMem(t)
	q, fifo := f.queue("a"), f.fifoQueue("a")
	inner := f.db
	other := fdbpq.NewBatcher(inner, f.Keyspace)
	commits := 0
	between := &hooked{Database: inner, beforeCommit: func() {
		commits++
		must(other.Apply(f.ctx, []fdbpq.Op{opPush(q, 1, "other"), opPush(fifo, 0, "other")}))
	}}
	b := fdbpq.NewBatcher(between, f.Keyspace)
	for range 10 {
		ops := []fdbpq.Op{opPush(q, 1, "v"), opPush(fifo, 0, "v"), op(opLen, q)}
		must(b.Apply(f.ctx, ops))
	}
	wantEqual(t, "commits of ten batches", commits, 10)
	wantEqual(t, "items", f.length(q)+f.length(fifo), 40)
}

// wantConflict applies operations in a transaction that others get ahead of before its commit, which then conflicts or
// does not.
func (f *fixture) wantConflict(want bool, meanwhile func(), ops ...fdbpq.Op) []fdbpq.Result {
	f.Helper()
	tx := must(f.db.Begin(f.ctx, kv.BeginOptions{}))
	results := must(fdbpq.Apply(tx, ops, time.Now()))
	for _, r := range results {
		wantError(f.T, r.Err, nil)
	}
	meanwhile()
	if _, err := tx.Commit().Get(); errors.Is(err, kv.ErrConflict) != want || err != nil && !want {
		f.Errorf("commit: %v, want a conflict: %t", err, want)
	}
	return results
}

// What conflicts with a change that somebody else commits first, and what does not: in queues with the items 10, 20, 30
// and 40, at these priorities, one that is leased, and a dead letter. Settings conflict with all that they can matter to,
// a consumer with others of its queue, a burial with whoever settles the item, but not with pushes to the dead-letter
// queue, and a push only with those of the same id or key, and with whoever has read that its place is empty.
func TestConflicts(t *testing.T) {
	all := onMem(t)
	q, fifo, other := all.queue("jobs"), all.fifoQueue("jobs"), all.queue("other")
	dead := q.DeadLetters()
	push := func(priority int64) fdbpq.Op { return opPush(nil, priority, "pushed") }
	expires := withTTL(push(10), time.Hour)
	delayed := withDelay(expires, time.Minute)
	enqueue, dequeue := opPush(fifo, 0, "pushed"), op(opPopMin, fifo)
	remove, purge := fdbpq.Op{Kind: fdbpq.OpRemove}, fdbpq.Op{Kind: fdbpq.OpPurge}
	move := func(to int64) fdbpq.Op { return fdbpq.Op{Kind: fdbpq.OpMove, Priority: to} } // the first
	configure := fdbpq.Op{Kind: fdbpq.OpConfigure, Configure: func(s *fdbpq.Settings) { s.MaxDeliver = 1 }}
	consumer := func(name string) fdbpq.Op { return opSetConsumer(nil, name, "1") }
	once := func(msgID, unique string) fdbpq.Op { return opPushOnce(nil, msgID, unique) }
	lease := fdbpq.Op{Kind: fdbpq.OpLease}
	ack, term := fdbpq.Op{Kind: fdbpq.OpAck}, fdbpq.Op{Kind: fdbpq.OpTerm}
	redrive := fdbpq.Op{Kind: fdbpq.OpRedriveItem, Queue: dead}
	for _, test := range []struct {
		name          string
		first, second fdbpq.Op
		want          bool
	}{
		{"push, push at the same priority", push(10), push(10), false},
		{"push, push at a new priority", push(11), push(11), false},
		{"push of what expires, twice", expires, expires, false},
		{"delayed push, twice", delayed, delayed, false},
		{"delayed push, push", delayed, push(10), false},
		{"push, delayed push", push(10), delayed, false},
		{"first push of a queue, twice", opPush(all.queue("new"), 1, ""), opPush(all.queue("new"), 1, ""), false},
		{"enqueue, enqueue", enqueue, enqueue, false},
		{"pop, push", opPopMin, push(1), false},
		{"dequeue, enqueue", dequeue, enqueue, false},

		{"pop, pop of the same end", opPopMin, opPopMin, true},
		{"pop, pop of the other end", opPopMin, opPopMax, false},
		{"dequeue, dequeue", dequeue, dequeue, true},
		{"push in front, pop", push(9), opPopMin, true},
		{"push behind the first, pop", push(10), opPopMin, false},
		{"push at the other end, pop", push(50), opPopMin, false},
		{"push at the end, pop of the end", push(40), opPopMax, true},
		{"push in front, pop of the end", push(1), opPopMax, false},
		{"enqueue, dequeue", enqueue, dequeue, false},
		{"push to another queue, pop", opPush(other, 1, ""), opPopMin, false},

		{"pop, remove of the same item", opPopMin, remove, true},
		{"remove, pop of the same item", remove, opPopMin, true},
		{"pop of the other end, remove", opPopMax, remove, false},
		{"push in front, remove", push(1), remove, false},
		{"push at the priority, move there", push(30), move(30), false},
		{"move, push at the priority", move(30), push(30), false},
		{"move in front, pop", move(1), opPopMin, true},
		{"pop, move of the same item", opPopMin, move(30), true},
		{"purge, pop", purge, opPopMin, true},
		{"pop, purge", opPopMin, purge, true},
		{"push, purge", push(15), purge, false},
		{"purge, push", purge, push(15), false},

		{"peek, pop", opPeekMin, opPopMin, false},

		{"settings, push", configure, push(5), true},
		{"settings, pop", configure, opPopMin, true},
		{"settings, len", configure, opLen, false},
		{"settings, lease with a length", configure, fdbpq.Op{Kind: fdbpq.OpLease, Lease: time.Second}, true},
		{"settings, lease without", configure, lease, true},
		{"settings, ack", configure, ack, true},
		{"settings, extend", configure, fdbpq.Op{Kind: fdbpq.OpExtend}, false},
		{"settings, snooze", configure, fdbpq.Op{Kind: fdbpq.OpNak, Uncounted: true}, false},
		{"settings, nak", configure, fdbpq.Op{Kind: fdbpq.OpNak, Delay: fdbpq.Backoff}, true},
		{"settings, term", configure, term, true},

		{"consumer, the same", consumer("a"), consumer("a"), true},
		{"consumer, another", consumer("a"), consumer("b"), true}, // there might be too many
		{"consumer, push", consumer("a"), push(5), false},
		{"consumer, pop", consumer("a"), opPopMin, false},
		{"consumer, lease that counts", consumer("a"), counting(lease), false},
		{"consumer, settings", consumer("a"), configure, false},

		{"ack, burial", ack, term, true},
		{"burial, burial", term, term, true},
		{"push, burial", push(0), term, false},
		{"push to the dead-letter queue, burial", opPush(dead, 0, "x"), term, false},
		{"pop from the dead-letter queue, burial", op(opPopMin, dead), term, false},
		{"redrive of an item, twice", redrive, redrive, true},

		{"push, same message id", once("a", "x"), once("a", ""), true},
		{"push, same unique key", once("x", "a"), once("", "a"), true},
		{"push, other message id", once("b", ""), once("a", ""), false},
		{"push, other unique key", once("", "b"), once("", "a"), false},
		{"push, message id", once("", ""), once("a", ""), false},
		{"push, id and key", once("", "a"), once("a", ""), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := &fixture{T: t, ctx: all.ctx, db: all.db, batcher: all.batcher}
			write(f, func(tx kv.Transaction) { q.Clear(tx); fifo.Clear(tx); dead.Clear(tx) })
			old := time.Now().Add(-time.Hour)
			f.applyAt(old, many(10, func(i int) fdbpq.Op { // that both remove
				return opPushOnce(q, fmt.Sprint("old", i), "")
			})...)
			f.values(q.PopMin)
			f.bury(time.Now(), q, "letter")
			letter := f.apply(op(opPeekMin, dead))[0].Item.ID
			f.setConsumer(q, "c", "1")
			f.push(q, 1, "a")
			token := f.leaseSome(q, 1, time.Hour)[0]
			items := many(4, func(i int) fdbpq.Op { return opPush(q, int64(10+10*i), "v") })
			first := f.apply(append(items, opPush(fifo, 0, "v"), opPush(fifo, 0, "w"))...)[0].Item.ID
			for _, o := range []*fdbpq.Op{&test.first, &test.second} {
				if o.Token, o.ID = token, first; o.Queue == dead {
					o.ID = letter
				} else if o.Queue == nil {
					o.Queue = q
				}
			}
			f.wantConflict(test.want, func() { wantError(t, f.apply(test.first)[0].Err, nil) },
				test.second, opPush(other, 0, "")) // what only reads never conflicts
		})
	}

	// A caller's transaction may write because of what it has peeked at.
	for _, test := range []struct {
		first fdbpq.Op
		peek  func(kv.Reader) (fdbpq.Item, error)
		want  error
	}{{opPopMin, q.PeekMin, kv.ErrConflict}, {opPopMin, q.PeekMax, nil}, {push(1), q.PeekMin, kv.ErrConflict}} {
		write(all, q.Clear)
		all.apply(opPush(q, 10, "v"), opPush(q, 20, "v"))
		tx := must(all.db.Begin(all.ctx, kv.BeginOptions{}))
		must(test.peek(tx))
		must(other.Push(tx, 1, message("v")))
		wantError(t, all.apply(op(test.first, q))[0].Err, nil)
		wantError(t, errOf(tx.Commit().Get()), test.want)
	}
	for _, second := range []fdbpq.Op{push(1), opPopMin} {
		all.push(q, 1, "v")
		all.wantConflict(true, func() { write(all, q.Clear) }, op(second, q))
	}
}
