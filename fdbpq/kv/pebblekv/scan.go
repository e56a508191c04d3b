package pebblekv

import (
	"bytes"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// scan is one range read.
type scan struct {
	iter    *pebble.Iterator
	store   *store
	version uint64 // at which the store's known is asked
	student *student
	copies  *arena

	whole   kv.Range // what to read
	options kv.RangeOptions
	pairs   []kv.KeyValue
	last    []byte // key found last
	crossed bool   // a gap since last
}

// maxAhead is how many pairs room is made for before they are read.
const maxAhead = 64

func (s *scan) read() ([]kv.KeyValue, error) {
	s.student.restart()
	for r := s.whole; !r.Empty(); {
		part := s.store.known.part(r, s.version, s.options.Reverse)
		if len(part.Begin) != len(r.Begin) || len(part.End) != len(r.End) {
			s.crossed = true
		}
		if part.Empty() {
			break
		}
		if full, err := s.readPart(part); full || err != nil {
			return s.pairs, err
		}
		if s.options.Reverse {
			r.End = part.Begin
		} else {
			r.Begin = part.End
		}
	}
	s.learn(nil)
	return s.pairs, nil
}

// readPart reads r, which is not empty and may have any number of dead keys.
// full says that the limit was reached.
func (s *scan) readPart(r kv.Range) (full bool, err error) {
	for state := s.seek(r); state == pebble.IterValid && s.inside(r); state = s.step(r) {
		value, err := s.iter.ValueAndErr()
		if err != nil {
			return false, s.store.readError(err)
		}
		if s.pairs == nil && s.options.Limit > 0 {
			s.pairs = make([]kv.KeyValue, 0, min(s.options.Limit, maxAhead))
		}
		key := s.copies.clone(s.iter.Key())
		s.pairs = append(s.pairs, kv.KeyValue{Key: key, Value: s.copies.clone(value)})
		s.student.seen-- // It is alive.
		s.learn(key)
		s.student.restart()
		s.last, s.crossed = key, false
		if len(s.pairs) == s.options.Limit {
			return true, nil
		}
	}
	return false, s.store.readError(s.iter.Error())
}

// learn takes note that nothing is between the key found last and key, or the
// end of the range if key is nil, if that is worth it.
func (s *scan) learn(key []byte) {
	if s.store.known == nil || (len(s.student.marks) == 0 && (!s.crossed || s.student.seen <= 0)) {
		return
	}
	r := s.whole
	below, above := s.last, key
	if s.options.Reverse {
		below, above = above, below
	}
	if below != nil {
		r.Begin = kv.SingleKey(below).End
	}
	if above != nil {
		r.End = above
	}
	s.student.learn(r, s.student.marks...)
}

func (s *scan) seek(r kv.Range) pebble.IterValidityState {
	if s.options.Reverse {
		return s.iter.SeekLTWithLimit(r.End, r.Begin)
	}
	return s.iter.SeekGEWithLimit(r.Begin, r.End)
}

func (s *scan) step(r kv.Range) pebble.IterValidityState {
	if s.options.Reverse {
		return s.iter.PrevWithLimit(r.Begin)
	}
	return s.iter.NextWithLimit(r.End)
}

// inside reports whether the iterator is in r. Its limit is best effort.
func (s *scan) inside(r kv.Range) bool {
	if s.options.Reverse {
		return bytes.Compare(s.iter.Key(), r.Begin) >= 0
	}
	return bytes.Compare(s.iter.Key(), r.End) < 0
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
