package fdbpq_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// step is what one of two transactions does.
type step func(tx kv.Transaction) error

func pushStep(q *fdbpq.PriorityQueue, priority int64) step {
	return func(tx kv.Transaction) error {
		_, err := q.Push(tx, priority, message("pushed"))
		return err
	}
}

// laterStep pushes an item that expires, after a delay or at once.
func laterStep(q *fdbpq.PriorityQueue, delay time.Duration) step {
	return func(tx kv.Transaction) error {
		_, err := fdbpq.Apply(tx, []fdbpq.Op{withTTL(withDelay(opPush(q, 10, "pushed"), delay), time.Hour)}, time.Now())
		return err
	}
}

func enqueueStep(q *fdbpq.Queue) step {
	return func(tx kv.Transaction) error {
		_, err := q.Enqueue(tx, message("pushed"))
		return err
	}
}

func popStep(method func(kv.Transaction) (fdbpq.Item, error)) step {
	return func(tx kv.Transaction) error {
		_, err := method(tx)
		return err
	}
}

func peekStep(method func(kv.Reader) (fdbpq.Item, error), mark *fdbpq.PriorityQueue) step {
	return func(tx kv.Transaction) error {
		if _, err := method(tx); err != nil {
			return err
		}
		return pushStep(mark, 0)(tx) // what only read never conflicts
	}
}

// TestConflicts runs two concurrent transactions on queues with the items 10, 20, 30 and 40,
// at these priorities. The first commits, and the second conflicts with it or does not.
func TestConflicts(t *testing.T) {
	f := onMem(t)
	q, fifo, other := f.queue("a"), f.fifoQueue("a"), f.queue("other")
	tests := []struct {
		name          string
		first, second step
		conflict      bool
	}{
		{"push, push at the same priority", pushStep(q, 10), pushStep(q, 10), false},
		{"push, push at a new priority", pushStep(q, 11), pushStep(q, 11), false},
		{"push of what expires, twice", laterStep(q, 0), laterStep(q, 0), false},
		{"delayed push, twice", laterStep(q, time.Minute), laterStep(q, time.Minute), false},
		{"delayed push, push", laterStep(q, time.Minute), pushStep(q, 10), false},
		{"push, delayed push", pushStep(q, 10), laterStep(q, time.Minute), false},
		{"first push of a queue, twice", pushStep(f.queue("new"), 1), pushStep(f.queue("new"), 1), false},
		{"enqueue, enqueue", enqueueStep(fifo), enqueueStep(fifo), false},
		{"pop, push", popStep(q.PopMin), pushStep(q, 1), false},
		{"dequeue, enqueue", popStep(fifo.Dequeue), enqueueStep(fifo), false},
		{"clear, push", func(tx kv.Transaction) error { f.queue("gone").Clear(tx); return nil }, pushStep(f.queue("gone"), 1), true}, // of its settings

		{"pop, pop of the same end", popStep(q.PopMin), popStep(q.PopMin), true},
		{"pop, pop of the other end", popStep(q.PopMin), popStep(q.PopMax), false},
		{"dequeue, dequeue", popStep(fifo.Dequeue), popStep(fifo.Dequeue), true},
		{"push in front, pop", pushStep(q, 9), popStep(q.PopMin), true},
		{"push behind the first, pop", pushStep(q, 10), popStep(q.PopMin), false},
		{"push at the other end, pop", pushStep(q, 50), popStep(q.PopMin), false},
		{"push at the end, pop of the end", pushStep(q, 40), popStep(q.PopMax), true},
		{"push in front, pop of the end", pushStep(q, 1), popStep(q.PopMax), false},
		{"enqueue, dequeue", enqueueStep(fifo), popStep(fifo.Dequeue), false},
		{"push to another queue, pop", pushStep(other, 1), popStep(q.PopMin), false},
		{"clear, pop", func(tx kv.Transaction) error { q.Clear(tx); return nil }, popStep(q.PopMin), true},

		{"pop, remove of the same item", popStep(q.PopMin), removeStep(q), true},
		{"remove, pop of the same item", removeStep(q), popStep(q.PopMin), true},
		{"pop of the other end, remove", popStep(q.PopMax), removeStep(q), false},
		{"push in front, remove", pushStep(q, 1), removeStep(q), false},
		{"push at the priority, move there", pushStep(q, 30), moveStep(q, 30), false},
		{"move, push at the priority", moveStep(q, 30), pushStep(q, 30), false},
		{"move in front, pop", moveStep(q, 1), popStep(q.PopMin), true},
		{"pop, move of the same item", popStep(q.PopMin), moveStep(q, 30), true},
		{"purge, pop", purgeStep(q), popStep(q.PopMin), true},
		{"pop, purge", popStep(q.PopMin), purgeStep(q), true},
		{"push, purge", pushStep(q, 15), purgeStep(q), false},
		{"purge, push", purgeStep(q), pushStep(q, 15), false},

		{"pop, peek", popStep(q.PopMin), peekStep(q.PeekMin, other), true},
		{"pop, peek at the other end", popStep(q.PopMin), peekStep(q.PeekMax, other), false},
		{"push in front, peek", pushStep(q, 1), peekStep(q.PeekMin, other), true},
		{"peek, pop", peekStep(q.PeekMin, other), popStep(q.PopMin), false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := &fixture{T: t, ctx: f.ctx, db: f.db}
			write(f, func(tx kv.Transaction) {
				q.Clear(tx)
				fifo.Clear(tx)
				for p := int64(10); p <= 40; p += 10 {
					_ = must(q.Push(tx, p, message("v")))
					_ = must(fifo.Enqueue(tx, message("v")))
				}
			})
			first, second := must(f.db.Begin(f.ctx, kv.BeginOptions{})), must(f.db.Begin(f.ctx, kv.BeginOptions{}))
			defer first.Cancel()
			defer second.Cancel()
			// The second reads before the first commits.
			wantError(t, test.second(second), nil)
			wantError(t, test.first(first), nil)
			must(first.Commit().Get())
			var want error
			if test.conflict {
				want = kv.ErrConflict
			}
			wantError(t, errOf(second.Commit().Get()), want)
		})
	}
}

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

// What conflicts with a change that somebody else commits first, and what does not. Settings conflict with
// all that they can matter to, a consumer with others of its queue, a burial with whoever settles the
// item, but not with pushes to the dead-letter queue, and a push only with those of the same id or key.
func TestChangesConflict(t *testing.T) {
	all := onMem(t)
	q := all.queue("jobs")
	dead := q.DeadLetters()
	configure := fdbpq.Op{Kind: fdbpq.OpConfigure, Configure: func(s *fdbpq.Settings) { s.MaxDeliver = 1 }}
	consumer := func(name string) fdbpq.Op { return opSetConsumer(nil, name, "1") }
	once := func(msgID, unique string) fdbpq.Op { return opPushOnce(nil, msgID, unique) }
	lease := fdbpq.Op{Kind: fdbpq.OpLease}
	ack, term := fdbpq.Op{Kind: fdbpq.OpAck}, fdbpq.Op{Kind: fdbpq.OpTerm}
	nak := fdbpq.Op{Kind: fdbpq.OpNak, Delay: fdbpq.Backoff}
	redrive := fdbpq.Op{Kind: fdbpq.OpRedriveItem, Queue: dead}
	for _, test := range []struct {
		name          string
		first, second fdbpq.Op
		want          bool
	}{
		{"settings, push", configure, opPush(nil, 5, "x"), true},
		{"settings, pop", configure, opPopMin, true},
		{"settings, len", configure, opLen, false},
		{"settings, lease with a length", configure, fdbpq.Op{Kind: fdbpq.OpLease, Lease: time.Second}, true},
		{"settings, lease without", configure, lease, true},
		{"settings, ack", configure, ack, true},
		{"settings, extend", configure, fdbpq.Op{Kind: fdbpq.OpExtend}, false},
		{"settings, snooze", configure, fdbpq.Op{Kind: fdbpq.OpNak, Uncounted: true}, false},
		{"settings, nak", configure, nak, true},
		{"settings, term", configure, term, true},

		{"consumer, the same", consumer("a"), consumer("a"), true},
		{"consumer, another", consumer("a"), consumer("b"), true}, // there might be too many
		{"consumer, push", consumer("a"), opPush(nil, 5, "x"), false},
		{"consumer, pop", consumer("a"), opPopMin, false},
		{"consumer, lease that counts", consumer("a"), counting(lease), false},
		{"consumer, settings", consumer("a"), configure, false},

		{"ack, burial", ack, term, true},
		{"burial, burial", term, term, true},
		{"push, burial", opPush(nil, 0, "x"), term, false},
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
			write(f, func(tx kv.Transaction) { q.Clear(tx); dead.Clear(tx) })
			old := time.Now().Add(-time.Hour)
			f.applyAt(old, many(10, func(i int) fdbpq.Op { // that both remove
				return opPushOnce(q, fmt.Sprint("old", i), "")
			})...)
			f.values(q.PopMin)
			f.bury(time.Now(), q, "letter")
			letter := f.apply(op(opPeekMin, dead))[0].Item.ID
			f.setConsumer(q, "c", "1")
			f.push(q, 1, "a")
			f.push(q, 2, "b")
			token := f.leaseSome(q, 1, time.Hour)[0]
			for _, o := range []*fdbpq.Op{&test.first, &test.second} {
				if o.Queue == nil {
					o.Queue = q
				}
				o.Token, o.ID = token, letter
			}
			f.wantConflict(test.want, func() { wantError(t, f.apply(test.first)[0].Err, nil) }, test.second)
		})
	}
}
