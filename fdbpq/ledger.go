package fdbpq

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// ledger owns the state of the items of one queue in one transaction: nothing
// else writes their keys or the numbers of items. An item is
//
//	ready   at its key in ("i"), and counted
//	lent    gone from ("i"), not counted; its ("m") keys stay, and whoever lent
//	        it keeps its value: a staged pop
//	gone    no key is left of it
//
// and these are the ways between them:
//
//	      add                lend               settle
//	(new) ----> ready --------------------> lent ------> gone
//	             ^  ^       giveBack         |            |
//	             |  '------------------------'            |
//	             '----------------------------------------'
//	                            restore
//
// take is lend and settle at once. A state that an item can have besides is one
// more method for each way to it and from it.
//
// The numbers of items are written by flush, which must be called in the end.
type ledger struct {
	tx     kv.Transaction
	l      *layout
	now    time.Time
	deltas map[int64]int64 // changes of the numbers of items, by priority
	wrote  bool
}

// add writes a new item. Whether it has ("m") keys is said by its id.
func (g *ledger) add(id *ID, m *Message) {
	g.tally(id, 1)
	if !id.hasMeta() {
		g.tx.Set(g.l.itemKey(id), g.l.format.encode(m.Value))
		return
	}
	first := min(len(m.Value), g.l.format.chunk())
	g.tx.Set(g.l.itemKey(id), g.l.format.encode(m.Value[:first]))
	blob := append(encodeHeaders(m.Headers), m.Value[first:]...)
	for part := 0; len(blob) > 0; part++ {
		n := min(len(blob), chunkSize)
		g.tx.Set(g.l.metaKey(id, part), blob[:n])
		blob = blob[n:]
	}
}

// lend takes an item out of the queue and leaves its ("m") keys. Its value goes
// with whoever lends it.
func (g *ledger) lend(s *stored) {
	g.tx.Clear(s.pair.Key)
	g.tally(&s.item.ID, -1)
}

// giveBack writes an item that was lent to its old place, with the value as it was
// stored.
func (g *ledger) giveBack(id *ID, value []byte) {
	g.tx.Set(g.l.itemKey(id), value)
	g.tally(id, 1)
}

// settle removes what is left of an item that was lent, all of which was read.
func (g *ledger) settle(s *stored) {
	for _, part := range s.parts {
		g.tx.Clear(part.Key)
	}
	g.wrote = true
}

// take removes an item, all of which was read.
func (g *ledger) take(s *stored) {
	g.lend(s)
	g.settle(s)
}

// restore writes an item that was taken to its old place, as it was stored. The
// queue may have left the list of queues meanwhile.
func (g *ledger) restore(s *stored) {
	if g.l.list != nil {
		g.l.register(g.tx, g.now)
	}
	g.tx.Set(s.pair.Key, s.pair.Value)
	for _, part := range s.parts {
		g.tx.Set(part.Key, part.Value)
	}
	g.tally(&s.item.ID, 1)
}

// count notes that an item came or went. Items of other programs are not counted.
func (g *ledger) tally(id *ID, delta int64) {
	g.wrote = true
	if !id.ours() {
		return
	}
	if g.deltas == nil {
		g.deltas = make(map[int64]int64)
	}
	g.deltas[id.Priority] += delta
}

// flush writes the changes of the numbers of items.
func (g *ledger) flush() {
	total := int64(0)
	for priority, delta := range g.deltas {
		total += delta
		if !g.l.fifo {
			addToCounter(g.tx, g.l.counterKey(priority), delta)
		}
	}
	addToCounter(g.tx, g.l.totalKey(), total)
}

var zeroCounter = make([]byte, 8)

// addCount changes a number of items. One that reaches zero is removed, so that a
// queue with many priorities leaves nothing behind.
func addToCounter(tx kv.Transaction, key []byte, delta int64) {
	if delta == 0 {
		return
	}
	tx.Add(key, delta)
	if delta < 0 {
		tx.CompareAndClear(key, zeroCounter)
	}
}
