package fdbpq

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// ledger owns the state of one queue's items in one transaction. Nothing else writes
// their keys or the item counters. An item is
//
//	ready   at its key in ("i"), and counted
//	lent    not in ("i"), and not counted; its ("m") keys stay, and a staged pop, or
//	        this transaction, keeps its value
//	held    at its key in ("h"), and counted as leased or delayed; its ("m") keys stay
//
// and in all of these has its unique key, if it has one, or
//
//	gone    without any key
//
// and moves between these states like this:
//
//	      add                lend             removeRest
//	(new) ----> ready --------------------> lent ------> gone
//	             ^  ^       giveBack         |            |
//	             |  '------------------------'            |
//	             '----------------------------------------'
//	                            restore
//
//	        hold                 discard                addDelayed
//	lent ---------> held    lent --------> gone    (new) ----------> held
//	  ^               |
//	  '---------------'
//	       release
//
// take is lend and removeRest in one, putBack giveBack with the item's history, and claim gets
// an item that a token holds, wherever it is. An item that is buried is lent and discarded here,
// and added to its dead-letter queue (deadletter.go). A new state needs one method for each arrow to
// it and from it.
//
// flush writes the counters, so it must be called after all else, and returns an error of the store that a
// method without one has met.
type ledger struct {
	tx     kv.Transaction
	l      *layout
	now    time.Time
	facts  *facts            // what is known of the queue
	deltas map[int64]int64   // changes of the counters, by priority
	held   [heldStates]int64 // the same of held items, by state
	config config
	bytes  byteCount
	wrote  bool
	err    error // of the store, for flush

	removed Removed
	ahead   Ahead // what falls due of what it has written
	strays  bool  // items of staged pops have come back
}

// add writes an item that is ready.
func (g *ledger) add(id *ID, m *Message) {
	g.giveBack(id, g.addRest(id, m))
	g.setExpiry(id, m.lasts())
}

// addDelayed writes an item that is held back.
func (g *ledger) addDelayed(id *ID, m *Message, until time.Time) {
	g.hold(newDelayed(id, m, until, g.addRest(id, m)))
}

// addRest writes the unique key of a new item, if it has one, and its ("m") keys, if its id says that it
// has some. It returns the value for the key of the item itself.
func (g *ledger) addRest(id *ID, m *Message) []byte {
	g.keepUnique(id, m.Unique)
	g.countAdded(id, m)
	if !id.hasMeta() {
		return g.l.format.encode(m.Value)
	}
	first := min(len(m.Value), g.l.format.chunk())
	blob := append(encodeMeta(m), m.Value[first:]...)
	for part := 0; len(blob) > 0; part++ {
		n := min(len(blob), chunkSize)
		g.tx.Set(g.l.metaKey(id, part), blob[:n])
		blob = blob[n:]
	}
	return g.l.format.encode(m.Value[:first])
}

// lend removes an item from the queue and leaves its ("m") keys. The caller keeps its
// value.
func (g *ledger) lend(s *stored) {
	g.tx.Clear(s.pair.Key)
	g.tally(&s.item.ID, -1)
}

// giveBack returns a lent item to its old place, with its value as it was stored.
func (g *ledger) giveBack(id *ID, value []byte) {
	g.tx.Set(g.l.itemKey(id), value)
	g.tally(id, 1)
}

// hold writes a lent item to ("h").
func (g *ledger) hold(h *held) {
	key, value := g.l.heldKey(&h.id), h.encode()
	g.l.setUntil(g.tx, h.fallsDue(), key, value)
	if h.state == leased {
		g.facts.lease(key, value)
	}
	g.noteDue(h.fallsDue())
	g.tallyHeld(h, 1)
}

// release removes a held item from ("h").
func (g *ledger) release(h *held) {
	key := g.l.heldKey(&h.id)
	g.l.clearUntil(g.tx, h.fallsDue(), key)
	g.facts.release(key)
	g.tallyHeld(h, -1)
}

// putBack returns a lent item to its old place, with its history if it was ever leased.
func (g *ledger) putBack(h *held) {
	g.giveBack(&h.id, h.value)
	g.setExpiry(&h.id, h.lasting)
	if past := h.past(); past != nil {
		g.setHistory(&h.id, past)
	}
}

// setHistory writes the history of an item in ("i").
func (g *ledger) setHistory(id *ID, past []byte) {
	g.tx.Set(g.l.historyKey(id), past)
	if g.facts != nil {
		g.facts.noHistories = false
	}
}

// noteDue records that something is written that falls due.
func (g *ledger) noteDue(at time.Time) {
	g.ahead.Due = earliest(g.ahead.Due, at)
	g.facts.noteDue(at)
}

// claim lends an item that a token holds.
func (g *ledger) claim(h *heldItem) {
	if !h.ready {
		g.release(h.held)
		return
	}
	g.tx.Clear(g.l.itemKey(&h.id))
	g.tx.Clear(g.l.historyKey(&h.id))
	g.clearExpiry(&h.id, h.expires)
	g.tally(&h.id, -1)
}

// discard removes the rest of a lent item, of which only h need have been read, and frees its unique key.
func (g *ledger) discard(h *held) {
	g.countRemoved(h)
	if h.id.hasMeta() {
		g.tx.ClearRange(g.l.metaRange(&h.id))
	}
	g.freeUnique(&h.id, h.unique)
	g.wrote = true
}

// removeRest removes the rest of a lent item, which must have been read in full.
func (g *ledger) removeRest(s *stored) {
	if g.countsBytes() {
		g.addBytes(&s.item.ID, -s.item.Message.Size())
	}
	for _, part := range s.parts {
		g.tx.Clear(part.Key)
	}
	g.clearExpiry(&s.item.ID, s.item.Expires)
	g.freeUnique(&s.item.ID, s.item.Unique)
	g.wrote = true
}

// forget removes the history of a lent item, past as stored, if it has one.
func (g *ledger) forget(id *ID, past []byte) {
	if past != nil {
		g.tx.Clear(g.l.historyKey(id))
	}
}

// take removes an item, which must have been read in full.
func (g *ledger) take(s *stored) {
	g.lend(s)
	g.removeRest(s)
}

// restore returns a taken item to its old place, as it was stored, with its history, and
// lists the queue, which may have left the list of queues meanwhile. An item that has expired
// meanwhile stays away, and one whose unique key another item has by now returns without. The error is
// ErrCorrupt, and then nothing has changed, or one of the store.
func (g *ledger) restore(item *Item) error {
	if expired(item.Expires, g.now) {
		g.removed.Expired++
		return nil
	}
	if taken, err := g.takenUnique(item); err != nil {
		return err
	} else if taken {
		if item, err = item.withoutUnique(); err != nil {
			return err
		}
	}
	if g.l.list != nil {
		g.l.addToList(g.tx, g.now)
	}
	k := keptOf(item)
	if k != nil && !item.ID.ours() {
		g.giveBack(&item.ID, k.value)
	} else {
		g.add(&item.ID, &item.Message)
	}
	if k != nil && k.past != nil {
		g.setHistory(&item.ID, k.past)
	}
	return nil
}

// tally adds to the counters. Items of other programs are not counted.
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

// tallyHeld adds to the counter of a held item's state.
func (g *ledger) tallyHeld(h *held, delta int64) {
	g.wrote = true
	if h.id.ours() {
		g.held[h.state] += delta
	}
}

// flush writes the changes of the counters.
func (g *ledger) flush() error {
	if g.bytes.delta != 0 {
		addToCounter(g.tx, g.l.bytesKey(), g.bytes.delta)
		g.bytes.delta = 0
	}
	for state, delta := range g.held {
		if delta != 0 {
			addToCounter(g.tx, g.l.stateCounterKey(heldState(state)), delta)
		}
	}
	total := int64(0)
	for priority, delta := range g.deltas {
		total += delta
		if !g.l.fifo {
			addToCounter(g.tx, g.l.counterKey(priority), delta)
		}
	}
	addToCounter(g.tx, g.l.totalKey(), total)
	clear(g.deltas)
	g.held = [heldStates]int64{}
	return g.err
}

var zeroCounter = make([]byte, 8)

// addToCounter adds to a counter, and removes it if it falls to zero, so that a queue with
// many priorities leaves nothing behind. A transaction that adds and subtracts adds first.
func addToCounter(tx kv.Transaction, key []byte, delta int64) {
	if delta == 0 {
		return
	}
	tx.Add(key, delta)
	if delta < 0 {
		tx.CompareAndClear(key, zeroCounter)
	}
}
