package state

import (
	"bytes"

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
	spans   []kv.Range // what is to be removed, in the order of the keys
	read    kv.Future[[]kv.KeyValue]
	asked   kv.RangeOptions
	found   []kv.KeyValue // from the first span on
	covered int           // so many of the spans: what is in these is known
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

	s.found, s.covered = found, len(s.spans)
	if s.asked.Full(found) {
		last := kv.SingleKey(found[len(found)-1].Key).End
		for s.covered > 0 && bytes.Compare(s.spans[s.covered-1].End, last) > 0 {
			s.covered--
		}
	}
	return nil
}

// splitKeys returns the keys before a span, those in it, and those after it.
func splitKeys(keys []kv.KeyValue, span kv.Range) (before, in, after []kv.KeyValue) {
	below := func(n int, end []byte) int {
		for n < len(keys) && bytes.Compare(keys[n].Key, end) < 0 {
			n++
		}
		return n
	}
	n := below(0, span.Begin)
	m := below(n, span.End)
	return keys[:n], keys[n:m], keys[m:]
}

// run is spans with nothing else between them.
type run struct {
	all   kv.Range
	found []kv.KeyValue
}

// runs returns the spans that are covered as runs. A span follows the one before it in a run if
// follows says so; owns says which spans are to be removed after all.
func (s *strip) runs(follows, owns func(n int) bool) (runs []run) {
	last := -2 // span in the last run
	rest := s.found
	for n, span := range s.spans[:s.covered] {
		var strangers, own []kv.KeyValue
		strangers, own, rest = splitKeys(rest, span)
		if !owns(n) {
			continue
		}

		if last == n-1 && len(strangers) == 0 && follows(n) {
			r := &runs[len(runs)-1]
			r.all.End, r.found = span.End, r.found[:len(r.found)+len(own)] // which lie behind those
		} else {
			runs = append(runs, run{span, own})
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

	for n := s.covered; n < len(s.spans); n++ {
		switch span := s.spans[n]; {
		case !owns(n):
		case len(span.End) == len(span.Begin)+1: // a single key
			tx.Clear(span.Begin)
		default:
			tx.ClearRange(span)
		}
	}
}
