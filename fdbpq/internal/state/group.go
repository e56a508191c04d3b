package state

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
)

// groupCounter names a counter of a group.
type groupCounter struct {
	hash     codec.GroupHash
	leased   bool
	priority int64 // 0 for leased items
}

// tally writes the key of an item in the index of its group, or removes it, and counts it. It and
// tallyHeld alone do that, for all moves of items.
func (g *Ledger) tally(kind string, id *codec.ID, delta int64) {
	hash := codec.GroupIn(id)
	if hash == codec.NotIndexed {
		return
	}

	if key := g.L.GroupItemKey(kind, hash, id); delta > 0 {
		g.Tx.Set(key, []byte{})
	} else {
		g.Tx.Clear(key)
	}
	if kind == codec.KindGroupReady {
		g.countGroup(groupCounter{hash: hash, priority: id.Priority}, delta)
	}
}

// tallyHeld is tally for an item that is held.
func (g *Ledger) tallyHeld(h *codec.Record, delta int64) {
	g.tally(codec.KindGroupHeld, &h.ID, delta)
	if hash := codec.GroupIn(&h.ID); hash != codec.NotIndexed && h.State == codec.Leased {
		g.countGroup(groupCounter{hash: hash, leased: true}, delta)
	}
}

func (g *Ledger) countGroup(c groupCounter, delta int64) {
	if g.groups == nil {
		g.groups = map[groupCounter]int64{}
	}
	g.groups[c] += delta
}

// flushGroups writes the changes of the counters of groups.
func (g *Ledger) flushGroups() {
	for c, delta := range g.groups {
		key := g.L.GroupReadyKey(c.hash, c.priority)
		if c.leased {
			key = g.L.GroupLeasedKey(c.hash)
		}
		addToCounter(g.Tx, key, delta)
	}
	clear(g.groups)
}
