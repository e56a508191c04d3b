package pebblekv

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// transaction implements kv.Transaction. It holds the writer slot until it ends. It ends with its
// context at the latest, so a caller who forgets it does not block all others.
type transaction struct {
	ctx     context.Context
	store   *openedStore
	writer  *writerSlot
	space   *spaceGuard
	shrinks bool // see kv.BeginOptions
	turn    int64
	stop    func() bool // stops watching ctx

	mu       sync.Mutex
	ended    error // nil while it is open
	writes   writes
	stored   *pebble.Iterator // of what was there before
	changed  *pebble.Iterator // the same with the first seen writes
	seen     int
	finder   gapFinder
	counters counterChanges
	copies   arena
	size     int   // bytes towards kv.MaxTransactionSize
	growth   int   // roughly, bytes added to the store
	invalid  error // why it cannot commit
	applied  bool
	// committed says that the next transaction sees all that was written, if anything was.
	committed bool
}

var _ kv.Transaction = (*transaction)(nil)

// newTransaction begins a transaction of the holder of the writer slot, and takes the slot
// over if it succeeds.
func newTransaction(ctx context.Context, o kv.BeginOptions, s *openedStore, w *writerSlot, free *spaceGuard) (*transaction, error) {
	tx := &transaction{ctx: ctx, store: s, writer: w, space: free,
		shrinks: o.Shrinks, turn: w.nextTurn(), writes: writes{list: s.spareWrites}}

	// The store may abort it as soon as it is registered.
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if err := s.register(tx); err != nil {
		return nil, err
	}
	tx.stop = context.AfterFunc(ctx, func() { tx.abort(ctx.Err()) })
	return tx, nil
}

func (tx *transaction) Turn() int64 { return tx.turn }

// check returns why tx cannot be used any more, or nil.
func (tx *transaction) check() error {
	if tx.ended != nil {
		return tx.ended
	}
	return tx.ctx.Err()
}

// count counts a conflict range.
func (tx *transaction) count(begin, end []byte) { tx.size += len(begin) + len(end) + 1 }

func (tx *transaction) Get(key []byte) kv.Future[[]byte] {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	tx.count(key, key)
	return kv.Ready(tx.get(key))
}

// get returns a value that belongs to the caller.
func (tx *transaction) get(key []byte) ([]byte, error) {
	if err := tx.check(); err != nil {
		return nil, err
	}

	var reader pebble.Reader = tx.store.pdb
	if tx.writes.ranges > 0 {
		index, err := tx.writes.getter(tx.store.pdb)
		if err != nil {
			return nil, tx.store.readError(err)
		}
		reader = index
	} else {
		tx.noteWrites()
		if written := tx.writes.newest(key); written != nil {
			return written.read(&tx.copies), nil
		}
	}

	value, closer, err := reader.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, tx.store.readError(err)
	}

	value = tx.copies.clone(value)
	return value, tx.store.readError(closer.Close())
}

func (tx *transaction) GetRange(r kv.Range, o kv.RangeOptions) kv.Future[[]kv.KeyValue] {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	pairs, err := tx.getRange(r, o)

	// The conflict range ends with the last pair if there may be more.
	if n := len(pairs); n > 0 && o.Full(pairs) {
		tx.count(r.Begin, pairs[n-1].Key)
	} else {
		tx.count(r.Begin, r.End)
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
	s := scan{iter: iter, store: tx.store, version: tx.store.applied,
		finder: &tx.finder, copies: &tx.copies, whole: r, options: o}
	return s.read()
}

// noteWrites puts the writes so far in order, and takes what was set out of the gaps.
func (tx *transaction) noteWrites() {
	if set := tx.writes.sortNew(); len(set) > 0 {
		tx.store.gapIndex.noteWrites(slices.Values(set))
		tx.finder.noteWrites(slices.Values(set))
	}
}

// iterator returns an iterator of what the transaction sees in a range, which belongs to tx.
func (tx *transaction) iterator(r kv.Range) (*pebble.Iterator, error) {
	o := &pebble.IterOptions{SkipPoint: tx.finder.step}
	if tx.noteWrites(); !tx.writes.touch(r) {
		if tx.stored == nil {
			iter, err := tx.store.pdb.NewIter(o)
			tx.stored = iter
			return iter, err
		}
		return tx.stored, nil
	}

	n := len(tx.writes.list)
	if tx.changed != nil && tx.seen == n {
		return tx.changed, nil
	}
	if tx.changed != nil {
		_ = tx.changed.Close()
		tx.changed = nil
	}
	index, err := tx.writes.reader(tx.store.pdb)
	if err != nil {
		return nil, err
	}
	iter, err := index.NewIter(o)
	if err == nil {
		tx.changed, tx.seen = iter, n
	}
	return iter, err
}

func (tx *transaction) closeIters() {
	for _, iter := range []*pebble.Iterator{tx.stored, tx.changed} {
		if iter != nil {
			_ = iter.Close() // Its errors were returned by the reads.
		}
	}
	tx.stored, tx.changed = nil, nil
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
	err := tx.check()
	defer tx.endUsed()
	if err != nil {
		return kv.Ready(struct{}{}, err)
	}

	if len(tx.writes.list) == 0 && tx.invalid == nil {
		tx.committed = true
		return tx.store.afterAll(tx.ctx)
	}
	if err := tx.admissible(); err != nil {
		return kv.Ready(struct{}{}, err)
	}

	tx.closeIters()
	tx.noteWrites()
	tx.applied = true
	c, err := tx.store.apply(tx.ctx, tx.writes.batch(tx.store.pdb), tx.finder.found)
	if err != nil {
		return kv.Ready(struct{}{}, err)
	}
	tx.store.counters.apply(&tx.counters)
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
	if err := tx.store.err(); err != nil {
		return err
	}
	return tx.space.check(tx.growth > 0 && !tx.shrinks)
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

// endUsed ends tx for its caller, who is told from now on that it has ended, whatever ended
// it before.
func (tx *transaction) endUsed() {
	tx.end(kv.ErrUsed)
	tx.ended = kv.ErrUsed
}

// end frees what tx holds and lets the next writer begin, unless it has ended.
func (tx *transaction) end(reason error) {
	if tx.ended != nil {
		return
	}
	tx.ended = reason
	tx.stop()
	tx.closeIters()
	tx.store.spareWrites = tx.writes.close()

	if !tx.applied {
		tx.store.gapIndex.noteCancel()
	}
	if !tx.committed {
		tx.writer.skipTurn() // the next one does not see what it wrote
	}
	tx.store.unregister(tx)
	tx.writer.release()
}
