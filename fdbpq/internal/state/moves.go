package state

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
)

// Add writes an item that is ready.
func (g *Ledger) Add(id *codec.ID, m *codec.Message) {
	g.Attach(id, g.AddRest(id, m))
	g.SetExpiry(id, codec.LastingOf(m))
}

// AddDelayed writes an item that is held back.
func (g *Ledger) AddDelayed(id *codec.ID, m *codec.Message, until time.Time) {
	g.Hold(codec.NewDelayed(id, m, until, g.AddRest(id, m)))
}

// AddRest writes the unique key of a new item, if it has one, and its ("m") keys, if its id says
// that it has some. It returns the value for the key of the item itself.
func (g *Ledger) AddRest(id *codec.ID, m *codec.Message) []byte {
	g.keepUnique(id, m.Unique)
	g.countAdded(id, m)
	if !codec.HasMeta(id) {
		return codec.EncodeValue(g.L.Format, m.Value)
	}

	// What does not fit into the key of the item goes behind the headers, in chunks.
	first := min(len(m.Value), codec.ChunkOf(g.L.Format))
	blob := append(codec.EncodeMeta(m), m.Value[first:]...)

	for part := 0; len(blob) > 0; part++ {
		n := min(len(blob), codec.ChunkSize)
		g.Tx.Set(g.L.MetaKey(id, part), blob[:n])
		blob = blob[n:]
	}

	return codec.EncodeValue(g.L.Format, m.Value[:first])
}

// Detach removes an item from the queue and leaves its ("m") keys. The caller keeps its value.
func (g *Ledger) Detach(s *Stored) {
	g.Tx.Clear(s.Pair.Key)
	g.countReady(&s.Item.ID, -1)
}

// Attach writes an item, with its value as it is stored, at its place in ("i"): a new one, or a
// detached one.
func (g *Ledger) Attach(id *codec.ID, value []byte) {
	g.Tx.Set(g.L.ItemKey(id), value)
	g.countReady(id, 1)
}

// Hold writes a detached item to ("h").
func (g *Ledger) Hold(h *codec.Record) {
	key, value := g.L.HeldKey(&h.ID), h.Encode()
	SetUntil(g.L, g.Tx, h.FallsDue(), key, value)
	if h.State == codec.Leased {
		g.facts.knowLeased(g.L, h)
	}
	g.noteDue(h.FallsDue())
	g.countHeld(h, 1)
}

// Unhold removes a held item from ("h").
func (g *Ledger) Unhold(h *codec.Record) {
	key := g.L.HeldKey(&h.ID)
	ClearUntil(g.L, g.Tx, h.FallsDue(), key)
	g.facts.forgetLeased(&h.ID)
	g.countHeld(h, -1)
}

// Requeue returns a detached item to its old place, with its history if it was ever leased.
func (g *Ledger) Requeue(h *codec.Record) {
	g.Attach(&h.ID, h.Value)
	g.SetExpiry(&h.ID, h.Lasting)
	if past := h.Past(); past != nil {
		g.SetHistory(&h.ID, past)
	}
}

// SetHistory writes the history of an item in ("i").
func (g *Ledger) SetHistory(id *codec.ID, past []byte) {
	g.Tx.Set(g.L.HistoryKey(id), past)
	if g.facts != nil {
		g.facts.noHistories = false
	}
}

// ClearHistory removes the history of a detached item, past as stored, if it has one.
func (g *Ledger) ClearHistory(id *codec.ID, past []byte) {
	if past != nil {
		g.Tx.Clear(g.L.HistoryKey(id))
	}
}

// DetachAnywhere detaches an item that is ready or held.
func (g *Ledger) DetachAnywhere(h *codec.Record) {
	if h.State != codec.Ready {
		g.Unhold(h)
		return
	}

	g.Tx.Clear(g.L.ItemKey(&h.ID))
	g.Tx.Clear(g.L.HistoryKey(&h.ID))
	g.ClearExpiry(&h.ID, h.Expires)
	g.countReady(&h.ID, -1)
}

// Delete removes the rest of a detached item, of which only h need have been read, and frees its
// unique key.
func (g *Ledger) Delete(h *codec.Record) {
	g.countRemoved(h)
	if codec.HasMeta(&h.ID) {
		g.Tx.ClearRange(g.L.MetaRange(&h.ID))
	}
	g.freeUnique(&h.ID, h.Unique)
	g.wrote = true
}

// DeleteExpired removes the rest of a detached item that has expired.
func (g *Ledger) DeleteExpired(h *codec.Record) {
	g.Delete(h)
	g.removed.Expired++
}

// Discard removes an item to make room for others.
func (g *Ledger) Discard(h *codec.Record) {
	g.DetachAnywhere(h)
	g.Delete(h)
	g.removed.Discarded++
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
	g.wrote = true
}

// Pop removes an item, which must have been read in full.
func (g *Ledger) Pop(s *Stored) {
	g.Detach(s)
	g.DeleteRest(s)
}

// keepUnique writes the unique key of an item that is added.
func (g *Ledger) keepUnique(id *codec.ID, key string) {
	if key != "" {
		g.Tx.Set(g.L.UniqueKey(key), codec.EncodeID(id))
	}
}

// freeUnique removes the unique key of an item that leaves the queue, if it is still that item's.
func (g *Ledger) freeUnique(id *codec.ID, key string) {
	if key != "" {
		g.Tx.CompareAndClear(g.L.UniqueKey(key), codec.EncodeID(id))
	}
}
