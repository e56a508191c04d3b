package pebblekv

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// writerSlot is held by the one write transaction at a time. It counts the turns of kv.Transaction:
// one for each transaction, and one more after a transaction whose writes the next one does not
// see. Only the holder uses turns.
type writerSlot struct {
	held  chan struct{} // full while somebody holds the slot
	turns int64
}

// acquire waits until the slot is free. Callers get it in the order of their calls.
func (w *writerSlot) acquire(ctx context.Context, closing <-chan struct{}) error {
	select {
	case w.held <- struct{}{}:
		return nil
	case <-closing:
		return kv.ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tryAcquire acquires the slot if it is free, and reports whether it was.
func (w *writerSlot) tryAcquire() bool {
	select {
	case w.held <- struct{}{}:
		return true
	default:
		return false
	}
}

func (w *writerSlot) release() { <-w.held }

// skipTurn tells the next transaction that it may not see what an earlier one wrote.
func (w *writerSlot) skipTurn() { w.turns++ }

// transaction implements kv.Transaction. It holds the writer slot until it ends, and it ends with
// its context at the latest, so a forgotten transaction does not block all others.
type transaction struct {
	ctx     context.Context
	store   *openedStore
	writer  *writerSlot
	space   *spaceGuard
	shrinks bool // see kv.BeginOptions
	turn    int64
	unwatch func() bool // stops watching ctx

	mu     sync.Mutex
	ended  error // nil while it is open
	writes writes

	storeIter  *pebble.Iterator // over the store as it was before; nil until a read needs it
	mergedIter *pebble.Iterator // over the store with the first merged writes; nil if there is none
	merged     int

	finder  gapFinder
	copies  arena
	size    int   // bytes towards kv.MaxTransactionSize
	growth  int   // bytes added to the store, roughly
	invalid error // why it cannot commit: a write over a limit, or a failed read that one needed

	// applied: Pebble has the writes, or may have them.
	// committed: the next transaction sees everything that this one wrote, if anything.
	applied, committed bool
}

var _ kv.Transaction = (*transaction)(nil)

// begin registers tx with its store. The caller holds the writer slot, which belongs to tx if
// begin succeeds.
func (tx *transaction) begin() error {
	// The store may abort tx as soon as it is registered.
	tx.mu.Lock()
	defer tx.mu.Unlock()

	tx.writer.turns++
	tx.turn = tx.writer.turns
	tx.writes.list = tx.store.spareWrites
	if err := tx.store.register(tx, tx.abort); err != nil {
		return err
	}

	tx.unwatch = context.AfterFunc(tx.ctx, func() { tx.abort(tx.ctx.Err()) })
	return nil
}

func (tx *transaction) Turn() int64 { return tx.turn }

// check returns why tx cannot be used any more, or nil.
func (tx *transaction) check() error { return cmp.Or(tx.ended, tx.ctx.Err()) }

// countConflict counts a conflict range towards the size of tx.
func (tx *transaction) countConflict(begin, end []byte) { tx.size += len(begin) + len(end) + 1 }

func (tx *transaction) Get(key []byte) kv.Future[[]byte] {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	tx.countConflict(key, key)
	return kv.Ready(tx.get(key))
}

// get returns a value that belongs to the caller.
func (tx *transaction) get(key []byte) ([]byte, error) {
	if err := tx.check(); err != nil {
		return nil, err
	}

	// The runs of writes do not know cleared ranges. With one, Pebble has to merge.
	var reader pebble.Reader = tx.store.pdb
	if tx.writes.ranges > 0 {
		index, err := tx.writes.getter(tx.store.pdb)
		if err != nil {
			return nil, tx.store.readError(err)
		}
		reader = index
	} else {
		tx.sortWrites()
		if written := tx.writes.newest(key); written != nil {
			if written.kind != pebble.InternalKeyKindSet {
				return nil, nil
			}
			return tx.copies.clone(written.value), nil
		}
	}

	value, closer, err := reader.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, tx.store.readError(err)
	}

	// Pebble owns the value until it is closed.
	value = tx.copies.clone(value)
	return value, tx.store.readError(closer.Close())
}

func (tx *transaction) GetRange(r kv.Range, o kv.RangeOptions) kv.Future[[]kv.KeyValue] {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	pairs, err := tx.getRange(r, o)

	// The conflict range ends with the last pair if there may be more.
	if n := len(pairs); n > 0 && o.Full(pairs) {
		tx.countConflict(r.Begin, pairs[n-1].Key)
	} else {
		tx.countConflict(r.Begin, r.End)
	}

	return kv.Ready(pairs, err)
}

func (tx *transaction) getRange(r kv.Range, o kv.RangeOptions) ([]kv.KeyValue, error) {
	if err := tx.check(); err != nil {
		return nil, err
	}

	iter, err := tx.iterator(r)
	if err != nil {
		return nil, tx.store.readError(err)
	}

	s := scan{iter: iter, index: tx.store.gapIndex, version: tx.store.applied,
		finder: &tx.finder, copies: &tx.copies, whole: r, options: o}
	pairs, err := s.read()
	return pairs, tx.store.readError(err)
}

// sortWrites sorts the writes so far. A key that was set is in no gap any more.
func (tx *transaction) sortWrites() {
	if set := tx.writes.sortNew(); len(set) > 0 {
		tx.store.gapIndex.noteWrites(set)
		tx.finder.noteWrites(set)
	}
}

// iterator returns an iterator over what tx sees in r. The iterator belongs to tx.
func (tx *transaction) iterator(r kv.Range) (_ *pebble.Iterator, err error) {
	tx.sortWrites()
	o := &pebble.IterOptions{SkipPoint: tx.finder.step}

	// Where tx wrote nothing, it sees the store.
	if !tx.writes.touch(r) {
		if tx.storeIter == nil {
			tx.storeIter, err = tx.store.pdb.NewIter(o)
		}
		return tx.storeIter, err
	}

	if tx.mergedIter != nil && tx.merged == len(tx.writes.list) {
		return tx.mergedIter, nil
	}

	// An iterator does not see later writes.
	if tx.mergedIter != nil {
		_ = tx.mergedIter.Close() // Its errors were returned by the reads.
		tx.mergedIter = nil
	}

	index, err := tx.writes.reader(tx.store.pdb)
	if err != nil {
		return nil, err
	}

	tx.mergedIter, err = index.NewIter(o)
	tx.merged = len(tx.writes.list)
	return tx.mergedIter, err
}

func (tx *transaction) closeIters() {
	for _, iter := range []*pebble.Iterator{tx.storeIter, tx.mergedIter} {
		if iter != nil {
			_ = iter.Close() // Its errors were returned by the reads.
		}
	}
	tx.storeIter, tx.mergedIter = nil, nil
}

func (tx *transaction) Snapshot() kv.Reader { return snapshot{tx} }

type snapshot struct{ tx *transaction }

func (s snapshot) Get(key []byte) kv.Future[[]byte] {
	s.tx.mu.Lock()
	defer s.tx.mu.Unlock()
	return kv.Ready(s.tx.get(key))
}

func (s snapshot) GetRange(r kv.Range, o kv.RangeOptions) kv.Future[[]kv.KeyValue] {
	s.tx.mu.Lock()
	defer s.tx.mu.Unlock()
	return kv.Ready(s.tx.getRange(r, o))
}

func (tx *transaction) Commit() kv.Future[struct{}] {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	defer tx.endUsed()
	if err := tx.check(); err != nil {
		return kv.Ready(struct{}{}, err)
	}

	// Nothing was written, but the values read may not be durable yet.
	if len(tx.writes.list) == 0 && tx.invalid == nil {
		tx.committed = true
		return tx.store.afterAll(tx.ctx)
	}
	if err := tx.admissible(); err != nil {
		return kv.Ready(struct{}{}, err)
	}
	grows := tx.growth > 0 && !tx.shrinks
	if err := tx.space.check(grows); err != nil {
		tx.store.reclaim(tx.space)
		return kv.Ready(struct{}{}, err)
	}

	tx.closeIters()
	tx.sortWrites()
	tx.applied = true
	c, err := tx.store.apply(tx.ctx, tx.writes.batch(tx.store.pdb), tx.finder.found)
	if err != nil {
		return kv.Ready(struct{}{}, err)
	}

	tx.store.removed = tx.store.removed || !grows
	tx.committed = true
	return c
}

// admissible returns why tx, which has written, must not be applied, or nil.
func (tx *transaction) admissible() error {
	if tx.invalid != nil {
		return tx.invalid
	}
	if tx.size > kv.MaxTransactionSize {
		return kv.ErrTooLarge
	}
	return tx.store.err()
}

func (tx *transaction) Cancel() {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	tx.endUsed()
}

func (tx *transaction) abort(reason error) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	tx.end(reason)
}

// endUsed ends tx for its caller. Later calls fail with kv.ErrUsed, even if tx had been aborted.
func (tx *transaction) endUsed() {
	tx.end(kv.ErrUsed)
	tx.ended = kv.ErrUsed
}

// end frees what tx holds and lets the next writer begin, unless tx has ended.
func (tx *transaction) end(reason error) {
	if tx.ended != nil {
		return
	}

	tx.ended = reason
	tx.unwatch()
	tx.closeIters()
	tx.store.spareWrites = tx.writes.close()
	tx.store.counters.end(tx.committed)

	// Otherwise apply has published the gaps.
	if !tx.applied {
		tx.store.gapIndex.noteCancel()
	}
	if !tx.committed {
		tx.writer.skipTurn()
	}

	tx.store.unregister(tx)
	tx.writer.release()
}
