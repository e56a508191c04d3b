package fdbpq

import (
	"bytes"
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// expiries is items in ("i") of one queue that have expired, to be removed together. Those that expire together mostly
// lie next to each other, in the queue as in the time index. So a few range reads find their keys, and what lies between
// those, and runs of keys are cleared as ranges. To a store, that is a small part of the work of single keys.
//
// Call begin, arrive and remove, each for all queues before the next.
type expiries struct {
	g      *ledger
	items  []*held // with id, expires and unique, and value unless they are to be looked for
	walked bool    // the transaction has read them; otherwise they are looked for

	ready, pasts, metas, entries strip // ready, unless they are few, and pasts and entries need not be read

	single  []kv.Future[[]byte] // by item: read alone; nil if not
	present []bool              // by item
	left    map[string]bool     // entries of items that the next transaction is to look for
}

const (
	// minRun is the least number of keys that are cleared as a range, and of items that are looked for with
	// one: other ways are cheaper for few.
	minRun = 8
	// expiredBytes is about how many bytes of items, and of what belongs to them, are read at once.
	expiredBytes = 1 << 20
)

// begin starts to read the ranges.
func (e *expiries) begin() {
	l := e.g.l
	slices.SortFunc(e.items, func(a, b *held) int { return a.id.compare(&b.id) })
	for _, h := range e.items {
		e.entries.add(kv.SingleKey(l.dueKey(h.expires, l.expiryKey(&h.id))))
	}
	slices.SortFunc(e.entries.spans, func(a, b kv.Range) int { return bytes.Compare(a.Begin, b.Begin) })

	e.items = slices.CompactFunc(e.items, func(a, b *held) bool { return a.id == b.id })
	for _, h := range e.items {
		e.ready.add(kv.SingleKey(l.itemKey(&h.id)))
		e.pasts.add(kv.SingleKey(l.historyKey(&h.id)))
		e.metas.add(l.metaRange(&h.id))
	}
	r, n := e.g.tx.Snapshot(), len(e.items)
	much, short := kv.RangeOptions{Limit: 2 * n, Bytes: expiredBytes}, kv.RangeOptions{Limit: 2 * n}
	e.metas.begin(r, much)
	if n < minRun {
		return
	}
	if e.walked { // a page of them was read already, and little else can be there now
		e.ready.begin(r, kv.RangeOptions{Limit: n + minRun})
	} else {
		e.ready.begin(r, much)
	}
	e.pasts.begin(r, short)
	e.entries.begin(r, short)
}

// arrive waits for the ranges, and starts to read what they leave open. The error is one of the store.
func (e *expiries) arrive() error {
	for _, s := range []*strip{&e.ready, &e.pasts, &e.metas, &e.entries} {
		if err := s.arrive(); err != nil {
			return err
		}
	}

	e.single, e.present = make([]kv.Future[[]byte], len(e.items)), make([]bool, len(e.items))
	found := e.ready.found
	for n, h := range e.items {
		switch key := e.ready.spans[n].Begin; {
		case e.walked:
			e.present[n] = true
		case n >= e.ready.covered && n-e.ready.covered >= expiredSingly: // they may be large
			if e.left == nil {
				e.left = map[string]bool{}
			}
			e.left[string(e.g.l.dueKey(h.expires, e.g.l.expiryKey(&h.id)))] = true
		case n >= e.ready.covered:
			e.single[n] = e.g.tx.Get(key)
		default:
			for len(found) > 0 && bytes.Compare(found[0].Key, key) < 0 {
				found = found[1:]
			}
			if len(found) > 0 && bytes.Equal(found[0].Key, key) {
				h.value, e.present[n] = found[0].Value, true
			}
		}
		if e.present[n] || e.single[n] != nil {
			e.g.beginSize(&h.id)
		}
	}
	return nil
}

// remove removes the items with all that belongs to them. An entry of the time index whose item is not there goes
// alone. The error is one of the store.
func (e *expiries) remove() error {
	g := e.g
	for n, h := range e.items {
		if read := e.single[n]; read != nil {
			value, err := read.Get()
			if err != nil {
				return err
			}
			h.value, e.present[n] = value, value != nil
		}
		if e.present[n] {
			g.countRemoved(h)
			g.freeUnique(&h.id, h.unique)
			g.tally(&h.id, -1)
			g.removed.Expired++
		}
	}

	// Pushes add at the end of a priority, so they do not conflict with runs within one. A walk conflicts anyway.
	follows := func(n int) bool { return e.walked || e.items[n].id.Priority == e.items[n-1].id.Priority }
	owns := func(n int) bool { return e.present[n] } // a staged pop may hold the others
	all := func(int) bool { return true }
	if !e.walked {
		for _, run := range e.ready.runs(follows, all) {
			g.tx.AddReadConflict(run.all)
		}
	}
	e.ready.clear(g.tx, follows, func(n int) bool { return e.present[n] || n < e.ready.covered })
	e.pasts.clear(g.tx, follows, owns)
	e.metas.clear(g.tx, follows, owns)
	e.entries.clear(g.tx, all, func(n int) bool { return !e.left[string(e.entries.spans[n].Begin)] })
	return nil
}
