package pebblekv

import (
	"bytes"
	"encoding/binary"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

func (tx *transaction) Set(key, value []byte) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.admit(key, len(value)) {
		tx.growth += len(key) + len(value)
		tx.store.counters.noteWrite(key)
		tx.writes.set(key, value)
	}
}

func (tx *transaction) Clear(key []byte) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.admit(key, 0) {
		tx.growth -= len(key)
		tx.store.counters.noteWrite(key)
		tx.writes.clear(key)
	}
}

func (tx *transaction) ClearRange(r kv.Range) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.check() != nil || r.Empty() {
		return
	}

	// Once as a write and once as a conflict range.
	tx.countConflict(r.Begin, r.End)
	tx.countConflict(r.Begin, r.End)

	// What the range holds is not known, perhaps no more than what is written instead. So it counts
	// as little as a cleared key does: its value is not known either.
	tx.growth -= len(r.Begin) + len(r.End)
	tx.store.counters.recent.Clear() // It may have had counters.
	tx.writes.clearRange(r.Begin, r.End)

	// A cleared range counts as one dead key. No sample is nil.
	tx.finder.addGap(r, append([]byte{}, r.Begin...))
}

// Add implements kv.Transaction. It may read, because nobody else writes.
func (tx *transaction) Add(key []byte, delta int64) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	var stored [8]byte
	if !tx.admit(key, len(stored)) {
		return
	}

	old, err := tx.newest(key)
	if err != nil {
		tx.invalid = err
		return
	}

	copy(stored[:], old)
	sum := binary.LittleEndian.Uint64(stored[:]) + uint64(delta)
	tx.store.counters.set(key, counter{value: sum, exists: true, known: true})
	binary.LittleEndian.PutUint64(stored[:], sum)
	tx.writes.set(key, stored[:])
}

// CompareAndClear implements kv.Transaction. It may read, because nobody else writes.
func (tx *transaction) CompareAndClear(key, value []byte) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if !tx.admit(key, len(value)) {
		return
	}

	old, err := tx.newest(key)
	if err != nil {
		tx.invalid = err
		return
	}

	if old != nil && bytes.Equal(old, value) {
		tx.store.counters.set(key, counter{known: true})
		tx.writes.clear(key)
	}
}

// newest is get for a key whose value may be cached.
func (tx *transaction) newest(key []byte) ([]byte, error) {
	cached, ok := tx.store.counters.get(key)
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

func (tx *transaction) AddWriteConflict(r kv.Range) { tx.AddReadConflict(r) }

// AddReadConflict implements kv.Transaction. It only counts r: with one writer at a time there are
// no conflicts.
func (tx *transaction) AddReadConflict(r kv.Range) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if !r.Empty() {
		tx.countConflict(r.Begin, r.End)
	}
}

// admit counts a write of key with an operand of n bytes towards the limits. It reports whether
// the write may go on.
func (tx *transaction) admit(key []byte, n int) bool {
	if tx.check() != nil {
		return false
	}

	tx.size += len(key) + n
	tx.countConflict(key, key)
	if len(key) > kv.MaxKeySize || n > kv.MaxValueSize || tx.size > kv.MaxTransactionSize {
		tx.invalid = kv.ErrTooLarge
	}

	return tx.invalid == nil
}
