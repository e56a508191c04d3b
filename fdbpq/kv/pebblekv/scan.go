package pebblekv

import (
	"bytes"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// scan is one range read.
type scan struct {
	iter    *pebble.Iterator
	store   *openedStore
	version uint64 // for the gap index
	finder  *gapFinder
	copies  *arena

	whole   kv.Range // what to read
	options kv.RangeOptions
	pairs   []kv.KeyValue
	size    int    // bytes of their values
	last    []byte // the key read last
	crossed bool   // skipped a gap since then
}

// maxAhead is the most pairs to allocate room for in advance.
const maxAhead = 64

func (s *scan) read() ([]kv.KeyValue, error) {
	s.finder.restart()
	for r := s.whole; !r.Empty(); {
		// Read up to the next gap.
		part := s.store.gapIndex.part(r, s.version, s.options.Reverse)
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

	s.noteGap(nil)
	return s.pairs, nil
}

// readPart reads r, which is not empty and may contain any number of dead keys. full
// says that a limit was reached.
func (s *scan) readPart(r kv.Range) (full bool, err error) {
	for state := s.seek(r); state == pebble.IterValid && s.inside(r); state = s.next(r) {
		value, err := s.iter.ValueAndErr()
		if err != nil {
			return false, s.store.readError(err)
		}

		if s.pairs == nil && s.options.Limit > 0 {
			s.pairs = make([]kv.KeyValue, 0, min(s.options.Limit, maxAhead))
		}
		key := s.copies.clone(s.iter.Key())
		s.pairs = append(s.pairs, kv.KeyValue{Key: key, Value: s.copies.clone(value)})
		s.size += len(value)

		s.finder.seen-- // It is alive.
		s.noteGap(key)
		s.finder.restart()
		s.last, s.crossed = key, false

		if len(s.pairs) == s.options.Limit || s.options.Bytes > 0 && s.size >= s.options.Bytes {
			return true, nil
		}
	}
	return false, s.store.readError(s.iter.Error())
}

// noteGap notes that no key is between the last one and key, or the end of the range
// if key is nil, if that is worth remembering.
func (s *scan) noteGap(key []byte) {
	if len(s.finder.samples) == 0 && (!s.crossed || s.finder.seen <= 0) {
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
	s.finder.addGap(r, s.finder.samples...)
}

func (s *scan) seek(r kv.Range) pebble.IterValidityState {
	if s.options.Reverse {
		return s.iter.SeekLTWithLimit(r.End, r.Begin)
	}
	if len(r.Begin) == 0 { // with the race detector Pebble cannot seek this
		if s.iter.First() {
			return pebble.IterValid
		}
		return pebble.IterExhausted
	}
	return s.iter.SeekGEWithLimit(r.Begin, r.End)
}

func (s *scan) next(r kv.Range) pebble.IterValidityState {
	if s.options.Reverse {
		return s.iter.PrevWithLimit(r.Begin)
	}
	return s.iter.NextWithLimit(r.End)
}

// inside reports whether the iterator is in r: its own limit is only best effort.
func (s *scan) inside(r kv.Range) bool {
	if s.options.Reverse {
		return bytes.Compare(s.iter.Key(), r.Begin) >= 0
	}
	return bytes.Compare(s.iter.Key(), r.End) < 0
}
