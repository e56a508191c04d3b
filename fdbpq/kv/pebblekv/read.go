package pebblekv

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// readTransaction implements kv.ReadTransaction.
type readTransaction struct {
	ctx   context.Context
	store *store
	view  *view

	mu     sync.Mutex
	ended  error            // nil while it is open
	iter   *pebble.Iterator // nil before the first read
	copies arena
	learnt *gapSet
}

var _ kv.ReadTransaction = (*readTransaction)(nil)

// Get implements kv.Reader.
func (tx *readTransaction) Get(key []byte) kv.Future[[]byte] {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	return kv.Ready(tx.get(key))
}

func (tx *readTransaction) get(key []byte) ([]byte, error) {
	if err := tx.prepare(); err != nil {
		return nil, err
	}
	limit := append(bytes.Clone(key), 0)
	// The limit keeps it from looking for the next key if this one is gone.
	if tx.iter.SeekGEWithLimit(key, limit) != pebble.IterValid || !bytes.Equal(tx.iter.Key(), key) {
		return nil, readError(tx.iter.Error())
	}
	value, err := tx.iter.ValueAndErr()
	if err != nil {
		return nil, readError(err)
	}
	return tx.copies.clone(value), nil
}

// GetRange implements kv.Reader.
func (tx *readTransaction) GetRange(r kv.Range, o kv.RangeOptions) kv.Future[[]kv.KeyValue] {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	return kv.Ready(tx.getRange(r, o))
}

func (tx *readTransaction) getRange(r kv.Range, o kv.RangeOptions) ([]kv.KeyValue, error) {
	if err := tx.prepare(); err != nil {
		return nil, err
	}
	lo, hi := tx.store.known.narrow(r.Begin, r.End, tx.view.version)
	if bytes.Compare(lo, hi) >= 0 {
		return nil, nil
	}
	s := scan{iter: tx.iter, copies: &tx.copies}
	if err := s.read(kv.Range{Begin: lo, End: hi}, o); err != nil {
		return nil, err
	}
	if tx.store.known != nil {
		s.teach(&tx.learnt, r, o.Reverse)
	}
	return s.pairs, nil
}

// prepare makes tx.iter ready to be used.
func (tx *readTransaction) prepare() error {
	if tx.ended != nil {
		return tx.ended
	}
	if err := tx.ctx.Err(); err != nil {
		return err
	}
	if tx.iter != nil {
		return nil
	}
	iter, err := tx.view.iter.Clone(pebble.CloneOptions{})
	if err != nil {
		return readError(err)
	}
	tx.iter = iter
	return nil
}

// Cancel implements kv.ReadTransaction.
func (tx *readTransaction) Cancel() { tx.abort(kv.ErrUsed) }

func (tx *readTransaction) abort(reason error) {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if tx.ended != nil {
		return
	}
	tx.ended = reason
	if tx.iter != nil {
		_ = tx.iter.Close() // Its errors were returned by the reads.
	}
	if tx.learnt != nil {
		tx.store.known.observed(tx.view.version, tx.learnt)
	}
	tx.view.unref()
	tx.store.end(tx)
}

// scan is one range read.
type scan struct {
	iter   *pebble.Iterator
	copies *arena

	pairs []kv.KeyValue
	// near and far are how many dead entries it stepped over before the first
	// key and after the last one. all is set if it saw all of the range.
	near, far int
	all       bool
}

// maxAhead is how many pairs room is made for before they are read.
const maxAhead = 64

// read reads r, which is not empty.
func (s *scan) read(r kv.Range, o kv.RangeOptions) error {
	if o.Limit > 0 {
		s.pairs = make([]kv.KeyValue, 0, min(o.Limit, maxAhead))
	}
	begun := s.steps()
	var state pebble.IterValidityState
	if o.Reverse {
		state = s.iter.SeekLTWithLimit(r.End, r.Begin)
	} else {
		state = s.iter.SeekGEWithLimit(r.Begin, r.End)
	}
	found := s.steps()
	s.near = found - begun
	for state == pebble.IterValid && s.inside(r, o.Reverse) {
		value, err := s.iter.ValueAndErr()
		if err != nil {
			return readError(err)
		}
		s.pairs = append(s.pairs, kv.KeyValue{Key: s.copies.clone(s.iter.Key()), Value: s.copies.clone(value)})
		if len(s.pairs) == o.Limit {
			return nil
		}
		found = s.steps()
		if o.Reverse {
			state = s.iter.PrevWithLimit(r.Begin)
		} else {
			state = s.iter.NextWithLimit(r.End)
		}
	}
	s.far = s.steps() - found
	s.all = true
	return readError(s.iter.Error())
}

// inside reports whether the iterator is in r. Its limit is best effort.
func (s *scan) inside(r kv.Range, reverse bool) bool {
	if reverse {
		return bytes.Compare(s.iter.Key(), r.Begin) >= 0
	}
	return bytes.Compare(s.iter.Key(), r.End) < 0
}

// steps is how many entries, dead or alive, the iterator has passed so far.
func (s *scan) steps() int {
	stats := s.iter.Stats()
	return stats.ForwardStepCount[pebble.InternalIterCall] + stats.ReverseStepCount[pebble.InternalIterCall]
}

// teach adds what the scan showed to be empty at the ends of r to learnt, if it
// is worth it. r is the range that was asked for, of which the scan may have
// read only a part because the rest was known to be empty.
func (s *scan) teach(learnt **gapSet, r kv.Range, reverse bool) {
	near, far := r, r
	if len(s.pairs) > 0 {
		first, last := kv.SingleKey(s.pairs[0].Key), kv.SingleKey(s.pairs[len(s.pairs)-1].Key)
		if reverse {
			near.Begin, far.End = first.End, last.Begin
		} else {
			near.End, far.Begin = first.Begin, last.End
		}
	}
	if s.near >= minDead {
		remember(learnt, near, s.near)
	}
	if s.all && s.far >= minDead && len(s.pairs) > 0 {
		remember(learnt, far, s.far)
	}
}

// remember adds a range in which nothing was found to learnt.
func remember(learnt **gapSet, r kv.Range, dead int) {
	if bytes.Compare(r.Begin, r.End) >= 0 {
		return
	}
	if *learnt == nil {
		*learnt = newGapSet()
	}
	(*learnt).add(gap{begin: bytes.Clone(r.Begin), end: bytes.Clone(r.End), dead: dead})
}

// readError says that a read failed, if err is not nil.
func readError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: read: %w", kv.ErrUnavailable, err)
}

// arena makes copies of many small slices with few allocations. The copies
// belong to whoever gets them.
type arena struct{ free []byte }

const (
	arenaBlock = 4 << 10 // bytes
	// arenaShare: a slice of more than this part of a block gets its own
	// memory, so that little is wasted at the end of a block.
	arenaShare = 8
)

// clone returns a copy of b, which is never nil.
func (a *arena) clone(b []byte) []byte {
	n := len(b)
	if n == 0 {
		return []byte{}
	}
	if n > arenaBlock/arenaShare {
		return bytes.Clone(b)
	}
	if n > len(a.free) {
		a.free = make([]byte, arenaBlock)
	}
	c := a.free[:n:n]
	a.free = a.free[n:]
	copy(c, b)
	return c
}
