package fdbpq

import (
	"context"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Batcher applies batches of operations, each batch in one transaction, and
// finds out what became of a batch whose commit ended without an answer.
//
// It is used by one goroutine at a time; the Pending batches it returns may be
// waited for by others. Use as many Batchers as there are goroutines; batches
// of different ones that pop from the same queue may conflict, which costs
// time but nothing else.
type Batcher struct {
}

// NewBatcher returns a Batcher for queues of k in db.
func NewBatcher(db kv.Database, k *Keyspace) *Batcher { return nil }

// Start applies ops in one transaction. In an engine that pipelines (see
// kv.Database) it returns when the batch is ordered before all later ones, and
// the next Start need not wait for Pending.Wait of this one. In others it
// returns when all is done. Either way Wait must be called for each batch.
//
// A batch of peeks and lens only runs in a read-only transaction. In others
// all lens come first, then all pushes, then all pops, then all peeks; within
// each of these the order of ops is kept. Since all operations of a batch are
// under way at the same time, each order is linearizable.
//
// Conflicts are retried until ctx ends. The ops and what they refer to must
// not be changed until Wait returned.
func (b *Batcher) Start(ctx context.Context, ops []Op) *Pending { return nil }

// Apply is Start and Wait.
func (b *Batcher) Apply(ctx context.Context, ops []Op) ([]Result, error) {
	return b.Start(ctx, ops).Wait()
}

// Settle resolves the last batch if its outcome is unknown: it makes sure that
// the batch will not be committed any more, or, if it was committed, puts
// back at their old places the items it popped, since nobody was given them.
// Pushes stay. Start settles by itself before it does anything else; call
// Settle to have items back without waiting for the next batch. It retries
// until ctx ends, and does nothing when there is nothing to settle.
func (b *Batcher) Settle(ctx context.Context) error { return nil }

// SweepReceipts removes the receipts that Batchers of dead processes left
// behind and that are older than age. Age must be longer than any batch may
// take, so hours rather than seconds.
func SweepReceipts(ctx context.Context, db kv.Database, k *Keyspace, age time.Duration) error {
	return nil
}

// Pending is a batch that was started.
type Pending struct{}

// Wait waits until the batch is durable and returns one Result for each Op, in
// the order of the ops.
//
// An error means that no operation took effect (kv.ErrUnavailable,
// kv.ErrClosed, the context's error), unless it wraps kv.ErrCommitUnknown:
// then the pushes may have happened and pops are undone by Settle.
func (p *Pending) Wait() ([]Result, error) { return nil, nil }
