package state

import (
	"bytes"
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Expiries is items in ("i") of one queue that have expired, to be removed together. Those that expire together mostly
// lie next to each other, in the queue as in the time index. So a few range reads find their keys, and what lies between
// those, and runs of keys are cleared as ranges. To a store, that is a small part of the work of single keys.
//
// Call begin, arrive and remove, each for all queues before the next.
type Expiries struct {
	G      *Ledger
	Items  []*codec.Held // with id, expires and unique, and value unless they are to be looked for
	Walked bool          // the transaction has read them; otherwise they are looked for
	Queues int           // that share what is read at once, if they are looked for

	ready, pasts, metas, entries strip // ready, unless they are few, and pasts and entries need not be read

	single  []kv.Future[[]byte] // by item: read alone; nil if not
	present []bool              // by item
	absent  []bool              // by item: the range has shown that it is not there
	Left    map[string]bool     // entries of items that the next transaction is to look for
}

// Begin starts to read the ranges.
func (e *Expiries) Begin() {
	l := e.G.L
	slices.SortFunc(e.Items, func(a, b *codec.Held) int { return codec.CompareIDs(&a.ID, &b.ID) })
	for _, h := range e.Items {
		e.entries.add(kv.SingleKey(l.DueKey(h.Expires, l.ExpiryKey(&h.ID))))
	}
	slices.SortFunc(e.entries.spans, func(a, b kv.Range) int { return bytes.Compare(a.Begin, b.Begin) })

	e.Items = slices.CompactFunc(e.Items, func(a, b *codec.Held) bool { return a.ID == b.ID })
	for _, h := range e.Items {
		e.ready.add(kv.SingleKey(l.ItemKey(&h.ID)))
		e.pasts.add(kv.SingleKey(l.HistoryKey(&h.ID)))
		e.metas.add(l.MetaRange(&h.ID))
	}
	r, n := e.G.Tx.Snapshot(), len(e.Items)
	much, short := kv.RangeOptions{Limit: 2 * n, Bytes: expiredBytes / max(e.Queues, 1)}, kv.RangeOptions{Limit: 2 * n}
	e.metas.begin(r, much)
	if n < minRun {
		return
	}
	if e.Walked { // they were read already, and little else can be there now
		e.ready.begin(r, kv.RangeOptions{Limit: n + minRun, Bytes: 2 * maxSteppedBytes})
	} else {
		e.ready.begin(r, much)
	}
	e.pasts.begin(r, short)
	e.entries.begin(r, short)
}

// Arrive waits for the ranges, and starts to read what they leave open. The error is one of the store.
func (e *Expiries) Arrive() error {
	for _, s := range []*strip{&e.ready, &e.pasts, &e.metas, &e.entries} {
		if err := s.arrive(); err != nil {
			return err
		}
	}

	e.single = make([]kv.Future[[]byte], len(e.Items))
	e.present, e.absent = make([]bool, len(e.Items)), make([]bool, len(e.Items))
	found, metas, singly := e.ready.found, e.metas.found, 0
	for n, h := range e.Items {
		var own, parts []kv.KeyValue
		_, own, found = splitKeys(found, e.ready.spans[n])
		_, parts, metas = splitKeys(metas, e.metas.spans[n])

		isRead := n < e.ready.covered
		if e.absent[n] = !e.Walked && isRead && len(own) == 0; e.absent[n] {
			continue
		}
		if !e.Walked && !(isRead && e.isSized(n)) {
			if singly++; singly > max(expiredSingly/max(e.Queues, 1), 1) { // they may be large
				e.leave(h)
				continue
			}
		}
		switch {
		case e.Walked:
			e.present[n] = true
		case isRead:
			h.Value, e.present[n] = own[0].Value, true
		default:
			e.single[n] = e.G.Tx.Get(e.ready.spans[n].Begin)
		}
		if n < e.metas.covered {
			e.G.knowSize(&h.ID, parts)
		} else {
			e.G.BeginSize(&h.ID)
		}
	}
	return nil
}

// isSized reports whether what was read of an item says how large it is, if that has to be known.
func (e *Expiries) isSized(n int) bool {
	return n < e.metas.covered || !codec.HasMeta(&e.Items[n].ID) || !e.G.CountsBytes()
}

// leave leaves an item to the next transaction.
func (e *Expiries) leave(h *codec.Held) {
	if e.Left == nil {
		e.Left = map[string]bool{}
	}
	e.Left[string(e.G.L.DueKey(h.Expires, e.G.L.ExpiryKey(&h.ID)))] = true
}

// Remove removes the items with all that belongs to them. An entry of the time index whose item is not there goes
// alone. The error is one of the store.
func (e *Expiries) Remove() error {
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
			g.countRemoved(h)
			g.freeUnique(&h.ID, h.Unique)
			g.countReady(&h.ID, -1)
			g.removed.Expired++
		}
	}

	// Pushes add at the end of a priority, so they do not conflict with runs within one. A walk conflicts anyway.
	follows := func(n int) bool { return e.Walked || e.Items[n].ID.Priority == e.Items[n-1].ID.Priority }
	owns := func(n int) bool { return e.present[n] } // a staged pop may hold the others
	all := func(int) bool { return true }
	if !e.Walked {
		for _, run := range e.ready.runs(follows, all) {
			g.Tx.AddReadConflict(run.all)
		}
	}
	e.ready.clear(g.Tx, follows, func(n int) bool { return e.present[n] || e.absent[n] })
	e.pasts.clear(g.Tx, follows, owns)
	e.metas.clear(g.Tx, follows, owns)
	e.entries.clear(g.Tx, all, func(n int) bool { return !e.Left[string(e.entries.spans[n].Begin)] })
	return nil
}
