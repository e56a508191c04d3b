package fdbpq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Pending is a batch that Start has started.
type Pending struct {
	batcher *Batcher
	ctx     context.Context
	ops     []Op
	pushes  bool // only pushes, all without unique keys
	grouped bool // the same, and one has a group
	sighted bool // they read what they may have written
	shrinks bool // nothing that makes the store larger, but for dead letters
	receipt []byte
	// obsolete are receipts of earlier batches, which this one removes.
	obsolete [][]byte

	backoff kv.Backoff
	last    attempt   // or the one that has committed
	unknown []attempt // those whose outcome is unknown

	wrote    bool                // the attempt being committed wrote something
	commit   kv.Future[struct{}] // nil once the batch has ended
	waited   sync.Once
	ahead    []QueueAhead    // of all attempts
	filled   []QueueName     // the same
	behind   []QueueName     // by the last attempt
	listed   []*codec.Layout // queues that it found in the list of queues, or added
	readFrom time.Time       // when it began to read, at the latest
	err      error
}

// Wait waits until the batch is durable, and returns one Result for each Op, in the order of ops.
// Results may share bytes with each other. Wait may be called more than once, and by several
// goroutines.
//
// After an error (kv.ErrUnavailable, kv.ErrClosed, the context's error) no operation took effect,
// unless the error wraps kv.ErrCommitUnknown: then the pushes may have happened, and Settle undoes
// the pops and sees to the restores.
func (p *Pending) Wait() ([]Result, error) {
	p.waited.Do(p.finish)
	return p.last.results, p.err
}

// finish waits for the commit. In an engine that does not pipeline it makes further attempts if
// necessary, because no later batch has started.
func (p *Pending) finish() {
	for p.commit != nil {
		_, err := p.commit.Get()
		p.commit = nil
		if kv.MaybeCommitted(err) {
			p.unknown = append(p.unknown, p.last)
		}

		if err == nil || p.batcher.db.Traits().Pipelines {
			p.complete(err)
		} else if p.waitToRetry(err) {
			p.commitUntilOrdered()
		}
	}
}

// commitUntilOrdered makes attempts until one is being committed, or the batch has ended. It
// returns the counts after those of the last attempt.
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

// waitToRetry waits before the next attempt after err. It returns false, and ends the batch, if
// there must not be one.
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

// runOps makes an attempt up to its commit; pushed items get counts of at least minCounts. It
// returns nil, and ends the batch, if an earlier attempt turns out to have committed.
func (p *Pending) runOps(minCounts state.CountsByQueue) (a *openAttempt, err error) {
	since := p.batcher.now()
	tx, err := p.batcher.db.Begin(p.ctx, kv.BeginOptions{Blind: p.blind(), Shrinks: p.shrinks})
	if err != nil {
		return nil, err
	}
	defer func() {
		if a == nil {
			tx.Cancel()
		}
	}()

	if len(p.unknown) > 0 {
		if ended, err := p.endAsBefore(tx); ended || err != nil {
			return nil, err
		}
	}

	// The time comes after Begin, which fixes what the transaction reads. If the process stood still
	// in between, an older time would grant leases that are over.
	applied := newTxOps(tx, p.ops, p.batcher.newResults(len(p.ops)), p.batcher.now())
	applied.pushes.minCounts = minCounts
	applied.moving.most, applied.returned.Most = p.batcher.room, p.batcher.returned
	applied.blind = p.blind()
	p.batcher.known.BeginTransaction(tx)
	applied.known = p.batcher.known

	if err := applied.apply(); errors.Is(err, errBlind) {
		tx.Cancel()
		p.sighted = true
		return p.runOps(minCounts)
	} else if err != nil {
		return nil, err
	}
	return &openAttempt{tx, since, applied}, nil
}

// endAsBefore ends the batch with the results of an earlier attempt of unknown outcome, if one has
// committed.
func (p *Pending) endAsBefore(tx kv.Transaction) (ended bool, err error) {
	committed, err := committedAttempt(tx, p.receipt, p.unknown)
	if err != nil || committed == nil {
		return false, err
	}

	// Its writes may not be durable yet: a transaction can read them before.
	if _, err := tx.Commit().Get(); err != nil {
		return false, err
	}
	p.last, p.wrote, p.listed = *committed, true, nil
	p.complete(nil)
	return true, nil
}

// blind reports whether its transaction may be blind: whether it reads everything before its first
// write.
func (p *Pending) blind() bool { return p.pushes && !p.sighted }

// startCommit starts to commit the attempt, and returns the counts after its own.
func (p *Pending) startCommit(a *openAttempt) state.CountsByQueue {
	p.last = attempt{p.last.number + 1, a.results, a.popped, a.removed}
	p.wrote, p.listed, p.readFrom = a.wrote, a.pushes.listed, a.readFrom
	p.filled, p.behind = append(p.filled, a.filled()...), a.behind()
	for _, q := range a.queues {
		p.ahead = q.ledger.AppendAhead(p.ahead)
	}
	p.ahead = a.dead.AppendAhead(p.ahead)

	if p.wrote || len(p.unknown) > 0 {
		p.wrote = true
		writeReceipt(a.tx, p.receipt, p.batcher.now(), p.last.number, 0)
		for _, key := range p.obsolete {
			a.tx.Clear(key)
		}
	}

	if known := p.batcher.known; known.Any() {
		known.LearnCounts(a.pushes.nextCounts, a.onlyPushesAdd())
	}
	p.commit = a.tx.Commit()
	return a.pushes.nextCounts
}

// complete ends the batch with err, and updates the Batcher.
func (p *Pending) complete(err error) {
	b := p.batcher
	if err == nil { // the queues that it found in the list, or put there, are durably there
		since := p.readFrom // a copy, because the queues keep it
		for _, l := range p.listed {
			l.ListedSince.Store(&since)
		}
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.newest == p {
		b.mu.newest = nil
	}
	if err == nil {
		b.mu.removed.Add(p.last.removed)
	}
	if err == nil && p.wrote {
		b.mu.obsolete = append(b.mu.obsolete, p.receipt)
		return
	}
	b.mu.obsolete = append(b.mu.obsolete, p.obsolete...) // the next batch tries to remove them
	if err == nil {
		return
	}

	p.last.results, p.err = nil, err
	if len(p.unknown) == 0 {
		return
	}
	if !kv.MaybeCommitted(err) {
		p.err = fmt.Errorf("%w: %w", kv.ErrCommitUnknown, err)
	}
	u := unsettled{
		receipt: p.receipt,
		restore: map[int64][]state.TakenItem{noAttempt: restoresOf(p.ops)},
		removed: map[int64]Removed{},
		gone:    map[int64]Removed{},
		at:      b.now(),
	}
	for _, a := range p.unknown {
		u.restore[a.number], u.removed[a.number] = a.popped, a.removed
	}
	b.mu.unsettled = append(b.mu.unsettled, u)
}

// Filled returns the queues of the Keyspace where there may now be items for waiting pops,
// although no operation of the batch added any: items came back, leases that counted for
// Settings.MaxLeased ran out, dead letters arrived. Some may be named twice or, after faults of the
// store, without need. Call it after Wait, also after an error.
func (p *Pending) Filled() []QueueName { return p.filled }

// Behind returns the queues of the Keyspace where more is due than the batch has handled. All other
// operations still run, so one queue with a large backlog of due items does not block the rest. Call
// it after Wait.
func (p *Pending) Behind() []QueueName { return p.behind }

// Ahead returns when what the batch has written, or may have written, falls due. Queues may be named
// more than once. Call it after Wait, also after an error.
func (p *Pending) Ahead() []QueueAhead { return p.ahead }

// Failed returns the error of a batch that failed to start, and otherwise nil, without waiting.
// Only the caller of Start may call it, before another goroutine calls Wait.
func (p *Pending) Failed() error {
	if p.commit != nil {
		return nil
	}
	return p.err
}
