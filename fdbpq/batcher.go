package fdbpq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// Batcher runs batches of operations, each in one transaction, and finds out what became of
// commits of unknown outcome.
//
// A Batcher is used by one goroutine at a time; others may wait for the Pending batches it
// returns. Give each goroutine its own. Batches of different Batchers that pop from the
// same queue may conflict, which costs time but nothing else.
//
// # Receipts
//
// Each batch that writes also reads and writes a key of its own, its receipt. After a commit
// of unknown outcome (kv.ErrCommitUnknown), the Batcher makes another attempt with the same
// receipt. If the receipt is in the store, an earlier attempt has committed; the receipt
// says which one, and the results of that attempt are returned. If it is not, no attempt
// has committed yet. And since every attempt reads and writes the receipt, attempts conflict:
// once one commits, no earlier one can. After a batch has its results, the next batch
// removes its receipt.
type Batcher struct {
	db       kv.Database
	receipts tuple.Subspace // of this Batcher
	now      func() time.Time
	room     int // see LimitRoom
	returned int // see LimitReturned

	removed state.RemovedSoFar

	conflicts atomic.Int64 // see Conflicts

	batchCount int64               // batches started
	nextCounts state.CountsByQueue // the counts after those of the newest batch, if its first attempt commits
	known      *state.Known        // nil if the engine has no turns

	mu struct {
		sync.Mutex
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

// SetNow gives the Batcher another clock than time.Now, by which leases end and items fall
// due. Call it before the first Start.
func (b *Batcher) SetNow(now func() time.Time) { b.now = now }

// Conflicts returns how many attempts at batches failed so far because another transaction had changed what they
// read. Each was repeated, unless its batch had no time left. It may be called at any time.
func (b *Batcher) Conflicts() int64 { return b.conflicts.Load() }

// LimitRoom lowers the bytes that the leases of a batch may move, see ErrNoRoom; the default, and the most, is
// MaxMessageSize. Tests do that to fill transactions with small items. One of more than 100,000 bytes may then never find
// the room to become a dead letter. Call it before the first Start.
func (b *Batcher) LimitRoom(bytes int) { b.room = bytes }

// LimitReturned lowers the bytes of items that the pops, leases, peeks and OpGets of a batch may return together; the
// default, and the most, is MaxMessageSize. One item may always be larger. An operation that finds no room results in
// ErrNoRoom. It also bounds what a batch has in memory: a few times as much. Call it before the first Start.
func (b *Batcher) LimitReturned(bytes int) { b.returned = bytes }

// Start runs ops in one transaction. It returns once this batch is ordered before any later
// one, so the next Start need not wait for this batch's Wait. Call Wait for each batch.
//
// In an engine that does not pipeline (see kv.Database), Start first waits for the previous
// batch. If both batches only push, and the engine is not serial, it does this batch's
// reads meanwhile.
//
// A batch of only peeks, lens, infos, OpGet, OpRank and OpSettings runs in a read-only
// transaction. In any other, settings come first, then all lens, infos, OpGets and OpRanks, then
// all pushes, then restores, then the operations with tokens, then removes, moves, purges and
// redrives, then the pops and leases, then all peeks. Operations of one of
// these groups keep the order of ops: of two pops of one queue, from whichever ends, the first
// in ops is served first. All operations of a batch are concurrent, so each order is
// linearizable.
//
// Start retries conflicts until ctx ends; ending ctx before Wait has returned gives the
// batch up. Do not change ops, or what they refer to, until Wait has returned. All ops must
// fit into one transaction: if the messages of the pushes are larger than MaxMessageSize
// together, the whole batch may fail with kv.ErrTooLarge.
func (b *Batcher) Start(ctx context.Context, ops []Op) *Pending {
	p := &Pending{batcher: b, ctx: ctx, ops: ops, pushes: len(ops) > 0 && onlyPushes(ops), shrinks: onlyShrink(ops)}
	if p.pushes && slices.ContainsFunc(ops, func(op Op) bool { return op.Message.Unique != "" }) {
		p.pushes = false // they bring back what is due, and read what that may have written
	}
	early := b.startEarly(p)
	if readOnly(ops) {
		now, due := b.now(), []*codec.Layout(nil)
		p.results, p.err = kv.ReadTransact(ctx, b.db, func(r kv.Reader) (results []Result, err error) {
			results, due, err = read(r, ops, &now, b.returned)
			return results, err
		})
		if p.err != nil || len(due) == 0 {
			return p
		}
		p.results = nil // a transaction that writes has to bring back what is due
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
	p.obsolete = b.makeNewest(p)
	if early != nil {
		b.nextCounts = p.startCommit(early)
	} else {
		b.nextCounts = p.commitUntilOrdered()
	}
	return p
}

// startEarly waits for the batch before p, if the engine does not pipeline. If both only
// push, it meanwhile runs p up to its commit: the reads of p matter only for the counts in
// use, and b.nextCounts has those that the earlier batch adds. It returns nil if p has yet
// to run.
func (b *Batcher) startEarly(p *Pending) (early *openAttempt) {
	b.mu.Lock()
	before := b.mu.newest
	b.mu.Unlock()
	if before == nil || b.db.Traits().Pipelines {
		return nil
	}
	if before.pushes && p.pushes && !b.db.Traits().Serial {
		early, _ = p.runOps(b.nextCounts) // the regular attempt reports an error
	}
	if _, err := before.Wait(); early != nil && (err != nil || before.attempts > 1 || early.pushes.limited) {
		// Its counts are not those in b.nextCounts, or it would conflict with the earlier batch.
		early.tx.Cancel()
		return nil
	}
	return early
}

// makeNewest makes p the newest batch, and returns the receipts that it should remove.
func (b *Batcher) makeNewest(p *Pending) (obsolete [][]byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.newest = p
	obsolete, b.mu.obsolete = b.mu.obsolete, nil
	return obsolete
}

// Apply runs ops in one transaction and waits for it: Start, then Wait.
func (b *Batcher) Apply(ctx context.Context, ops []Op) ([]Result, error) {
	return b.Start(ctx, ops).Wait()
}

// Pending is a batch that Start has started.
type Pending struct {
	batcher *Batcher
	ctx     context.Context
	ops     []Op
	pushes  bool // only pushes, all without unique keys
	sighted bool // they read what they may have written
	shrinks bool // nothing that makes the store larger, but for dead letters
	receipt []byte
	// obsolete are receipts of earlier batches, which this one removes.
	obsolete [][]byte

	backoff  kv.Backoff
	attempts int64            // whose commit has started
	unknown  []unknownAttempt // those whose outcome is unknown

	wrote    bool                // the attempt being committed wrote something
	commit   kv.Future[struct{}] // nil once the batch has ended
	waited   sync.Once
	results  []Result
	popped   []state.TakenItem // by the attempt that gave results
	removed  Removed           // the same
	ahead    []QueueAhead      // of all attempts
	filled   []QueueName       // the same
	behind   []QueueName       // by the last attempt
	listed   []*codec.Layout   // queues that it found in the list of queues, or added
	readFrom time.Time         // when it began to read, at the latest
	err      error
}

// unknownAttempt is an attempt of unknown outcome, with its results.
type unknownAttempt struct {
	number  int64
	results []Result
	popped  []state.TakenItem
	removed Removed
}

// Wait waits until the batch is durable, and returns one Result for each Op, in the order
// of ops. Results may share bytes with each other. Wait may be called more than once, and by
// several goroutines.
//
// After an error (kv.ErrUnavailable, kv.ErrClosed, the context's error) no operation took
// effect, unless the error wraps kv.ErrCommitUnknown: then the pushes may have happened, and
// Settle undoes the pops and sees to the restores.
func (p *Pending) Wait() ([]Result, error) {
	p.waited.Do(p.finish)
	return p.results, p.err
}

// finish waits for the commit. In an engine that does not pipeline it makes further
// attempts if necessary, because no later batch has started.
func (p *Pending) finish() {
	for p.commit != nil {
		_, err := p.commit.Get()
		p.commit = nil
		if kv.MaybeCommitted(err) {
			p.remember()
		}
		if err == nil || p.batcher.db.Traits().Pipelines {
			p.complete(err)
		} else if p.waitToRetry(err) {
			p.commitUntilOrdered()
		}
	}
}

// commitUntilOrdered makes attempts until one is being committed, or the batch has ended.
// It returns the counts after those of the last attempt.
func (p *Pending) commitUntilOrdered() state.CountsByQueue {
	for {
		a, err := p.runOps(nil)
		switch {
		case err == nil && a == nil: // an earlier attempt has committed
			return nil
		case err == nil:
			return p.startCommit(a)
		case !p.waitToRetry(err):
			return nil
		}
	}
}

// waitToRetry waits before the next attempt after err. It returns false, and ends the batch,
// if there must not be one.
func (p *Pending) waitToRetry(err error) bool {
	if !kv.Retryable(err) && !kv.MaybeCommitted(err) {
		p.complete(err)
		return false
	}
	if errors.Is(err, kv.ErrConflict) {
		p.batcher.conflicts.Add(1)
	}
	if ended := p.backoff.Wait(p.ctx); ended != nil {
		p.complete(fmt.Errorf("%w after: %w", ended, err))
		return false
	}
	return true
}

// openAttempt is an attempt that is not committed yet.
type openAttempt struct {
	tx       kv.Transaction
	readFrom time.Time // when it began to read, at the latest
	*txOps
}

// runOps makes an attempt up to its commit; pushed items get counts of at least minCounts.
// It returns nil, and ends the batch, if an earlier attempt turns out to have committed.
func (p *Pending) runOps(minCounts state.CountsByQueue) (a *openAttempt, err error) {
	since := p.batcher.now()
	tx, err := p.transaction()
	if err != nil {
		return nil, err
	}
	defer func() {
		if a == nil {
			tx.Cancel()
		}
	}()
	if len(p.unknown) > 0 {
		committed, err := committedAttempt(tx, p.receipt, p.unknown)
		if err != nil {
			return nil, err
		}
		if committed != nil {
			// Its writes may not be durable yet: a transaction can read them before.
			if _, err := tx.Commit().Get(); err != nil {
				return nil, err
			}
			p.results, p.wrote, p.listed = committed.results, true, nil
			p.removed = committed.removed
			p.complete(nil)
			return nil, nil
		}
	}
	applied := newTxOps(tx, p.ops, p.batcher.now())
	applied.pushes.minCounts = minCounts
	applied.moving.most, applied.returned.Most = p.batcher.room, p.batcher.returned
	applied.blind = p.blind()
	p.batcher.known.Begin(tx)
	applied.useKnown(p.batcher.known)
	if err := applied.apply(); errors.Is(err, errBlind) {
		tx.Cancel()
		p.sighted = true
		return p.runOps(minCounts)
	} else if err != nil {
		return nil, err
	}
	return &openAttempt{tx, since, applied}, nil
}

// blind reports whether its transaction may be blind.
func (p *Pending) blind() bool { return p.pushes && !p.sighted }

func (p *Pending) transaction() (kv.Transaction, error) {
	// A batch of pushes reads everything before its first write.
	return p.batcher.db.Begin(p.ctx, kv.BeginOptions{Blind: p.blind(), Shrinks: p.shrinks})
}

// startCommit starts to commit the attempt, and returns the counts after its own.
func (p *Pending) startCommit(a *openAttempt) state.CountsByQueue {
	p.results, p.popped, p.wrote, p.removed = a.results, a.pops.popped, a.wrote, a.removed
	p.listed, p.readFrom = a.pushes.listed, a.readFrom
	p.filled, p.behind = append(p.filled, a.filled()...), a.behind()
	for _, q := range a.queues {
		p.ahead = q.ledger.AppendAhead(p.ahead)
	}
	p.attempts++
	if p.wrote || len(p.unknown) > 0 {
		p.wrote = true
		p.batcher.writeReceipt(a.tx, p.receipt, p.attempts, 0)
		for _, key := range p.obsolete {
			a.tx.Clear(key)
		}
	}
	a.learnCounts()
	p.commit = a.tx.Commit()
	return a.pushes.nextCounts
}

// remember keeps the results of an attempt of unknown outcome.
func (p *Pending) remember() {
	p.unknown = append(p.unknown, unknownAttempt{p.attempts, p.results, p.popped, p.removed})
}

// complete ends the batch with err, and updates the Batcher.
func (p *Pending) complete(err error) {
	b := p.batcher
	if err == nil {
		p.noteListed()
		b.removed.Add(p.removed)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.newest == p {
		b.mu.newest = nil
	}
	if err == nil && p.wrote {
		b.mu.obsolete = append(b.mu.obsolete, p.receipt)
		return
	}
	b.mu.obsolete = append(b.mu.obsolete, p.obsolete...)
	if err == nil {
		return
	}
	p.results, p.err = nil, err
	if len(p.unknown) == 0 {
		return
	}
	if !kv.MaybeCommitted(err) {
		p.err = fmt.Errorf("%w: %w", kv.ErrCommitUnknown, err)
	}
	u := unsettled{
		receipt: p.receipt, restore: map[int64][]state.TakenItem{noAttempt: restoresOf(p.ops)}, removed: map[int64]Removed{}, gone: map[int64]Removed{},
	}
	for _, a := range p.unknown {
		u.restore[a.number], u.removed[a.number] = a.popped, a.removed
	}
	b.mu.unsettled = append(b.mu.unsettled, u)
}

// Filled returns the queues of the Keyspace to which the batch brought items without an operation that does: items
// came back, or ended a lease that counted for Settings.MaxLeased, and dead letters arrived. So whoever waits there can
// be told. Some may be named twice or, after faults of the store, without need. Call it after Wait, also after an error.
func (p *Pending) Filled() []QueueName { return p.filled }

// noteListed records which queues are in the list of queues, now that the batch that found
// or put them there is durable.
func (p *Pending) noteListed() {
	since := p.readFrom // a copy, because the queues keep it
	for _, l := range p.listed {
		l.ListedSince.Store(&since)
	}
}

// Failed returns the error of a batch that failed to start, and otherwise nil, without
// waiting. Only the caller of Start may call it, before another goroutine calls Wait.
func (p *Pending) Failed() error {
	if p.commit != nil {
		return nil
	}
	return p.err
}
