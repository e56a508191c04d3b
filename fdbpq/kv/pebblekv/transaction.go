package pebblekv

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// transaction implements kv.Transaction. It holds DB.writer until it ends. It ends
// with its context at the latest, so a caller who forgets it does not block all
// others.
type transaction struct {
	ctx     context.Context
	db      *DB
	store   *store
	shrinks bool // see kv.BeginOptions
	turn    int64
	stop    func() bool // stops watching ctx

	mu       sync.Mutex
	ended    error // nil while it is open
	writes   writes
	iter     *pebble.Iterator
	seen     int // number of writes that iter sees
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

func newTransaction(ctx context.Context, db *DB, s *store, o kv.BeginOptions) (*transaction, error) {
	db.turns++
	tx := &transaction{ctx: ctx, db: db, store: s, shrinks: o.Shrinks, turn: db.turns, writes: writes{list: s.spareWrites}}
	// The store may abort it as soon as it is registered.
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if err := s.begin(tx); err != nil {
		return nil, err
	}
	tx.stop = context.AfterFunc(ctx, func() { tx.abort(ctx.Err()) })
	return tx, nil
}

// check returns why tx cannot be used any more, or nil.
func (tx *transaction) check() error {
	if tx.ended != nil {
		return tx.ended
	}
	return tx.ctx.Err()
}

// Get implements kv.Reader.
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
	reader, err := tx.writes.reader(tx.store.pdb)
	if err != nil {
		return nil, tx.store.readError(err)
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

// GetRange implements kv.Reader.
func (tx *transaction) GetRange(r kv.Range, o kv.RangeOptions) kv.Future[[]kv.KeyValue] {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	pairs, err := tx.getRange(r, o)
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
	if err := tx.refresh(); err != nil {
		return nil, err
	}
	s := scan{iter: tx.iter, store: tx.store, version: tx.store.applied,
		finder: &tx.finder, copies: &tx.copies, whole: r, options: o}
	return s.read()
}

// refresh makes tx.iter see all writes so far.
func (tx *transaction) refresh() error {
	n := len(tx.writes.list)
	if tx.iter != nil && tx.seen == n {
		return nil
	}
	tx.closeIter()
	reader, err := tx.writes.reader(tx.store.pdb)
	if err != nil {
		return tx.store.readError(err)
	}
	iter, err := reader.NewIter(&pebble.IterOptions{SkipPoint: tx.finder.step})
	if err != nil {
		return tx.store.readError(err)
	}
	tx.iter, tx.seen = iter, n
	return nil
}

// Turn implements kv.Transaction.
func (tx *transaction) Turn() int64 { return tx.turn }

// Snapshot implements kv.Transaction.
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

// Set implements kv.Transaction.
func (tx *transaction) Set(key, value []byte) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.admit(key, len(value)) {
		tx.growth += len(key) + len(value)
		tx.counters.wrote(tx.store.counters, key)
		tx.put(key, value)
	}
}

// put writes without counting towards the limits.
func (tx *transaction) put(key, value []byte) {
	tx.store.gapIndex.wrote(key)
	tx.finder.wrote(key)
	tx.writes.set(key, value)
}

// Clear implements kv.Transaction.
func (tx *transaction) Clear(key []byte) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.admit(key, 0) {
		tx.growth -= len(key)
		tx.counters.wrote(tx.store.counters, key)
		tx.writes.clear(key)
	}
}

// ClearRange implements kv.Transaction.
func (tx *transaction) ClearRange(r kv.Range) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.check() != nil || r.Empty() {
		return
	}
	tx.count(r.Begin, r.End)
	tx.count(r.Begin, r.End) // once as a write and once as a conflict range
	tx.growth -= kv.MaxTransactionSize
	tx.counters.clearedRange()
	tx.writes.clearRange(r.Begin, r.End)
	if tx.store.gapIndex != nil {
		tx.finder.add(r, bytes.Clone(r.Begin))
	}
}

// Add implements kv.Transaction. There is one writer, so it can read.
func (tx *transaction) Add(key []byte, delta int64) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	var stored [8]byte
	if !tx.admit(key, len(stored)) {
		return
	}
	old, err := tx.newest(key)
	if err != nil {
		tx.noteError(err)
		return
	}
	copy(stored[:], old)
	added := binary.LittleEndian.Uint64(stored[:]) + uint64(delta)
	tx.counters.set(key, counterChange{counter{added, true}, true})
	binary.LittleEndian.PutUint64(stored[:], added)
	tx.put(key, stored[:])
}

// CompareAndClear implements kv.Transaction. There is one writer, so it can read.
func (tx *transaction) CompareAndClear(key, value []byte) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if !tx.admit(key, len(value)) {
		return
	}
	old, err := tx.newest(key)
	if err == nil && old != nil && bytes.Equal(old, value) {
		tx.counters.set(key, counterChange{known: true})
		tx.writes.clear(key)
	}
	tx.noteError(err)
}

// newest is get for a key whose value may be cached.
func (tx *transaction) newest(key []byte) ([]byte, error) {
	cached, ok := tx.counters.get(tx.store.counters, key)
	switch {
	case !ok:
		return tx.get(key)
	case !cached.exists:
		return nil, nil
	}
	var stored [8]byte
	binary.LittleEndian.PutUint64(stored[:], cached.value)
	return tx.copies.clone(stored[:]), nil
}

// admit counts a write of key with an operand of n bytes towards the limits and
// reports whether to do it.
func (tx *transaction) admit(key []byte, n int) bool {
	if tx.check() != nil {
		return false
	}
	tx.size += len(key) + n
	tx.count(key, key)
	if len(key) > kv.MaxKeySize || n > kv.MaxValueSize || tx.size > kv.MaxTransactionSize {
		tx.invalid = kv.ErrTooLarge
	}
	return tx.invalid == nil
}

// noteError keeps tx from committing if err is not nil.
func (tx *transaction) noteError(err error) {
	if err == nil || tx.invalid != nil {
		return
	}
	if errors.Is(err, kv.ErrCorrupt) || errors.Is(err, kv.ErrUnavailable) {
		tx.invalid = err // of a read that the write needed
	} else {
		tx.invalid = kv.WithCause(kv.ErrUnavailable, "", err)
	}
}

// AddReadConflict implements kv.Transaction.
func (tx *transaction) AddReadConflict(r kv.Range) { tx.addConflict(r) }

// AddWriteConflict implements kv.Transaction.
func (tx *transaction) AddWriteConflict(r kv.Range) { tx.addConflict(r) }

func (tx *transaction) addConflict(r kv.Range) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if !r.Empty() {
		tx.count(r.Begin, r.End)
	}
}

// count counts a conflict range.
func (tx *transaction) count(begin, end []byte) { tx.size += len(begin) + len(end) + 1 }

// Commit implements kv.Transaction.
func (tx *transaction) Commit() kv.Future[struct{}] {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if err := tx.check(); err != nil {
		tx.end(kv.ErrUsed)
		tx.ended = kv.ErrUsed
		return kv.Ready(struct{}{}, err)
	}
	defer tx.end(kv.ErrUsed)
	if len(tx.writes.list) == 0 && tx.invalid == nil {
		tx.committed = true
		return tx.store.afterAll(tx.ctx)
	}
	if err := tx.admissible(); err != nil {
		return kv.Ready(struct{}{}, err)
	}
	tx.closeIter()
	tx.applied = true
	c, err := tx.store.apply(tx.ctx, tx.writes.batch(tx.store.pdb), tx.finder.found)
	if err != nil {
		return kv.Ready(struct{}{}, err)
	}
	tx.store.counters.commit(&tx.counters)
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
	err := tx.db.space.check(tx.growth > 0 && !tx.shrinks)
	if err != nil {
		tx.store.disk.reserve.drop()
	}
	return err
}

// Cancel implements kv.Transaction.
func (tx *transaction) Cancel() {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	tx.end(kv.ErrUsed)
	tx.ended = kv.ErrUsed
}

func (tx *transaction) abort(reason error) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	tx.end(reason)
}

// end frees what tx holds and lets the next writer begin, unless it has ended.
func (tx *transaction) end(reason error) {
	if tx.ended != nil {
		return
	}
	tx.ended = reason
	tx.stop()
	tx.closeIter()
	tx.store.spareWrites = tx.writes.close()
	if !tx.applied {
		tx.store.gapIndex.cancelled()
	}
	if !tx.committed {
		tx.db.turns++ // the next one does not see what it wrote
	}
	tx.store.end(tx)
	<-tx.db.writer
}

func (tx *transaction) closeIter() {
	if tx.iter != nil {
		_ = tx.iter.Close() // Its errors were returned by the reads.
		tx.iter = nil
	}
}
