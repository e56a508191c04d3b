package memkv

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// transaction implements kv.Transaction and kv.ReadTransaction.
type transaction struct {
	db    *DB
	ctx   context.Context
	ended bool
	blind bool // see kv.BeginOptions

	own    kv.Written
	failed error // ErrBlind, once a blind transaction has read what it wrote

	began int    // version of the store it began with
	state *state // the store at that version plus its own writes

	mutations []func(*state) // its own writes in order, for Commit to apply again
	reads     []kv.Range     // read conflict ranges
	writes    []kv.Range     // write conflict ranges, those of the mutations included
	size      int            // bytes towards kv.MaxTransactionSize
	tooLarge  bool           // a key or value is over its limit
}

var (
	_ kv.Transaction     = (*transaction)(nil)
	_ kv.ReadTransaction = (*transaction)(nil)
)

// readable returns why a range cannot be read, or nil.
func (tx *transaction) readable(r kv.Range) error {
	if tx.blind && tx.failed == nil && tx.own.Within(r) {
		tx.failed = kv.ErrBlind
	}
	return cmp.Or(tx.check(), tx.failed)
}

func (tx *transaction) check() error {
	if tx.ended {
		return kv.ErrUsed
	}
	if err := tx.ctx.Err(); err != nil {
		return err
	}
	return tx.db.check(tx.began)
}

func (tx *transaction) Get(key []byte) kv.Future[[]byte] {
	tx.AddReadConflict(kv.SingleKey(key))
	return tx.get(key)
}

func (tx *transaction) GetRange(r kv.Range, o kv.RangeOptions) kv.Future[[]kv.KeyValue] {
	pairs, err := tx.getRange(r, o)
	if err != nil {
		return kv.Ready[[]kv.KeyValue](nil, err)
	}
	tx.AddReadConflict(o.Examined(r, pairs))
	return kv.Ready(pairs, nil)
}

func (tx *transaction) Snapshot() kv.Reader { return snapshot{tx} }

type snapshot struct{ tx *transaction }

func (s snapshot) Get(key []byte) kv.Future[[]byte] { return s.tx.get(key) }

func (s snapshot) GetRange(r kv.Range, o kv.RangeOptions) kv.Future[[]kv.KeyValue] {
	return kv.Ready(s.tx.getRange(r, o))
}

func (tx *transaction) get(key []byte) kv.Future[[]byte] {
	if err := tx.readable(kv.SingleKey(key)); err != nil {
		return kv.Ready[[]byte](nil, err)
	}
	pair, ok := tx.state.Get(kv.KeyValue{Key: key})
	if !ok {
		return kv.Ready[[]byte](nil, nil)
	}
	return kv.Ready(bytes.Clone(pair.Value), nil)
}

func (tx *transaction) getRange(r kv.Range, o kv.RangeOptions) ([]kv.KeyValue, error) {
	if err := tx.check(); err != nil {
		return nil, err
	}

	var pairs []kv.KeyValue
	size := 0
	add := func(pair kv.KeyValue) bool {
		key, value := bytes.Clone(pair.Key), bytes.Clone(pair.Value)
		pairs = append(pairs, kv.KeyValue{Key: key, Value: value})
		size += len(pair.Value)
		return len(pairs) != o.Limit && (o.Bytes == 0 || size < o.Bytes)
	}

	if !o.Reverse {
		tx.state.AscendRange(kv.KeyValue{Key: r.Begin}, kv.KeyValue{Key: r.End}, add)
		return pairs, tx.readable(o.Examined(r, pairs))
	}

	tx.state.DescendLessOrEqual(kv.KeyValue{Key: r.End}, func(pair kv.KeyValue) bool {
		if bytes.Equal(pair.Key, r.End) {
			return true // The end is not part of the range.
		}
		return bytes.Compare(pair.Key, r.Begin) >= 0 && add(pair)
	})

	return pairs, tx.readable(o.Examined(r, pairs))
}

func (tx *transaction) Set(key, value []byte) {
	// A stored value is never nil: that would read as absent.
	pair := kv.KeyValue{Key: bytes.Clone(key), Value: append([]byte{}, value...)}
	tx.write(pair.Key, pair.Value, func(s *state) { s.ReplaceOrInsert(pair) })
}

func (tx *transaction) Clear(key []byte) {
	key = bytes.Clone(key)
	tx.write(key, nil, func(s *state) { s.Delete(kv.KeyValue{Key: key}) })
}

func (tx *transaction) Add(key []byte, delta int64) {
	key = bytes.Clone(key)
	tx.write(key, make([]byte, 8), func(s *state) {
		old, _ := s.Get(kv.KeyValue{Key: key})
		var sum [8]byte
		copy(sum[:], old.Value)
		binary.LittleEndian.PutUint64(sum[:], binary.LittleEndian.Uint64(sum[:])+uint64(delta))
		s.ReplaceOrInsert(kv.KeyValue{Key: key, Value: sum[:]})
	})
}

func (tx *transaction) CompareAndClear(key, value []byte) {
	key, value = bytes.Clone(key), bytes.Clone(value)
	tx.write(key, value, func(s *state) {
		if old, ok := s.Get(kv.KeyValue{Key: key}); ok && bytes.Equal(old.Value, value) {
			s.Delete(old)
		}
	})
}

func (tx *transaction) ClearRange(r kv.Range) {
	if tx.ended || r.Empty() {
		return
	}

	r = r.Clone()
	tx.own.Range(r)
	tx.AddWriteConflict(r)
	tx.mutate(len(r.Begin)+len(r.End), func(s *state) {
		// The tree must not change under the iteration.
		var doomed []kv.KeyValue
		begin, end := kv.KeyValue{Key: r.Begin}, kv.KeyValue{Key: r.End}
		s.AscendRange(begin, end, func(pair kv.KeyValue) bool {
			doomed = append(doomed, pair)
			return true
		})

		for _, pair := range doomed {
			s.Delete(pair)
		}
	})
}

// write makes a mutation of one key with an operand.
func (tx *transaction) write(key, operand []byte, mutation func(*state)) {
	if tx.ended {
		return
	}
	if len(key) > kv.MaxKeySize || len(operand) > kv.MaxValueSize {
		tx.tooLarge = true
	}
	tx.own.Key(key)
	tx.AddWriteConflict(kv.SingleKey(key))
	tx.mutate(len(key)+len(operand), mutation)
}

func (tx *transaction) mutate(size int, mutation func(*state)) {
	tx.size += size
	tx.mutations = append(tx.mutations, mutation)
	mutation(tx.state)
}

func (tx *transaction) AddReadConflict(r kv.Range) { tx.addConflict(&tx.reads, r) }

func (tx *transaction) AddWriteConflict(r kv.Range) { tx.addConflict(&tx.writes, r) }

func (tx *transaction) addConflict(ranges *[]kv.Range, r kv.Range) {
	if tx.ended || r.Empty() {
		return
	}
	tx.size += len(r.Begin) + len(r.End)
	*ranges = append(*ranges, r.Clone())
}

func (tx *transaction) Turn() int64 { return 0 }

// Commit implements kv.Transaction. Its future is always ready.
func (tx *transaction) Commit() kv.Future[struct{}] {
	if tx.ended {
		return kv.Ready(struct{}{}, kv.ErrUsed)
	}
	defer tx.Cancel()
	if tx.failed != nil {
		return kv.Ready(struct{}{}, tx.failed)
	}
	if err := tx.ctx.Err(); err != nil {
		return kv.Ready(struct{}{}, err)
	}
	return kv.Ready(struct{}{}, tx.db.commit(tx))
}

func (tx *transaction) Cancel() {
	// This releases the state as well: a caller may keep an ended transaction.
	*tx = transaction{ended: true}
}
