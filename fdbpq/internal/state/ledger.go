package state

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Ledger owns the state of one queue's items in one transaction. Nothing else writes
// their keys or the item counters. An item is
//
//	ready     at its key in ("i"), and counted
//	detached  not in ("i"), and not counted; its ("m") keys stay, and a staged pop, or
//	          this transaction, keeps its value
//	held      at its key in ("h"), and counted as leased or delayed; its ("m") keys stay
//
// and in all of these has its unique key, if it has one, or
//
//	gone      without any key
//
// and moves between these states like this:
//
//	      Add               Detach             DeleteRest
//	(new) ----> ready --------------------> detached ------> gone
//	             ^  ^        Attach             |             |
//	             |  '---------------------------'             |
//	             '--------------------------------------------'
//	                            Restore
//
//	            Hold                     Delete                AddDelayed
//	detached ---------> held    detached --------> gone    (new) ----------> held
//	    ^                 |
//	    '-----------------'
//	          Unhold
//
// Pop is Detach and DeleteRest in one, Requeue is Attach with the item's history, and DetachLeased gets
// an item that a token holds, wherever it is. An item that is buried is detached and deleted here,
// and added to its dead-letter queue (package due). A new state needs one method for each arrow to
// it and from it.
//
// Flush writes the counters, so it must be called after all else, and returns an error of the store that a
// method without one has met.
type Ledger struct {
	Tx     kv.Transaction
	L      *codec.Layout
	Now    time.Time
	Facts  *facts                  // what is known of the queue
	deltas map[int64]int64         // changes of the counters, by priority
	Held   [codec.HeldStates]int64 // the same of held items, by state
	Config config
	Bytes  byteCount
	Wrote  bool
	Err    error // of the store, for flush

	Removed Removed
	ahead   Ahead // what falls due of what it has written
	Strays  bool  // items of staged pops have come back
}

// Add writes an item that is ready.
func (g *Ledger) Add(id *codec.ID, m *codec.Message) {
	g.Attach(id, g.AddRest(id, m))
	g.SetExpiry(id, codec.LastingOf(m))
}

// AddDelayed writes an item that is held back.
func (g *Ledger) AddDelayed(id *codec.ID, m *codec.Message, until time.Time) {
	g.Hold(codec.NewDelayed(id, m, until, g.AddRest(id, m)))
}

// AddRest writes the unique key of a new item, if it has one, and its ("m") keys, if its id says that it
// has some. It returns the value for the key of the item itself.
func (g *Ledger) AddRest(id *codec.ID, m *codec.Message) []byte {
	g.keepUnique(id, m.Unique)
	g.countAdded(id, m)
	if !codec.HasMeta(id) {
		return codec.EncodeValue(g.L.Format, m.Value)
	}
	first := min(len(m.Value), codec.ChunkOf(g.L.Format))
	blob := append(codec.EncodeMeta(m), m.Value[first:]...)
	for part := 0; len(blob) > 0; part++ {
		n := min(len(blob), codec.ChunkSize)
		g.Tx.Set(g.L.MetaKey(id, part), blob[:n])
		blob = blob[n:]
	}
	return codec.EncodeValue(g.L.Format, m.Value[:first])
}

// Detach removes an item from the queue and leaves its ("m") keys. The caller keeps its
// value.
func (g *Ledger) Detach(s *Stored) {
	g.Tx.Clear(s.Pair.Key)
	g.countReady(&s.Item.ID, -1)
}

// Attach returns a detached item to its old place, with its value as it was stored.
func (g *Ledger) Attach(id *codec.ID, value []byte) {
	g.Tx.Set(g.L.ItemKey(id), value)
	g.countReady(id, 1)
}

// Hold writes a detached item to ("h").
func (g *Ledger) Hold(h *codec.Held) {
	key, value := g.L.HeldKey(&h.ID), h.Encode()
	SetUntil(g.L, g.Tx, h.FallsDue(), key, value)
	if h.State == codec.HeldLeased {
		g.Facts.knowLeased(key, value)
	}
	g.noteDue(h.FallsDue())
	g.countHeld(h, 1)
}

// Unhold removes a held item from ("h").
func (g *Ledger) Unhold(h *codec.Held) {
	key := g.L.HeldKey(&h.ID)
	ClearUntil(g.L, g.Tx, h.FallsDue(), key)
	g.Facts.forgetLeased(key)
	g.countHeld(h, -1)
}

// Requeue returns a detached item to its old place, with its history if it was ever leased.
func (g *Ledger) Requeue(h *codec.Held) {
	g.Attach(&h.ID, h.Value)
	g.SetExpiry(&h.ID, h.Lasting)
	if past := h.Past(); past != nil {
		g.SetHistory(&h.ID, past)
	}
}

// SetHistory writes the history of an item in ("i").
func (g *Ledger) SetHistory(id *codec.ID, past []byte) {
	g.Tx.Set(g.L.HistoryKey(id), past)
	if g.Facts != nil {
		g.Facts.noHistories = false
	}
}

// noteDue records that something is written that falls due.
func (g *Ledger) noteDue(at time.Time) {
	g.ahead.Due = codec.Earliest(g.ahead.Due, at)
	g.Facts.noteDue(at)
}

// DetachLeased detaches an item that a token holds.
func (g *Ledger) DetachLeased(h *HeldItem) {
	if !h.Ready {
		g.Unhold(h.Held)
		return
	}
	g.Tx.Clear(g.L.ItemKey(&h.ID))
	g.Tx.Clear(g.L.HistoryKey(&h.ID))
	g.ClearExpiry(&h.ID, h.Expires)
	g.countReady(&h.ID, -1)
}

// Delete removes the rest of a detached item, of which only h need have been read, and frees its unique key.
func (g *Ledger) Delete(h *codec.Held) {
	g.countRemoved(h)
	if codec.HasMeta(&h.ID) {
		g.Tx.ClearRange(g.L.MetaRange(&h.ID))
	}
	g.freeUnique(&h.ID, h.Unique)
	g.Wrote = true
}

// DeleteRest removes the rest of a detached item, which must have been read in full.
func (g *Ledger) DeleteRest(s *Stored) {
	if g.CountsBytes() {
		g.addBytes(&s.Item.ID, -s.Item.Message.Size())
	}
	for _, part := range s.parts {
		g.Tx.Clear(part.Key)
	}
	g.ClearExpiry(&s.Item.ID, s.Item.Expires)
	g.freeUnique(&s.Item.ID, s.Item.Unique)
	g.Wrote = true
}

// ClearHistory removes the history of a detached item, past as stored, if it has one.
func (g *Ledger) ClearHistory(id *codec.ID, past []byte) {
	if past != nil {
		g.Tx.Clear(g.L.HistoryKey(id))
	}
}

// Pop removes an item, which must have been read in full.
func (g *Ledger) Pop(s *Stored) {
	g.Detach(s)
	g.DeleteRest(s)
}

// Restore returns a popped item to its old place, as it was stored, with its history, and
// lists the queue, which may have left the list of queues meanwhile. An item that has expired
// meanwhile stays away, and one whose unique key another item has by now returns without. The error is
// ErrCorrupt, and then nothing has changed, or one of the store.
func (g *Ledger) Restore(item *codec.Item) error {
	if codec.Expired(item.Expires, g.Now) {
		g.Removed.Expired++
		return nil
	}
	if taken, err := g.takenUnique(item); err != nil {
		return err
	} else if taken {
		if item, err = codec.WithoutUnique(item); err != nil {
			return err
		}
	}
	if g.L.List != nil {
		AddToList(g.L, g.Tx, g.Now)
	}
	k := codec.KeptOf(item)
	if k != nil && !codec.Ours(&item.ID) {
		g.Attach(&item.ID, k.Value)
	} else {
		g.Add(&item.ID, &item.Message)
	}
	if k != nil && k.Past != nil {
		g.SetHistory(&item.ID, k.Past)
	}
	return nil
}

// countReady adds to the counters. Items of other programs are not counted.
func (g *Ledger) countReady(id *codec.ID, delta int64) {
	g.Wrote = true
	if !codec.Ours(id) {
		return
	}
	if g.deltas == nil {
		g.deltas = make(map[int64]int64)
	}
	g.deltas[id.Priority] += delta
}

// countHeld adds to the counter of a held item's state.
func (g *Ledger) countHeld(h *codec.Held, delta int64) {
	g.Wrote = true
	if codec.Ours(&h.ID) {
		g.Held[h.State] += delta
	}
}

// Flush writes the changes of the counters.
func (g *Ledger) Flush() error {
	if g.Bytes.Delta != 0 {
		AddToCounter(g.Tx, g.L.BytesKey(), g.Bytes.Delta)
		g.Bytes.Delta = 0
	}
	for state, delta := range g.Held {
		if delta != 0 {
			AddToCounter(g.Tx, g.L.StateCounterKey(codec.HeldState(state)), delta)
		}
	}
	total := int64(0)
	for priority, delta := range g.deltas {
		total += delta
		if !g.L.Fifo {
			AddToCounter(g.Tx, g.L.CounterKey(priority), delta)
		}
	}
	AddToCounter(g.Tx, g.L.TotalKey(), total)
	clear(g.deltas)
	g.Held = [codec.HeldStates]int64{}
	return g.Err
}

var zeroCounter = make([]byte, 8)

// AddToCounter adds to a counter, and removes it if it falls to zero, so that a queue with
// many priorities leaves nothing behind. A transaction that adds and subtracts adds first.
func AddToCounter(tx kv.Transaction, key []byte, delta int64) {
	if delta == 0 {
		return
	}
	tx.Add(key, delta)
	if delta < 0 {
		tx.CompareAndClear(key, zeroCounter)
	}
}
