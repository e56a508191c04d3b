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
	db          kv.Database
	receipts    tuple.Subspace // of this Batcher
	now         func() time.Time
	maxMoved    int // bytes: see LimitMoved
	maxReturned int // bytes: see LimitReturned

	conflicts atomic.Int64 // see Conflicts
	seeing    atomic.Int64 // how many of the next batches see their own writes

	batchCount int64                // batches started
	nextCounts state.CountsByQueue  // after the newest batch, if its first attempt commits
	cache      *state.QueueCache    // nil if the engine has no turns
	settings   *state.SettingsCache // nil if cache is not
	spare      sync.Pool            // of *[]Result, all zero

	mu struct {
		sync.Mutex
		effects   SideEffects       // see SideEffects
		secrets   map[string][]byte // durable ones, see state.GroupSecrets
		newest    *Pending          // the last batch started, nil once it has ended
		obsolete  [][]byte          // receipts to remove
		unsettled []unsettled       // batches of unknown outcome
	}
}

// NewBatcher returns a Batcher for queues of k in db.
func NewBatcher(db kv.Database, k *Keyspace) *Batcher {
	receipts := k.s.Receipts.Sub(codec.RandomBytes(16)) // that no other Batcher uses
	b := &Batcher{db: db, receipts: receipts, now: time.Now}
	b.maxMoved, b.maxReturned = MaxMessageSize, MaxMessageSize

	// Where batches do not pipeline, Wait may make attempts while Start makes one.
	if t := db.Traits(); t.Serial && t.Pipelines && !t.Shared {
		b.cache = state.NewQueueCache(state.MaxQueueCache)
	} else {
		b.settings = state.NewSettingsCache(k.s.Priority.List)
	}
	return b
}

// Apply runs ops in one transaction and waits for it: Start, then Wait.
func (b *Batcher) Apply(ctx context.Context, ops []Op) ([]Result, error) {
	return b.Start(ctx, ops).Wait()
}

// Start runs ops in one transaction. It returns once this batch is ordered before any later one, so
// the next Start need not wait for this batch's Wait. Call Wait for each batch.
//
// On an engine that does not pipeline (see kv.Database), Start first waits for the previous batch.
// If both batches only push, and the engine is not serial, it does this batch's reads meanwhile.
//
// A batch of operations that only read (see OpKind.Writes) runs in a read-only transaction. Any
// other runs in this order. Operations of one line run in the order of ops, whichever end they are
// for:
//
//  1. settings and sources, and then consumers and schedules
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
	p := newPending(b, ctx, ops)
	early := b.startEarly(p)
	if p.onlyReads && p.runReadOnly() {
		return p
	}

	if err := b.Settle(ctx); err != nil {
		if early != nil {
			early.tx.Cancel()
		}
		if kv.MaybeCommitted(err) { // the earlier batch, not this one
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
// meanwhile runs p up to its commit. It returns nil if p has yet to run.
func (b *Batcher) startEarly(p *Pending) (early *txOps) {
	if b.db.Traits().Pipelines {
		return nil
	}
	b.mu.Lock()
	before := b.mu.newest
	b.mu.Unlock()
	if before == nil {
		return nil
	}

	// p does not see the counts that the earlier batch takes. They are in b.nextCounts, except the
	// counts of groups. Message ids are read with conflict. Limits are checked for below.
	if before.pushes && p.pushes && !p.grouped && !b.db.Traits().Serial {
		early, _ = p.runOps(b.nextCounts) // the regular attempt reports an error
	}
	_, err := before.Wait()
	if early != nil && (err != nil || before.attempts > 1 || early.limited) {
		// Its counts are not those in b.nextCounts, or it would conflict with the earlier batch.
		early.tx.Cancel()
		return nil
	}
	return early
}

// afterBlind is how many batches see their writes from the beginning, after one that had to start
// over because it did not: batches of the same queues are often alike. Those that only push do not
// count.
const afterBlind = 15

// Pending is a batch that Start has started.
type Pending struct {
	batcher   *Batcher
	ctx       context.Context
	ops       []Op
	onlyReads bool
	pushes    bool     // only pushes, all without unique keys
	grouped   bool     // pushes is set, and one of them has a group
	notBlind  bool     // an attempt has read what it may have written, or will probably
	shrinks   bool     // nothing makes the store larger, except dead letters
	receipt   []byte   // nil for a batch that only reads
	obsolete  [][]byte // receipts of earlier batches, which this one removes

	backoff  kv.Backoff
	attempts int64    // whose commit has started
	last     *txOps   // the last of them or, once known, the one that has committed
	unknown  []*txOps // those whose outcome is unknown

	commit   kv.Future[struct{}] // nil once the batch has ended
	waiting  chan struct{}       // holds the goroutine that waits for it: others wait for that one
	upcoming []QueueUpcoming     // of all attempts
	ended    []QueueJob          // by all attempts
	filled   []QueueName         // of all attempts
	behind   []QueueName         // by the last attempt
	results  []Result            // once the batch has ended without an error
	err      error
}

func newPending(b *Batcher, ctx context.Context, ops []Op) *Pending {
	p := &Pending{batcher: b, ctx: ctx, ops: ops, waiting: make(chan struct{}, 1)}
	all := Trait(0)
	p.pushes = len(ops) > 0
	for i := range ops {
		op := &ops[i]
		all |= kinds[op.Kind].traits
		if len(op.Successors()) > 0 {
			all |= Grows
		}

		// Pushes with unique keys bring back due items, and then read what that may have written.
		p.pushes = p.pushes && op.Kind == OpPush && op.Message.Unique == ""
		p.grouped = p.pushes && (p.grouped || op.Message.Group() != "")
	}

	p.onlyReads, p.shrinks = all&Writes == 0, all&Grows == 0
	if p.notBlind = !p.pushes && b.seeing.Load() > 0; p.notBlind {
		b.seeing.Add(-1)
	}
	return p
}

// runReadOnly runs a batch that only reads, and reports whether it has ended: if something is due,
// a transaction that writes has to bring it back.
func (p *Pending) runReadOnly() (ended bool) {
	b := p.batcher
	now, due := b.now(), []*codec.Layout(nil)
	run := func(r kv.Reader) (results []Result, err error) {
		results, due, err = readOps(r, p.ops, &now, b.maxReturned)
		return results, err
	}
	results, err := kv.ReadTransact(p.ctx, b.db, run)
	if err == nil && len(due) > 0 {
		return false
	}
	p.results, p.err = results, err
	return true
}

// Wait waits until the batch is durable, and returns one Result for each Op, in the order of ops.
// Results may share bytes with each other. Wait may be called more than once, and by several
// goroutines.
//
// After an error (kv.ErrUnavailable, kv.ErrClosed, the context's error) no operation took effect,
// unless the error wraps kv.ErrCommitUnknown: then the pushes may have happened, and Settle undoes
// the pops and completes the restores.
//
// On an engine that does not pipeline, it makes further attempts if necessary, because no later
// batch has started.
func (p *Pending) Wait() ([]Result, error) {
	p.waiting <- struct{}{}
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

	<-p.waiting
	return p.results, p.err
}

// commitUntilOrdered makes attempts until one is being committed, or the batch has ended. It
// returns the counts that follow the last attempt.
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

// runOps makes an attempt up to its commit; pushed items get counts of at least minCounts. It
// returns nil, and ends the batch, if an earlier attempt turns out to have committed.
func (p *Pending) runOps(minCounts state.CountsByQueue) (a *txOps, err error) {
	b := p.batcher
	since := b.now()
	b.mu.Lock()
	secrets := b.mu.secrets
	b.mu.Unlock()

	tx, err := b.db.Begin(p.ctx, kv.BeginOptions{Blind: !p.notBlind, Shrinks: p.shrinks})
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

	// The time comes after Begin, which fixes what the transaction reads. If the process stood
	// still in between, an older time would grant leases that are over.
	t := newTxOps(tx, p.ops, b.newResults(len(p.ops)), b.now())
	t.minCounts, t.readFrom = minCounts, since
	t.moving.maxBytes, t.returned.Most = b.maxMoved, b.maxReturned
	b.cache.BeginTransaction(tx)
	t.cache, t.secrets.Known, t.cached = b.cache, secrets, b.settings.Begin(tx)

	if err := t.apply(); err != nil {
		return nil, err
	}
	return t, nil
}

// startCommit starts to commit the attempt, and returns the counts after its own.
func (p *Pending) startCommit(a *txOps) state.CountsByQueue {
	p.attempts++
	a.attempt, p.last = p.attempts, a
	p.report(a)

	if a.wrote = a.wrote || len(p.unknown) > 0; a.wrote {
		writeReceipt(a.tx, p.receipt, p.batcher.now(), a.attempt, 0)
		for _, key := range p.obsolete {
			a.tx.Clear(key)
		}
	}

	p.batcher.cache.LearnCounts(a.nextCounts)
	p.commit = a.tx.Commit()
	return a.nextCounts
}

// report notes what an attempt has found and written besides its results.
func (p *Pending) report(a *txOps) {
	for _, to := range a.outgoing.Queues {
		if to.Filled {
			p.filled = to.Ledger.L.AppendName(p.filled)
		}
		p.upcoming = to.Ledger.AppendUpcoming(p.upcoming)
	}
	p.behind = nil
	for _, q := range a.queues {
		if q.due.Done {
			p.filled = q.l.AppendName(p.filled)
		}
		if q.due.Behind() {
			p.behind = q.l.AppendName(p.behind)
		}
		p.upcoming = q.ledger.AppendUpcoming(p.upcoming)
		p.ended = q.ledger.AppendEnded(p.ended)
	}
}

// complete ends the batch with err, and updates the Batcher.
func (p *Pending) complete(err error) {
	b := p.batcher
	if err == nil { // the queues that it found in the list, or put there, are durably there
		p.results = p.last.results
		since := p.last.readFrom // a copy, because the queues keep it
		for _, l := range p.last.listed {
			l.ListedSince.Store(&since)
		}
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.newest == p {
		b.mu.newest = nil
	}
	if err == nil && p.last.wrote {
		b.mu.obsolete = append(b.mu.obsolete, p.receipt)
	} else { // the next batch tries to remove what this one has not
		b.mu.obsolete = append(b.mu.obsolete, p.obsolete...)
	}
	if err == nil {
		b.mu.effects.Add(p.last.effects)
		if p.last.secrets.Found != nil {
			b.mu.secrets = p.last.secrets.Found
		}
		return
	}

	p.results, p.err = nil, err
	if len(p.unknown) > 0 {
		if !kv.MaybeCommitted(err) {
			p.err = fmt.Errorf("%w: %w", kv.ErrCommitUnknown, err)
		}
		b.mu.unsettled = append(b.mu.unsettled, p.unsettled())
	}
}

// newResults returns n results, all zero.
func (b *Batcher) newResults(n int) []Result {
	if spare, ok := b.spare.Get().(*[]Result); ok && cap(*spare) >= n {
		return (*spare)[:n]
	}
	return make([]Result, n)
}
