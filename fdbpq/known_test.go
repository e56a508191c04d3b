package fdbpq_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Pops and leases of a queue that the Batcher knows read nothing but its items.
func TestKnownFacts(t *testing.T) {
	f, store := onlyWay(t)
	q := f.queue("a")
	reads := func(ops ...fdbpq.Op) int {
		store.Take()
		f.apply(ops...)
		return store.Take()[0].Reads
	}
	pop, lease := fdbpq.Op{Kind: fdbpq.OpPop, Queue: q}, fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Minute}
	f.apply(slices.Repeat([]fdbpq.Op{opPush(q, 1, "x")}, 20)...)
	f.apply(pop)
	wantEqual(t, "reads of a pop", reads(pop), 1)
	wantEqual(t, "reads of a lease", reads(lease), 1)
	token := f.apply(lease)[0].Lease.Token
	wantEqual(t, "reads of an acknowledgement", reads(fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: token}), 0)
	wantEqual(t, "reads of a second lease", reads(lease), 1)
	write(f, func(kv.Transaction) {})
	// Settings, histories, what is due, what will be, and the items.
	wantEqual(t, "reads of a pop after a transaction of somebody else", reads(pop), 5)
}

// What falls due does so in time, whatever it is and whoever wrote it, after batches that knew that
// nothing would. After an hour two items are ready in each of these cases, or none where they expire.
func TestKnownDue(t *testing.T) {
	lease := func(f *fixture, q *fdbpq.PriorityQueue) fdbpq.Token {
		return f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Minute})[0].Lease.Token
	}
	push := func(q *fdbpq.PriorityQueue, ttl time.Duration) fdbpq.Op {
		op := opPush(q, 1, "x")
		op.TTL = ttl
		return op
	}
	for name, test := range map[string]struct {
		do    func(f *fixture, q *fdbpq.PriorityQueue)
		ready int64
	}{
		"leases": {func(f *fixture, q *fdbpq.PriorityQueue) { lease(f, q); lease(f, q) }, 2},
		"extended": {func(f *fixture, q *fdbpq.PriorityQueue) {
			for range 2 {
				f.apply(fdbpq.Op{Kind: fdbpq.OpExtend, Queue: q, Token: lease(f, q), Lease: 2 * time.Minute})
			}
		}, 2},
		"given back late": {func(f *fixture, q *fdbpq.PriorityQueue) {
			for range 2 {
				f.apply(fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: lease(f, q), Delay: time.Minute})
			}
		}, 2},
		"delayed": {func(f *fixture, q *fdbpq.PriorityQueue) {
			op := opPush(q, 1, "late")
			op.Delay = time.Minute
			f.apply(fdbpq.Op{Kind: fdbpq.OpPop, Queue: q}, fdbpq.Op{Kind: fdbpq.OpPop, Queue: q}, op, op)
		}, 2},
		"expire": {func(f *fixture, q *fdbpq.PriorityQueue) {
			f.apply(fdbpq.Op{Kind: fdbpq.OpPop, Queue: q}, fdbpq.Op{Kind: fdbpq.OpPop, Queue: q}, push(q, time.Minute), push(q, time.Minute))
		}, 0},
		"expire by the settings": {func(f *fixture, q *fdbpq.PriorityQueue) {
			f.apply(fdbpq.Op{Kind: fdbpq.OpPop, Queue: q}, fdbpq.Op{Kind: fdbpq.OpPop, Queue: q})
			f.configure(q, func(s *fdbpq.Settings) { s.TTL = time.Minute })
			f.apply(push(q, 0), push(q, 0))
		}, 0},
		"restored and expire": {func(f *fixture, q *fdbpq.PriorityQueue) {
			f.apply(fdbpq.Op{Kind: fdbpq.OpPurge, Queue: q})
			pop := fdbpq.Op{Kind: fdbpq.OpPop, Queue: q}
			popped := f.apply(push(q, time.Minute), push(q, time.Minute), pop, pop)
			f.apply(pop)
			f.apply(opRestore(q, popped[2].Item), opRestore(q, popped[3].Item))
		}, 0},
		"redriven and expire": {func(f *fixture, q *fdbpq.PriorityQueue) {
			for range 2 {
				long := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: 2 * time.Hour})[0].Lease.Token
				f.apply(fdbpq.Op{Kind: fdbpq.OpTerm, Queue: q, Token: long})
			}
			f.configure(q, func(s *fdbpq.Settings) { s.TTL = time.Minute })
			f.apply(fdbpq.Op{Kind: fdbpq.OpRedrive, Queue: q.DeadLetters()})
		}, 0},
		"leased by somebody else": {func(f *fixture, q *fdbpq.PriorityQueue) {
			for range 2 {
				f.applyAt(time.Now(), fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Minute})
			}
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := onlyWay(t)
			clock := newClock(time.Now())
			f.batcher.SetNow(clock.now)
			q, pop := f.queue("a"), fdbpq.Op{Kind: fdbpq.OpPop, Queue: f.queue("a")}
			f.apply(opPush(q, 1, "1"), opPush(q, 1, "2"), opPush(q, 1, "3"))
			f.apply(pop)
			test.do(f, q)
			clock.advance(time.Hour)
			// A len: pops would skip what has expired. The other pop makes a transaction that writes of it.
			r := f.apply(fdbpq.Op{Kind: fdbpq.OpLen, Queue: q}, fdbpq.Op{Kind: fdbpq.OpPop, Queue: f.queue("b")})
			wantEqual(t, "ready items", r[0].Len, test.ready)
		})
	}
}

// An item that comes back with its history is known to have been delivered.
func TestKnownHistories(t *testing.T) {
	f, _ := onlyWay(t)
	q := f.queue("a")
	lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Minute}
	f.apply(opPush(q, 1, "x"))
	for want := range int64(4) {
		r := f.apply(lease)[0]
		wantEqual(t, "deliveries", r.Lease.Deliveries, want+1)
		f.apply(fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: r.Lease.Token})
		if want == 2 { // it moves with its history
			f.apply(fdbpq.Op{Kind: fdbpq.OpMove, Queue: q, ID: r.Item.ID, Priority: 5})
		}
	}
	popped := f.apply(fdbpq.Op{Kind: fdbpq.OpPop, Queue: q})[0].Item
	f.apply(fdbpq.Op{Kind: fdbpq.OpPop, Queue: q})
	f.apply(opRestore(q, popped))
	wantEqual(t, "deliveries after it was restored", f.apply(lease)[0].Lease.Deliveries, 5)
}

// Leases are acknowledged, each once, whether there was room to remember them or not.
func TestKnownLeases(t *testing.T) {
	f, _ := onlyWay(t)
	q := f.queue("a")
	var tokens []fdbpq.Token
	for range 60 { // more than 5 MB
		f.apply(opPush(q, 1, strings.Repeat("x", 90_000)))
		tokens = append(tokens, f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Minute})[0].Lease.Token)
	}
	for i, token := range tokens {
		if i%2 == 0 {
			wantError(t, f.apply(fdbpq.Op{Kind: fdbpq.OpExtend, Queue: q, Token: token, Lease: time.Hour})[0].Err, nil)
		}
		wantError(t, f.apply(fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: token})[0].Err, nil)
		wantError(t, f.apply(fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: token})[0].Err, fdbpq.ErrLeaseLost)
	}
}

// Settings are in force with the next batch, also those that were known before.
func TestKnownSettings(t *testing.T) {
	f, _ := onlyWay(t)
	q, pop := f.queue("a"), fdbpq.Op{Kind: fdbpq.OpPop, Queue: f.queue("a")}
	f.apply(opPush(q, 1, "x"))
	f.apply(opPush(q, 1, "y"))
	f.configure(q, func(s *fdbpq.Settings) { s.PauseUntil = time.Now().Add(time.Hour) })
	wantError(t, f.apply(pop)[0].Err, fdbpq.ErrPaused)
	f.configure(q, func(s *fdbpq.Settings) { s.PauseUntil = time.Time{} })
	wantError(t, f.apply(pop)[0].Err, nil)
	write(f, func(tx kv.Transaction) {
		must(q.Configure(tx, func(s *fdbpq.Settings) { s.MaxItems = 1 }))
	})
	wantError(t, f.apply(opPush(q, 1, "z"))[0].Err, fdbpq.ErrFull)
}

// What a batch that was not committed would have written is not known to the next.
func TestKnownForgottenWithBatch(t *testing.T) {
	f, q, failing := failingCommits(t)
	pop := fdbpq.Op{Kind: fdbpq.OpPop, Queue: q}
	fail := func(ops ...fdbpq.Op) {
		t.Helper()
		failing.next = true
		if _, err := f.batcher.Apply(f.ctx, ops); err == nil {
			t.Fatal("the batch was committed")
		}
	}
	f.apply(opPush(q, 1, "x"), opPush(q, 1, "y"))
	f.apply(fdbpq.Op{Kind: fdbpq.OpLen, Queue: q}, fdbpq.Op{Kind: fdbpq.OpPeek, Queue: q})

	fail(fdbpq.Op{Kind: fdbpq.OpConfigure, Queue: q, Configure: func(s *fdbpq.Settings) { s.PauseUntil = time.Now().Add(time.Hour) }})
	wantError(t, f.apply(pop)[0].Err, nil)

	clock := newClock(time.Now())
	f.batcher.SetNow(clock.now)
	lease := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Minute})[0].Lease
	// It would leave nothing that falls due, and reads that.
	fail(fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: lease.Token}, pop)
	clock.advance(time.Hour)
	wantError(t, f.apply(pop)[0].Err, nil)
}

// failingCommits is a store whose commits fail on demand, without an effect.
func failingCommits(t *testing.T) (*fixture, *fdbpq.PriorityQueue, *commitFailer) {
	db := &commitFailer{Database: openPebble(t, vfs.NewMem())}
	f := newFixture(t, db, fdbpq.RawValues)
	return f, f.queue("a"), db
}

type commitFailer struct {
	kv.Database
	next   bool   // the next commit fails
	cancel func() // ends the context of the next commit, so that it fails; usually nil
}

var errCommit = errors.New("this commit fails")

func (c *commitFailer) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	tx, err := c.Database.Begin(ctx, o)
	return failingTransaction{tx, c}, err
}

type failingTransaction struct {
	kv.Transaction
	db *commitFailer
}

func (tx failingTransaction) Commit() kv.Future[struct{}] {
	if !tx.db.next {
		return tx.Transaction.Commit()
	}
	tx.db.next = false
	if tx.db.cancel != nil {
		tx.db.cancel()
		return tx.Transaction.Commit()
	}
	tx.Cancel()
	return kv.Ready(struct{}{}, errCommit)
}

// What the time index has for the present microsecond is due, though its time may have had a fraction more.
func TestKnownDueWithinMicrosecond(t *testing.T) {
	f, _ := onlyWay(t)
	q, now := f.queue("a"), time.Now().Truncate(time.Microsecond).Add(500*time.Nanosecond)
	f.batcher.SetNow(func() time.Time { return now })
	f.apply(opPush(q, 1, "x"))
	now = f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Minute})[0].Lease.Until
	// It could not learn of a NextDue either: that is of entries that are not due.
	wantError(t, f.apply(fdbpq.Op{Kind: fdbpq.OpPop, Queue: q, Waits: true})[0].Err, nil)
}
