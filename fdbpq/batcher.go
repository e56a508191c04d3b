package fdbpq

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// Batcher runs batches of operations, each in one transaction, and finds out what became of commits
// of unknown outcome.
//
// A Batcher is used by one goroutine at a time; others may wait for the Pending batches it returns.
// Give each goroutine its own. Batches of different Batchers that pop from the same queue may
// conflict, which costs time but nothing else.
//
// # Receipts
//
// Each batch that writes also reads and writes a key of its own, its receipt, so its attempts
// conflict: once one commits, no earlier one can. After a commit of unknown outcome
// (kv.ErrCommitUnknown), the Batcher makes another attempt. If the receipt is in the store, it says
// which earlier attempt has committed, and the batch ends with the results of that one. The next
// batch removes the receipt.
type Batcher struct {
	db       kv.Database
	receipts tuple.Subspace // of this Batcher
	now      func() time.Time
	room     int // see LimitRoom
	returned int // see LimitReturned

	conflicts atomic.Int64 // see Conflicts

	batchCount int64               // batches started
	nextCounts state.CountsByQueue // the counts after those of the newest batch, if its first attempt commits
	known      *state.Known        // nil if the engine has no turns
	spare      sync.Pool           // of *[]Result, all zero

	mu struct {
		sync.Mutex
		removed   Removed     // see Removed
		newest    *Pending    // the last batch started, nil once it has ended
		obsolete  [][]byte    // receipts to remove
		unsettled []unsettled // batches of unknown outcome
	}
}

// NewBatcher returns a Batcher for queues of k in db.
func NewBatcher(db kv.Database, k *Keyspace) *Batcher {
	b := &Batcher{db: db, receipts: k.newReceipts(), now: time.Now, room: MaxMessageSize, returned: MaxMessageSize}
	// Where batches do not pipeline, Wait may make attempts while Start makes one.
	if t := db.Traits(); t.Serial && t.Pipelines && !t.Shared {
		b.known = &state.Known{}
	}
	return b
}

// SetNow gives the Batcher another clock than time.Now, by which leases end and items fall due.
// Call it before the first Start.
func (b *Batcher) SetNow(now func() time.Time) { b.now = now }

// Conflicts returns how many attempts at batches failed so far because another transaction had
// changed what they read. Each was repeated, unless its batch had no time left. It may be called at
// any time.
func (b *Batcher) Conflicts() int64 { return b.conflicts.Load() }

// Removed returns how many items batches have removed so far although no operation took or removed
// them. It counts each item once, also if the store did not say whether a batch committed, as soon
// as that is settled. It may be called at any time.
func (b *Batcher) Removed() Removed {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.removed
}

// LimitRoom lowers the bytes that the leases of a batch may move; the default, and the most, is
// MaxMessageSize. One item may always move. An operation that finds no room results in ErrNoRoom.
// Call it before the first Start.
func (b *Batcher) LimitRoom(bytes int) { b.room = bytes }

// LimitReturned lowers the bytes of items that the pops, leases, peeks and OpGets of a batch may
// return together, as LimitRoom does. It also bounds what a batch has in memory: a few times as
// much.
func (b *Batcher) LimitReturned(bytes int) { b.returned = bytes }

// Start runs ops in one transaction. It returns once this batch is ordered before any later one, so
// the next Start need not wait for this batch's Wait. Call Wait for each batch.
//
// In an engine that does not pipeline (see kv.Database), Start first waits for the previous batch.
// If both batches only push, and the engine is not serial, it does this batch's reads meanwhile.
//
// A batch of only peeks, lens, infos, OpGet, OpRank, OpSettings, OpConsumers and OpSchedules runs in a read-only
// transaction. Any other runs in this order, and operations of one kind in the order of ops,
// whichever end they are for:
//
//  1. settings, and then consumers and schedules
//  2. lens, infos, OpGets, OpRanks and OpSweeps
//  3. pushes
//  4. restores
//  5. operations with tokens
//  6. removes, moves, redrives, releases and purges
//  7. pops and leases
//  8. peeks
//
// All operations of a batch are concurrent, so each order is linearizable.
//
// Start retries conflicts until ctx ends; ending ctx before Wait has returned gives the batch up.
// Do not change ops, or what they refer to, until Wait has returned. All ops must fit into one
// transaction: if the messages of the pushes are larger than MaxMessageSize together, the whole
// batch may fail with kv.ErrTooLarge.
func (b *Batcher) Start(ctx context.Context, ops []Op) *Pending {
	p := &Pending{batcher: b, ctx: ctx, ops: ops, pushes: len(ops) > 0 && onlyPushes(ops), shrinks: onlyShrink(ops)}
	if p.pushes && anyOp(ops, func(op *Op) bool { return op.Message.Unique != "" }) {
		p.pushes = false // they bring back what is due, and read what that may have written
	}
	p.grouped = p.pushes && anyOp(ops, func(op *Op) bool { return op.Message.Group() != "" })

	early := b.startEarly(p)
	if readOnly(ops) {
		now, due := b.now(), []*codec.Layout(nil)
		p.last.results, p.err = kv.ReadTransact(ctx, b.db, func(r kv.Reader) (results []Result, err error) {
			results, due, err = read(r, ops, &now, b.returned)
			return results, err
		})
		if p.err != nil || len(due) == 0 {
			return p
		}
		p.last.results = nil // a transaction that writes has to bring back what is due
	}

	if err := b.Settle(ctx); err != nil {
		if early != nil {
			early.tx.Cancel()
		}
		if kv.MaybeCommitted(err) { // of the earlier batch, not of this one
			err = ctx.Err()
		}
		p.err = fmt.Errorf("settling an earlier batch: %w", err)
		return p
	}

	b.batchCount++
	p.receipt = b.receipts.Pack(tuple.Tuple{b.batchCount})
	b.mu.Lock()
	b.mu.newest = p
	p.obsolete, b.mu.obsolete = b.mu.obsolete, nil
	b.mu.Unlock()
	if early != nil {
		b.nextCounts = p.startCommit(early)
	} else {
		b.nextCounts = p.commitUntilOrdered()
	}
	return p
}

// startEarly waits for the batch before p, if the engine does not pipeline. If both only push, it
// meanwhile runs p up to its commit: the reads of p matter only for the counts in use, and
// b.nextCounts has those that the earlier batch adds. The counts of groups it does not have. It returns nil if p has yet to run.
func (b *Batcher) startEarly(p *Pending) (early *openAttempt) {
	b.mu.Lock()
	before := b.mu.newest
	b.mu.Unlock()
	if before == nil || b.db.Traits().Pipelines {
		return nil
	}

	if before.pushes && p.pushes && !p.grouped && !b.db.Traits().Serial {
		early, _ = p.runOps(b.nextCounts) // the regular attempt reports an error
	}
	if _, err := before.Wait(); early != nil && (err != nil || before.last.number > 1 || early.pushes.limited) {
		// Its counts are not those in b.nextCounts, or it would conflict with the earlier batch.
		early.tx.Cancel()
		return nil
	}
	return early
}

// Apply runs ops in one transaction and waits for it: Start, then Wait.
func (b *Batcher) Apply(ctx context.Context, ops []Op) ([]Result, error) {
	return b.Start(ctx, ops).Wait()
}

// newResults returns n results, all zero.
func (b *Batcher) newResults(n int) []Result {
	if spare, ok := b.spare.Get().(*[]Result); ok && cap(*spare) >= n {
		return (*spare)[:n]
	}
	return make([]Result, n)
}

// Reuse lets later batches use the memory of a slice that Wait has returned and nobody uses any more.
// What its elements refer to is not affected. It may be called at any time, once for each slice or not
// at all.
func (b *Batcher) Reuse(results []Result) {
	if cap(results) > 0 {
		clear(results)
		b.spare.Put(&results)
	}
}
