package state

import (
	"bytes"
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

const (
	// minRun is the least number of keys that are cleared as a range, and of items that are looked
	// for with one: other ways are cheaper for few.
	minRun = 8
	// expiredBytes is about how many bytes of items, and of what belongs to them, are read at once.
	expiredBytes = 1 << 20
)

// strip is keys of one kind that are to be removed, and what a range read says of them: which there
// are, and what others lie between. It is read without conflict.
type strip struct {
	spans  []kv.Range // what is to be removed, in the order of the keys
	read   kv.Future[[]kv.KeyValue]
	asked  kv.RangeOptions
	own    [][]kv.KeyValue // what is in the first of the spans, which were read
	others []int           // how many others lie before each of these
}

func (s *strip) add(span kv.Range) { s.spans = append(s.spans, span) }

// begin starts to read the spans and what lies between, as far as the options say.
func (s *strip) begin(r kv.Reader, o kv.RangeOptions) {
	s.asked = o
	s.read = r.GetRange(kv.Range{Begin: s.spans[0].Begin, End: s.spans[len(s.spans)-1].End}, o)
}

// arrive waits for what begin has started. The error is one of the store.
func (s *strip) arrive() error {
	if s.read == nil {
		return nil
	}
	found, err := s.read.Get()
	if err != nil {
		return err
	}
	s.own, s.others = inSpans(found, s.spans, s.asked)
	return nil
}

// inSpans returns what a range read has found in each of the first of some spans, as far as it reaches,
// in the order of the keys, and how many others it has found before each. The spans are in the order of
// the read.
func inSpans(pairs []kv.KeyValue, spans []kv.Range, o kv.RangeOptions) (own [][]kv.KeyValue, others []int) {
	full := o.Full(pairs)
	passed := func(key, bound []byte) bool { return (bytes.Compare(key, bound) < 0) == o.Reverse }
	for _, span := range spans {
		first, last := span.Begin, span.End
		if o.Reverse {
			first, last = last, first
		}
		before, n := 0, 0
		for before < len(pairs) && !passed(pairs[before].Key, first) {
			before++
		}
		pairs, others = pairs[before:], append(others, before)
		for n < len(pairs) && !passed(pairs[n].Key, last) {
			n++
		}
		if n == len(pairs) && full { // there may be more of them
			break
		}

		found := pairs[:n:n]
		if pairs = pairs[n:]; o.Reverse {
			slices.Reverse(found)
		}
		own = append(own, found)
	}
	return own, others
}

// run is spans with nothing else between them.
type run struct {
	all   kv.Range
	found []kv.KeyValue
}

// runs returns the spans that were read as runs. A span follows the one before it in a run if
// follows says so; owns says which spans are to be removed after all.
func (s *strip) runs(follows, owns func(n int) bool) (runs []run) {
	last := -2 // span in the last run
	for n, own := range s.own {
		if !owns(n) {
			continue
		}
		if last == n-1 && s.others[n] == 0 && follows(n) {
			r := &runs[len(runs)-1]
			r.all.End, r.found = s.spans[n].End, append(r.found, own...)
		} else {
			runs = append(runs, run{s.spans[n], own})
		}
		last = n
	}
	return runs
}

// clear removes the spans that owns names. Removing a run as a range conflicts with whoever writes
// to it.
func (s *strip) clear(tx kv.Transaction, follows, owns func(n int) bool) {
	for _, r := range s.runs(follows, owns) {
		if len(r.found) < minRun {
			for _, pair := range r.found {
				tx.Clear(pair.Key)
			}
			continue
		}
		tx.AddReadConflict(r.all)
		tx.ClearRange(r.all)
	}

	for n := len(s.own); n < len(s.spans); n++ {
		switch span := s.spans[n]; {
		case !owns(n):
		case len(span.End) == len(span.Begin)+1: // a single key
			tx.Clear(span.Begin)
		default:
			tx.ClearRange(span)
		}
	}
}
