package fdbpq

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// Batcher applies batches of operations, each batch in one transaction, and
// finds out what became of a batch whose commit ended without an answer.
//
// It is used by one goroutine at a time; the Pending batches it returns may be
// waited for by others. Use as many Batchers as there are goroutines; batches
// of different ones that pop from the same queue may conflict, which costs
// time but nothing else.
//
// # Receipts
//
// Each batch that writes also reads and writes a key of its own, its receipt.
// When a commit ended without an answer (kv.ErrCommitUnknown), the batch is
// tried again under the same receipt: if the receipt is there, the batch was
// committed, by the attempt that the receipt names, and that attempt's results
// are returned. If it is not there, it was not committed so far; and since
// each attempt reads and writes the receipt, attempts conflict with each
// other, so an earlier one that is still in flight can no longer be committed
// once a later one is. A receipt is removed by the next batch after the one
// that it is for was answered.
type Batcher struct {
	db       kv.Database
	receipts tuple.Subspace // of this Batcher
	batches  int64          // number of batches begun
	now      func() time.Time

	mu struct {
		sync.Mutex
		answered  [][]byte    // receipts that nobody needs any more
		unsettled []unsettled // batches of unknown outcome
	}
}

// NewBatcher returns a Batcher for queues of k in db.
func NewBatcher(db kv.Database, k *Keyspace) *Batcher {
	lane := make([]byte, 16)
	_, _ = rand.Read(lane) // never returns an error: see crypto/rand
	return &Batcher{db: db, receipts: k.receipts().Sub(lane), now: time.Now}
}

// Start runs ops in one transaction. In an engine that pipelines (see
// kv.Database) it returns when the batch is ordered before all later ones, and
// the next Start need not wait for Pending.Wait of this one. In others it
// returns when all is done. Either way Wait must be called for each batch.
//
// A batch of peeks and lens only runs in a read-only transaction. In others
// all lens come first, then all pushes, then the pops of the front, then those
// of the back, then all peeks; within each of these the order of ops is kept.
// Since all operations of a batch are under way at the same time, each order is
// linearizable.
//
// Conflicts are retried until ctx ends. The ops and what they refer to must
// not be changed until Wait returned. Together they must fit into one
// transaction: the messages of the pushes must not be over MaxMessageSize in
// all, or kv.ErrTooLarge is the error of the whole batch.
func (b *Batcher) Start(ctx context.Context, ops []Op) *Pending {
	if readOnly(ops) {
		results, err := kv.ReadTransact(ctx, b.db, func(r kv.Reader) ([]Result, error) {
			return applyRead(r, ops)
		})
		return &Pending{results: results, err: err}
	}
	if err := b.Settle(ctx); err != nil {
		if kv.MaybeCommitted(err) { // the settling, not these ops
			err = ctx.Err()
		}
		return &Pending{err: fmt.Errorf("settling an earlier batch: %w", err)}
	}
	b.batches++
	p := &Pending{
		batcher:  b,
		ops:      ops,
		receipt:  b.receipts.Pack(tuple.Tuple{b.batches}),
		answered: b.takeAnswered(),
	}
	p.run(ctx)
	return p
}

// takeAnswered takes the receipts that the next batch is to remove.
func (b *Batcher) takeAnswered() [][]byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	keys := b.mu.answered
	b.mu.answered = nil
	return keys
}

// Apply is Start and Wait.
func (b *Batcher) Apply(ctx context.Context, ops []Op) ([]Result, error) {
	return b.Start(ctx, ops).Wait()
}

func readOnly(ops []Op) bool {
	for i := range ops {
		if ops[i].Kind.writes() {
			return false
		}
	}
	return true
}

// Pending is a batch that was started.
type Pending struct {
	batcher *Batcher
	ops     []Op
	receipt []byte
	// answered is receipts of earlier batches, removed by this one.
	answered [][]byte

	attempts int64     // made so far
	unknown  []attempt // those of unknown outcome

	wrote   bool                // the attempt that commit is for wrote something
	commit  kv.Future[struct{}] // not yet waited for, in an engine that pipelines
	results []Result
	popped  []inQueue // by the attempt that results are of
	err     error
}

// attempt is the results that one attempt at a batch would have.
type attempt struct {
	number  int64
	results []Result
	popped  []inQueue
}

// Wait waits until the batch is durable and returns one Result for each Op, in
// the order of the ops. Results may share bytes with each other.
//
// An error means that no operation took effect (kv.ErrUnavailable,
// kv.ErrClosed, the context's error), unless it wraps kv.ErrCommitUnknown:
// then the pushes may have happened and pops are undone by Settle.
func (p *Pending) Wait() ([]Result, error) {
	if p.commit != nil {
		_, err := p.commit.Get()
		p.commit = nil
		if kv.MaybeCommitted(err) {
			p.remember()
		}
		p.end(err)
	}
	return p.results, p.err
}

// run makes attempts until one is ordered or the batch has failed.
func (p *Pending) run(ctx context.Context) {
	var backoff kv.Backoff
	for {
		done, err := p.attempt(ctx)
		if done {
			return
		}
		retry := kv.Retryable(err) || kv.MaybeCommitted(err)
		if !retry {
			p.end(err)
			return
		}
		if ended := backoff.Wait(ctx); ended != nil {
			p.end(fmt.Errorf("%w after: %w", ended, err))
			return
		}
	}
}

// attempt makes one attempt. It is done when the outcome is known, or will be
// known by Wait.
func (p *Pending) attempt(ctx context.Context) (done bool, err error) {
	b := p.batcher
	tx, err := b.db.Begin(ctx)
	if err != nil {
		return false, err
	}
	defer tx.Cancel()
	if len(p.unknown) > 0 {
		committed, err := committedAttempt(tx, p.receipt, p.unknown)
		if err != nil {
			return false, err
		}
		if committed != nil {
			p.results, p.wrote = committed.results, true
			p.end(nil)
			return true, nil
		}
	}
	applied, err := apply(tx, p.ops, b.now())
	if err != nil {
		return false, err
	}
	p.results, p.popped, p.wrote = applied.results, applied.popped, applied.wrote
	p.attempts++
	if p.wrote || len(p.unknown) > 0 {
		p.wrote = true
		b.writeReceipt(tx, p.receipt, p.attempts, 0)
		for _, key := range p.answered {
			tx.Clear(key)
		}
	}
	commit := tx.Commit()
	if b.db.Pipelines() {
		p.commit = commit
		return true, nil
	}
	if _, err = commit.Get(); err != nil {
		if kv.MaybeCommitted(err) {
			p.remember()
		}
		return false, err
	}
	p.end(nil)
	return true, nil
}

// remember keeps the results of an attempt whose commit ended without an answer.
func (p *Pending) remember() {
	p.unknown = append(p.unknown, attempt{p.attempts, p.results, p.popped})
}

// end sets the outcome of the batch and tells the Batcher of it.
func (p *Pending) end(err error) {
	b := p.batcher
	if err == nil {
		p.noteListed()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil && p.wrote {
		b.mu.answered = append(b.mu.answered, p.receipt)
		return
	}
	b.mu.answered = append(b.mu.answered, p.answered...)
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
	u := unsettled{p.receipt, make(map[int64][]inQueue)}
	for _, a := range p.unknown {
		u.popped[a.number] = a.popped
	}
	b.mu.unsettled = append(b.mu.unsettled, u)
}

// noteListed notes that the queues that the batch pushed to are in the list of
// queues: it saw them there or put them there, and is durable itself.
func (p *Pending) noteListed() {
	for i := range p.ops {
		if p.ops[i].Kind != OpPush || p.results[i].Err != nil {
			continue
		}
		if l := p.ops[i].Queue.layout(); !l.listed.Load() {
			l.listed.Store(true)
		}
	}
}
