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
	now      func() time.Time

	batches    int64         // number of batches begun
	nextCounts countsByQueue // that follow those of the newest batch's first attempt

	mu struct {
		sync.Mutex
		newest    *Pending    // begun last, nil if it is over
		obsolete  [][]byte    // receipts that nobody needs any more
		unsettled []unsettled // batches of unknown outcome
	}
}

// NewBatcher returns a Batcher for queues of k in db.
func NewBatcher(db kv.Database, k *Keyspace) *Batcher {
	lane := make([]byte, 16)
	_, _ = rand.Read(lane) // never returns an error: see crypto/rand
	return &Batcher{db: db, receipts: k.receipts.Sub(lane), now: time.Now}
}

// Start runs ops in one transaction. It returns when the batch comes before all
// that are started later, so the next Start need not wait for Pending.Wait of
// this one. Wait must be called for each batch.
//
// In an engine that does not pipeline (see kv.Database) Start first waits for
// the batch before. If both only push, and the engine is not serial, it reads
// meanwhile what this one has to know.
//
// A batch of peeks and lens only runs in a read-only transaction. In others
// all lens come first, then all pushes, then the pops of the front, then those
// of the back, then all peeks; within each of these the order of ops is kept.
// Since all operations of a batch are under way at the same time, each order is
// linearizable.
//
// Conflicts are retried until ctx ends, which must not be before Wait returned
// unless the batch is to be given up. The ops and what they refer to must
// not be changed until Wait returned. Together they must fit into one
// transaction: the messages of the pushes must not be over MaxMessageSize in
// all, or kv.ErrTooLarge is the error of the whole batch.
func (b *Batcher) Start(ctx context.Context, ops []Op) *Pending {
	p := &Pending{batcher: b, ctx: ctx, ops: ops, pushes: len(ops) > 0 && onlyPushes(ops)}
	early := b.startEarly(p)
	if readOnly(ops) {
		p.results, p.err = kv.ReadTransact(ctx, b.db, func(r kv.Reader) ([]Result, error) {
			return Read(r, ops)
		})
		return p
	}
	if err := b.Settle(ctx); err != nil {
		if early != nil {
			early.tx.Cancel()
		}
		if kv.MaybeCommitted(err) { // the settling, not these ops
			err = ctx.Err()
		}
		p.err = fmt.Errorf("settling an earlier batch: %w", err)
		return p
	}
	b.batches++
	p.receipt = b.receipts.Pack(tuple.Tuple{b.batches})
	p.obsolete = b.register(p)
	if early != nil {
		b.nextCounts = p.startCommit(early)
	} else {
		b.nextCounts = p.commitUntilOrdered()
	}
	return p
}

// startEarly waits for the batch before p, if the engine does not pipeline. If
// both only push, p is run up to its commit meanwhile: all that matters of what it
// reads is which counts are in use, and it is told what the batch before adds to
// that. It returns nil if p has yet to be run.
func (b *Batcher) startEarly(p *Pending) (early *openAttempt) {
	b.mu.Lock()
	before := b.mu.newest
	b.mu.Unlock()
	if before == nil || b.db.Traits().Pipelines {
		return nil
	}
	if before.pushes && p.pushes && !b.db.Traits().Serial {
		early, _ = p.runOps(b.nextCounts) // an error will come again
	}
	if _, err := before.Wait(); early != nil && (err != nil || before.attempts > 1) {
		// It has not left the counts that p was told of.
		early.tx.Cancel()
		return nil
	}
	return early
}

// register makes p the newest batch, and returns the receipts that it is to
// remove.
func (b *Batcher) register(p *Pending) (answered [][]byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.newest = p
	answered, b.mu.obsolete = b.mu.obsolete, nil
	return answered
}

// Apply is Start and Wait.
func (b *Batcher) Apply(ctx context.Context, ops []Op) ([]Result, error) {
	return b.Start(ctx, ops).Wait()
}

func readOnly(ops []Op) bool {
	return all(ops, func(k OpKind) bool { return !k.writes() })
}

func onlyPushes(ops []Op) bool {
	return all(ops, func(k OpKind) bool { return k == OpPush })
}

func all(ops []Op, are func(OpKind) bool) bool {
	for i := range ops {
		if !are(ops[i].Kind) {
			return false
		}
	}
	return true
}

// Pending is a batch that was started.
type Pending struct {
	batcher *Batcher
	ctx     context.Context
	ops     []Op
	pushes  bool // and nothing else
	receipt []byte
	// answered is receipts of earlier batches, removed by this one.
	obsolete [][]byte

	backoff  kv.Backoff
	attempts int64            // whose commit was begun
	unknown  []unknownAttempt // those of unknown outcome

	wrote    bool                // the attempt that commit is for wrote something
	commit   kv.Future[struct{}] // not yet waited for; nil when the batch is over
	waited   sync.Once
	results  []Result
	popped   []takenItem // by the attempt that results are of
	listed   []*layout   // queues that it saw or put in the list of queues
	readFrom time.Time   // not later than what it read is from
	err      error
}

// attempt is the results that one attempt at a batch would have.
type unknownAttempt struct {
	number  int64
	results []Result
	popped  []takenItem
}

// Wait waits until the batch is durable and returns one Result for each Op, in
// the order of the ops. Results may share bytes with each other. It may be
// called more than once, and by several goroutines.
//
// An error means that no operation took effect (kv.ErrUnavailable,
// kv.ErrClosed, the context's error), unless it wraps kv.ErrCommitUnknown:
// then the pushes may have happened and pops are undone by Settle.
func (p *Pending) Wait() ([]Result, error) {
	p.waited.Do(p.finish)
	return p.results, p.err
}

// finish waits for the commit, and in an engine that does not pipeline tries
// again if need be: no later batch was begun.
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

// order makes attempts until one is being committed, and returns the counts that
// follow its own, or until the batch is over.
func (p *Pending) commitUntilOrdered() countsByQueue {
	for {
		a, err := p.runOps(nil)
		switch {
		case err == nil && a == nil: // an earlier attempt was committed
			return nil
		case err == nil:
			return p.startCommit(a)
		case !p.waitToRetry(err):
			return nil
		}
	}
}

// again waits until the batch may be tried again after err. If it may not be, the
// batch ends.
func (p *Pending) waitToRetry(err error) bool {
	if !kv.Retryable(err) && !kv.MaybeCommitted(err) {
		p.complete(err)
		return false
	}
	if ended := p.backoff.Wait(p.ctx); ended != nil {
		p.complete(fmt.Errorf("%w after: %w", ended, err))
		return false
	}
	return true
}

// begun is an attempt that has yet to be committed.
type openAttempt struct {
	tx       kv.Transaction
	readFrom time.Time // not later than what it reads is from
	*txOps
}

// begin begins an attempt, with counts from atLeast on. It returns nil if an earlier
// attempt turns out to be committed.
func (p *Pending) runOps(atLeast countsByQueue) (a *openAttempt, err error) {
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
			p.results, p.wrote, p.listed = committed.results, true, nil
			p.complete(nil)
			return nil, nil
		}
	}
	applied, err := apply(tx, p.ops, p.batcher.now(), atLeast)
	if err != nil {
		return nil, err
	}
	return &openAttempt{tx, since, applied}, nil
}

func (p *Pending) transaction() (kv.Transaction, error) {
	// A batch of pushes reads everything before its first write.
	return p.batcher.db.Begin(p.ctx, kv.BeginOptions{Blind: p.pushes})
}

// tryCommit begins to commit the attempt and returns the counts that follow its
// own.
func (p *Pending) startCommit(a *openAttempt) countsByQueue {
	p.results, p.popped, p.wrote = a.results, a.popped, a.wrote
	p.listed, p.readFrom = a.listed, a.readFrom
	p.attempts++
	if p.wrote || len(p.unknown) > 0 {
		p.wrote = true
		p.batcher.writeReceipt(a.tx, p.receipt, p.attempts, 0)
		for _, key := range p.obsolete {
			a.tx.Clear(key)
		}
	}
	p.commit = a.tx.Commit()
	return a.nextCounts
}

// remember keeps the results of an attempt whose commit ended without an answer.
func (p *Pending) remember() {
	p.unknown = append(p.unknown, unknownAttempt{p.attempts, p.results, p.popped})
}

// end sets the outcome of the batch and tells the Batcher of it.
func (p *Pending) complete(err error) {
	b := p.batcher
	if err == nil {
		p.noteListed()
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
	u := unsettled{p.receipt, make(map[int64][]takenItem)}
	for _, a := range p.unknown {
		u.popped[a.number] = a.popped
	}
	b.mu.unsettled = append(b.mu.unsettled, u)
}

// noteListed notes which queues are in the list of queues: the batch saw them
// there or put them there, and is durable itself.
func (p *Pending) noteListed() {
	since := p.readFrom // alone, which is kept for as long as the queues are
	for _, l := range p.listed {
		l.listedSince.Store(&since)
	}
}

// Failed returns the error of a batch that is over already, because it could not be
// begun, and nil otherwise. It does not wait. It is for whoever called Start,
// before somebody else waits for the batch.
func (p *Pending) Failed() error {
	if p.commit != nil {
		return nil
	}
	return p.err
}
