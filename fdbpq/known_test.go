package fdbpq_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

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
