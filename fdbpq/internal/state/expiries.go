package state

import (
	"bytes"
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// expiredSingly is the most expired items that are looked for one by one: each may have a value and
// two ("m") keys of 90 KB.
const expiredSingly = 64

// Expiries is items in ("i") of one queue that have expired, to be removed together. Those that
// expire together mostly lie next to each other, in the queue as in the time index. So a few range
// reads find their keys, and what lies between those, and runs of keys are cleared as ranges. To a
// store, that is a small part of the work of single keys.
type Expiries struct {
	G     *Ledger
	Items []*codec.Record // with id, expires and unique
	Left  map[string]bool // entries of items that the next transaction is to look for

	// ready, unless they are few, and pasts and entries need not be read
	ready, pasts, metas, entries strip

	single  []kv.Future[[]byte] // by item: read alone; nil if not
	present []bool              // by item
	absent  []bool              // by item: the range has shown that it is not there
}

// RemoveExpired removes the items of some queues with all that belongs to them. An entry of the
// time index whose item is not there goes alone. The error is one of the store.
func RemoveExpired(queues ...*Expiries) error {
	for _, e := range queues {
		e.begin(len(queues))
	}
	for _, e := range queues {
		if err := e.arrive(len(queues)); err != nil {
			return err
		}
	}
	for _, e := range queues {
		if err := e.remove(); err != nil {
			return err
		}
	}
	return nil
}

// begin starts to read the ranges, for one of so many queues.
func (e *Expiries) begin(queues int) {
	l := e.G.L
	slices.SortFunc(e.Items, func(a, b *codec.Record) int { return a.ID.Compare(&b.ID) })
	for _, h := range e.Items {
		e.entries.add(kv.SingleKey(l.DueKey(h.Expires, l.ExpiryKey(&h.ID))))
	}
	slices.SortFunc(e.entries.spans, func(a, b kv.Range) int { return bytes.Compare(a.Begin, b.Begin) })

	e.Items = slices.CompactFunc(e.Items, func(a, b *codec.Record) bool { return a.ID == b.ID })
	for _, h := range e.Items {
		e.ready.add(kv.SingleKey(l.ItemKey(&h.ID)))
		e.pasts.add(kv.SingleKey(l.HistoryKey(&h.ID)))
		e.metas.add(l.MetaRange(&h.ID))
	}

	r, n := e.G.Tx.Snapshot(), len(e.Items)
	much, short := kv.RangeOptions{Limit: 2 * n, Bytes: expiredBytes / queues}, kv.RangeOptions{Limit: 2 * n}
	e.metas.begin(r, much)
	if n < minRun {
		return
	}
	e.ready.begin(r, much)
	e.pasts.begin(r, short)
	e.entries.begin(r, short)
}

// arrive waits for the ranges, and starts to read what they leave open. The error is one of the
// store.
func (e *Expiries) arrive(queues int) error {
	for _, s := range []*strip{&e.ready, &e.pasts, &e.metas, &e.entries} {
		if err := s.arrive(); err != nil {
			return err
		}
	}

	e.single = make([]kv.Future[[]byte], len(e.Items))
	e.present, e.absent = make([]bool, len(e.Items)), make([]bool, len(e.Items))
	singly := 0
	for n, h := range e.Items {
		isRead := n < len(e.ready.own)
		if e.absent[n] = isRead && len(e.ready.own[n]) == 0; e.absent[n] {
			continue
		}
		if !isRead || !e.isSized(n) { // it may be large
			if singly++; singly > max(expiredSingly/queues, 1) {
				e.leave(h)
				continue
			}
		}

		if isRead {
			h.Value, e.present[n] = e.ready.own[n][0].Value, true
		} else {
			e.single[n] = e.G.Tx.Get(e.ready.spans[n].Begin)
		}
		if n < len(e.metas.own) {
			e.G.knowSize(&h.ID, e.metas.own[n])
		} else {
			e.G.BeginSize(&h.ID)
		}
	}
	return nil
}

// isSized reports whether what was read of an item says how large it is, if that has to be known.
func (e *Expiries) isSized(n int) bool {
	return n < len(e.metas.own) || !codec.HasMeta(&e.Items[n].ID) || !e.G.CountsBytes()
}

// leave leaves an item to the next transaction.
func (e *Expiries) leave(h *codec.Record) {
	if e.Left == nil {
		e.Left = map[string]bool{}
	}
	e.Left[string(e.G.L.DueKey(h.Expires, e.G.L.ExpiryKey(&h.ID)))] = true
}

// remove removes what is there. The error is one of the store.
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
			g.countRemoved(h)
			g.freeUnique(&h.ID, h.Unique)
			g.countReady(&h.ID, -1)
			g.removed.Expired++
		}
	}

	// Pushes add at the end of a priority, so they do not conflict with runs within one.
	follows := func(n int) bool { return e.Items[n].ID.Priority == e.Items[n-1].ID.Priority }
	owns := func(n int) bool { return e.present[n] } // a staged pop may hold the others
	all := func(int) bool { return true }
	for _, run := range e.ready.runs(follows, all) {
		g.Tx.AddReadConflict(run.all)
	}

	e.ready.clear(g.Tx, follows, func(n int) bool { return e.present[n] || e.absent[n] })
	e.pasts.clear(g.Tx, follows, owns)
	e.metas.clear(g.Tx, follows, owns)
	e.entries.clear(g.Tx, all, func(n int) bool { return !e.Left[string(e.entries.spans[n].Begin)] })
	return nil
}
