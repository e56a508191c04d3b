package state

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Add writes an item that is ready.
func (g *Ledger) Add(id *codec.ID, m *codec.Message) {
	g.Attach(id, g.AddRest(id, m))
	g.SetExpiry(id, codec.LastingOf(m))
}

// AddDelayed writes an item that is held until a time, or until its members have ended.
func (g *Ledger) AddDelayed(id *codec.ID, m *codec.Message, until time.Time) {
	if m.Join > 0 {
		g.openJoin(id)
	}
	g.Hold(codec.NewDelayed(id, m, until, g.AddRest(id, m)))
}

// AddRest writes what belongs to a new item besides its own key: the unique key, the alias if the
// item has moved, and the ("m") keys if its id says that it has some. It counts a member of a join,
// and returns the value for the item's own key.
//
// The random part of an id has no room for more than 24 random bits beside a group. So of two
// transactions that add different items with the same id at the same time, one conflicts.
func (g *Ledger) AddRest(id *codec.ID, m *codec.Message) []byte {
	g.keepUnique(id, m.Unique)
	if codec.Moved(id) {
		g.Tx.Set(g.L.AliasKey(m.First), codec.EncodeID(id))
	}
	if m.Joiner != nil {
		g.noteMember(m.Joiner, codec.MemberAdded)
	}
	if g.CountsBytes() {
		g.addBytes(id, m.Size())
	}

	if !codec.HasMeta(id) {
		return codec.EncodeValue(g.L.Format, m.Value)
	}

	// What does not fit into the item's own key follows the headers, in chunks.
	first := min(len(m.Value), codec.ChunkOf(g.L.Format))
	blob := append(codec.EncodeMeta(m), m.Value[first:]...)
	if codec.GroupIn(id) > codec.NoGroup {
		g.Tx.AddReadConflict(kv.SingleKey(g.L.MetaKey(id, 0))) // before it is written
	}
	for part := 0; len(blob) > 0; part++ {
		n := min(len(blob), codec.ChunkSize)
		g.Tx.Set(g.L.MetaKey(id, part), blob[:n])
		blob = blob[n:]
	}

	return codec.EncodeValue(g.L.Format, m.Value[:first])
}

// Detach takes a ready item, whose key the caller knows, out of ("i"). Its ("m") keys stay; the
// caller keeps its value.
func (g *Ledger) Detach(key []byte, id *codec.ID) {
	g.Tx.Clear(key)
	g.cache.detached(key)
	g.removeFromGroup(codec.KindGroupReady, id)
	g.countReady(id, -1)
}

// Attach writes a new or detached item to its place in ("i"). value is as it is stored.
func (g *Ledger) Attach(id *codec.ID, value []byte) {
	key := g.L.ItemKey(id)
	g.Tx.Set(key, value)
	g.cache.attached(key, value)
	g.addToGroup(codec.KindGroupReady, id)
	g.countReady(id, 1)
}

// Hold writes a detached item to ("h"), with its entry of the time index.
func (g *Ledger) Hold(h *codec.Record) {
	SetUntil(g.L, g.Tx, h.FallsDue(), g.L.HeldKey(&h.ID), h.Encode())
	if h.State == codec.Leased {
		g.cache.knowLeased(g.L, h)
	}
	g.NoteDue(h.FallsDue())
	g.addToGroup(codec.KindGroupHeld, &h.ID)
	g.countHeld(h, 1)
}

// Unhold takes a held item out of ("h").
func (g *Ledger) Unhold(h *codec.Record) {
	ClearUntil(g.L, g.Tx, h.FallsDue(), g.L.HeldKey(&h.ID))
	g.cache.forgetLeased(&h.ID)
	g.removeFromGroup(codec.KindGroupHeld, &h.ID)
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
	if g.cache != nil {
		g.cache.noHistories = false
	}
}

// ClearHistory removes the history of a detached item. past is the history as stored; nil means
// that there is none.
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

	g.Detach(g.L.ItemKey(&h.ID), &h.ID)
	g.Tx.Clear(g.L.HistoryKey(&h.ID))
	g.ClearExpiry(&h.ID, h.Expires)
}

// Delete removes the rest of a detached item, with its alias and its attempts, frees its unique
// key, and ends it as a member of its join. Only h need have been read; see BeginDelete.
func (g *Ledger) Delete(h *codec.Record, end codec.MemberEnd) {
	g.countRemoved(h) // reads the ("m") keys, so it comes first
	g.unlink(&h.ID, g.linksOf(h), end)
	g.forgetAttempts(h)
	switch rest := g.metaReads[h.ID]; {
	case rest != nil && rest.parts != nil && !rest.Cut:
		rest.clear(g.Tx)
	case h.Parts > 0:
		for part := range h.Parts { // not as a range: see ItemRead.clear
			g.Tx.Clear(g.L.MetaKey(&h.ID, part))
		}
	case codec.HasMeta(&h.ID):
		g.Tx.ClearRange(g.L.MetaRange(&h.ID))
	}
	delete(g.metaReads, h.ID)
	g.freeUnique(&h.ID, h.Unique)
	g.wrote = true
}

// DeleteExpired removes the rest of a detached item that has expired.
func (g *Ledger) DeleteExpired(h *codec.Record) {
	g.Delete(h, codec.MemberGone)
	g.SideEffects.Expired++
}

// Discard removes an item to make room for others.
func (g *Ledger) Discard(h *codec.Record) {
	g.DetachAnywhere(h)
	g.Delete(h, codec.MemberGone)
	g.SideEffects.Discarded++
}

// DeleteRest removes the rest of a detached item, which must have been read in full.
func (g *Ledger) DeleteRest(s *ItemRead) {
	if g.CountsBytes() {
		g.addBytes(&s.Item.ID, -s.Item.Message.Size())
	}
	s.clear(g.Tx)
	g.ClearExpiry(&s.Item.ID, s.Item.Expires)
	g.freeUnique(&s.Item.ID, s.Item.Unique)
	g.unlink(&s.Item.ID, &s.Item.Message, codec.MemberGone)
	g.wrote = true
}

// Pop removes a ready item, which must have been read in full.
func (g *Ledger) Pop(s *ItemRead) {
	g.Detach(s.Pair.Key, &s.Item.ID)
	g.DeleteRest(s)
}

// deleteAlias removes the alias of an item that leaves the queue, if it still names that item.
// first is its Message.First, nil if it has not moved.
func (g *Ledger) deleteAlias(id *codec.ID, first *codec.ID) {
	if first != nil {
		g.Tx.CompareAndClear(g.L.AliasKey(first), codec.EncodeID(id))
	}
}

// keepUnique writes the unique key of an item that is added.
func (g *Ledger) keepUnique(id *codec.ID, key string) {
	if key != "" {
		g.Tx.Set(g.L.UniqueKey(key), codec.EncodeID(id))
	}
}

// freeUnique removes the unique key of an item that leaves the queue, if it still names that item.
func (g *Ledger) freeUnique(id *codec.ID, key string) {
	if key != "" {
		g.Tx.CompareAndClear(g.L.UniqueKey(key), codec.EncodeID(id))
	}
}
