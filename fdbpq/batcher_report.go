package fdbpq

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
)

// SetNow gives the Batcher another clock than time.Now, by which leases end and items fall due.
// Call it before the first Start.
func (b *Batcher) SetNow(now func() time.Time) { b.now = now }

// LimitMoved lowers the bytes that the leases of a batch may move; the default, and the most, is
// MaxMessageSize. One item may always move. An operation that finds no room results in ErrNoRoom.
// Call it before the first Start.
func (b *Batcher) LimitMoved(bytes int) { b.maxMoved = bytes }

// LimitReturned lowers the bytes of items that the pops, leases, peeks and OpGets of a batch may
// return together; the default, and the most, is MaxMessageSize. One item may always be returned.
// An operation that finds no room results in ErrNoRoom. The limit also bounds what a batch has in
// memory: a few times as much. Call it before the first Start.
func (b *Batcher) LimitReturned(bytes int) { b.maxReturned = bytes }

// LimitCache lowers about how many bytes the Batcher takes to know what is in the store, and need
// not read it again, where nobody else writes; the default is 32 MiB. Call it before the first
// Start.
func (b *Batcher) LimitCache(bytes int) {
	if b.cache != nil {
		b.cache = state.NewQueueCache(min(bytes, state.MaxQueueCache))
	}
}

// Reuse lets later batches use the memory of a slice that Wait has returned and that is not used
// any more. It does not affect what the elements refer to. It may be called at any time, at most
// once for each slice.
func (b *Batcher) Reuse(results []Result) {
	if cap(results) > 0 {
		clear(results)
		b.spare.Put(&results)
	}
}

// Conflicts returns how many attempts at batches have failed so far because another transaction had
// changed what they read. Each was repeated, unless its batch had no time left. It may be called at
// any time.
func (b *Batcher) Conflicts() int64 { return b.conflicts.Load() }

// SideEffects returns how many items batches have removed so far although no operation took or
// removed them. It counts each item once. If the store did not say whether a batch committed, its
// items count as soon as that is settled. It may be called at any time.
func (b *Batcher) SideEffects() SideEffects {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.effects
}

// Filled returns the queues of the Keyspace where there may now be items for waiting pops,
// although no operation of the batch added any: items came back, leases that counted for
// Settings.MaxLeased ran out, dead letters arrived. A queue may be named twice or, after faults of
// the store, without need. Call it after Wait, also after an error.
func (p *Pending) Filled() []QueueName { return p.filled }

// SideEffects returns what Batcher.SideEffects counts of this batch, by queue of the Keyspace;
// nothing for a batch of unknown outcome. Call it after Wait.
func (p *Pending) SideEffects() []QueueSideEffects {
	if p.err != nil || p.last == nil {
		return nil
	}
	return p.last.effectsBy
}

// Behind returns the queues of the Keyspace where more is due than the batch has handled. All other
// operations still run, so one queue with a large backlog of due items does not block the rest.
// Call it after Wait.
func (p *Pending) Behind() []QueueName { return p.behind }

// Upcoming returns when what the batch has written, or may have written, falls due. Queues may be
// named more than once. Call it after Wait, also after an error.
func (p *Pending) Upcoming() []QueueUpcoming { return p.upcoming }

// Ended returns the jobs of queues of the Keyspace that the batch has ended, or may have ended, by
// keeping them or as dead letters. Each is named with the queue in which it ended; one may be named
// twice. Look up what became of it. Call Ended after Wait, also after an error; after one that
// wraps kv.ErrCommitUnknown, look once the batch is settled.
func (p *Pending) Ended() []QueueJob { return p.ended }

// Failed returns the error of a batch that failed to start, and otherwise nil, without waiting.
// Only the caller of Start may call it, before another goroutine calls Wait.
func (p *Pending) Failed() error {
	if p.commit != nil {
		return nil
	}
	return p.err
}
