package state

import (
	"bytes"
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

const (
	// minRun is the least number of keys that are cleared as a range, and of items that are looked
	// for with one. For fewer, single keys are cheaper.
	minRun = 8
	// expiredBytes is about how many bytes of items, and of what belongs to them, are read at once.
	expiredBytes = 1 << 20
	// expiredSingly is the most expired items that are looked for one by one: each may have a value
	// and two ("m") keys of 90 KB.
	expiredSingly = 64
)

// Expiries removes items in ("i") of one queue that have expired. Items that expire together mostly
// lie next to each other, in the queue and in the time index. So a few range reads find their keys
// and what lies between them, and runs of keys are cleared as ranges. For a store, that is a small
// part of the work of single keys.
type Expiries struct {
	G     *Ledger
	Items []*codec.Record // with id, expires and unique
	Left  map[string]bool // entries of items that are left to the next transaction

	// The keys of each kind. If the items are few, only metas is read.
	ready, pasts, metas, entries strip

	single  []kv.Future[[]byte] // by item: its own key, read alone; nil if it is not
	alone   []kv.Future[[]byte] // by item: its history, likewise; only if the queue keeps attempts
	present []bool              // by item: it is there
	absent  []bool              // by item: the range read has shown that it is not there
}

// RemoveExpired removes the items of some queues with everything that belongs to them. Of an item
// that is not there, only the entry of the time index goes. The error is one of the store.
func RemoveExpired(queues ...*Expiries) error {
	for _, e := range queues {
		e.begin(len(queues))
	}

	arrive := func(e *Expiries) error { return e.arrive(len(queues)) }
	if err := Each(queues, arrive); err != nil {
		return err
	}
	return Each(queues, (*Expiries).remove)
}

// begin starts to read the ranges. queues is how many queues share the bytes that are read at once.
func (e *Expiries) begin(queues int) {
	l := e.G.L
	slices.SortFunc(e.Items, func(a, b *codec.Record) int { return a.ID.Compare(&b.ID) })
	for _, h := range e.Items {
		e.entries.add(kv.SingleKey(l.DueKey(h.Expires, l.ExpiryKey(&h.ID))))
	}

	byKey := func(a, b kv.Range) int { return bytes.Compare(a.Begin, b.Begin) }
	slices.SortFunc(e.entries.spans, byKey)

	// An item may have several entries, but has each other key once.
	e.Items = slices.CompactFunc(e.Items, func(a, b *codec.Record) bool { return a.ID == b.ID })
	for _, h := range e.Items {
		e.ready.add(kv.SingleKey(l.ItemKey(&h.ID)))
		e.pasts.add(kv.SingleKey(l.HistoryKey(&h.ID)))
		e.metas.add(l.MetaRange(&h.ID))
	}

	r, n := e.G.Tx.Snapshot(), len(e.Items)
	short := kv.RangeOptions{Limit: 2 * n}
	much := kv.RangeOptions{Limit: 2 * n, Bytes: expiredBytes / queues}

	e.metas.begin(r, much)
	if n < minRun { // for few items, single reads are cheaper than ranges
		return
	}

	e.ready.begin(r, much)
	e.pasts.begin(r, short)
	e.entries.begin(r, short)
}

// arrive waits for the ranges, and starts to read items one by one where they did not reach. The
// error is one of the store.
func (e *Expiries) arrive(queues int) error {
	strips := []*strip{&e.ready, &e.pasts, &e.metas, &e.entries}
	if err := Each(strips, (*strip).arrive); err != nil {
		return err
	}

	e.single = make([]kv.Future[[]byte], len(e.Items))
	e.alone = make([]kv.Future[[]byte], len(e.Items))
	e.present, e.absent = make([]bool, len(e.Items)), make([]bool, len(e.Items))
	trail := e.G.Trail() > 0
	e.Left = map[string]bool{}
	singly := 0
	for n, h := range e.Items {
		isRead := n < len(e.ready.own)
		e.absent[n] = isRead && len(e.ready.own[n]) == 0
		if e.absent[n] {
			continue
		}

		if !isRead || !e.isKnown(n) { // it may be large
			if singly++; singly > max(expiredSingly/queues, 1) {
				e.Left[string(e.G.L.DueKey(h.Expires, e.G.L.ExpiryKey(&h.ID)))] = true
				continue
			}
		}

		if isRead {
			h.Value, e.present[n] = e.ready.own[n][0].Value, true
		} else {
			e.single[n] = e.G.Tx.Get(e.ready.spans[n].Begin)
		}

		if trail && n >= len(e.pasts.own) {
			e.alone[n] = ReadHistory(e.G.L, e.G.Tx, &h.ID)
		}
		if n < len(e.metas.own) {
			metas := kv.Ready(e.metas.own[n], nil)
			e.G.ReuseMeta(&ItemRead{Item: codec.Item{ID: h.ID}, metas: metas})
		} else {
			e.G.BeginDelete(&h.ID)
		}
	}

	return nil
}

// isKnown reports whether the ("m") keys of an item were read, or are not needed.
func (e *Expiries) isKnown(n int) bool {
	return n < len(e.metas.own) || !e.G.NeedsMeta(&e.Items[n].ID)
}

// remove removes the items that are there. The error is one of the store.
func (e *Expiries) remove() error {
	g := e.G
	for n, h := range e.Items {
		if read := e.single[n]; read != nil {
			value, err := read.Get()
			if err != nil {
				return err
			}
			h.Value, e.present[n] = value, value != nil
		}

		if e.present[n] {
			past, err := e.past(n)
			if err != nil {
				return err
			}
			if past != nil {
				g.forgetAttempts(RecordOf(&h.ID, past))
			}
			g.countRemoved(h)
			g.unlink(&h.ID, g.linksOf(h), codec.MemberGone)
			g.freeUnique(&h.ID, h.Unique)
			g.cache.detached(e.ready.spans[n].Begin)
			g.removeFromGroup(codec.KindGroupReady, &h.ID)
			g.countReady(&h.ID, -1)
			g.SideEffects.Expired++
		}
	}

	// Runs stay within a priority. Pushes add at its end, so they do not conflict.
	follows := func(n int) bool { return e.Items[n].ID.Priority == e.Items[n-1].ID.Priority }
	all := func(int) bool { return true }
	for _, run := range e.ready.runs(follows, all) {
		g.Tx.AddReadConflict(run.all)
	}

	e.ready.clear(g.Tx, follows, func(n int) bool { return e.present[n] || e.absent[n] })

	// What belongs to the others a staged pop may hold.
	owns := func(n int) bool { return e.present[n] }
	e.pasts.clear(g.Tx, follows, owns)
	e.metas.clear(g.Tx, follows, owns)
	done := func(n int) bool { return !e.Left[string(e.entries.spans[n].Begin)] }
	e.entries.clear(g.Tx, all, done)
	return nil
}

// past returns the history of an item as it is stored. The error is one of the store.
func (e *Expiries) past(n int) ([]byte, error) {
	switch {
	case e.alone[n] != nil:
		return e.alone[n].Get()
	case n < len(e.pasts.own) && len(e.pasts.own[n]) > 0:
		return e.pasts.own[n][0].Value, nil
	}
	return nil, nil
}

// strip is the keys of one kind to remove, and what a range read without conflict has found: which
// of them are there, and how many other keys lie between them.
type strip struct {
	spans  []kv.Range // what is to be removed, in the order of the keys
	read   kv.Future[[]kv.KeyValue]
	asked  kv.RangeOptions
	own    [][]kv.KeyValue // what is in each span; shorter than spans if the read did not reach all
	others []int           // how many other keys lie before each span of own
}

func (s *strip) add(span kv.Range) { s.spans = append(s.spans, span) }

// begin starts to read the spans and what lies between them, as far as the options allow.
func (s *strip) begin(r kv.Reader, o kv.RangeOptions) {
	s.asked = o
	s.read = r.GetRange(kv.Range{Begin: s.spans[0].Begin, End: s.spans[len(s.spans)-1].End}, o)
}

// arrive waits for what begin started. The error is one of the store.
func (s *strip) arrive() error {
	if s.read == nil {
		return nil
	}

	found, err := s.read.Get()
	if err != nil {
		return err
	}

	// Go along the spans and the pairs that were found, both in order.
	full := s.asked.Full(found)
	for _, span := range s.spans {
		others := countBefore(found, span.Begin)
		found, s.others = found[others:], append(s.others, others)
		own := countBefore(found, span.End)
		if own == len(found) && full { // there may be more in this span
			break
		}
		s.own, found = append(s.own, found[:own:own]), found[own:]
	}

	return nil
}

// countBefore returns how many of the pairs, which are in order, come before a key.
func countBefore(pairs []kv.KeyValue, key []byte) (n int) {
	for n < len(pairs) && bytes.Compare(pairs[n].Key, key) < 0 {
		n++
	}
	return n
}

// run is spans with nothing else between them.
type run struct {
	all   kv.Range
	found []kv.KeyValue
}

// runs joins the spans that were read and that owns names to runs. follows says whether a span may
// be in a run with the one before it.
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

// clear removes the spans that owns names. Removing a run as a range conflicts with all writes to
// the range.
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

// ExpiredSize is about the most bytes that removing an expired item takes in a transaction:
// mutations and conflict ranges of all of its keys. In a run it takes less.
func ExpiredSize(l *codec.Layout, id *codec.ID, unique string) int {
	const (
		keys = 24 // written, or in conflict ranges
		rest = 40 // of a key, behind the prefix
	)
	return keys*(len(l.Prefix)+rest) + 6*len(unique) + l.IndexSizeOf(id)
}
