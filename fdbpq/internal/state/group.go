package state

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
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
	if t := (*g.turns())[turnOf{hash, id.Priority}]; t != nil {
		t.note(g.L, kind, id, delta)
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

// MissReady removes the key of an item from the index of its group, because a program that does not
// know groups has taken the item.
func (g *Ledger) MissReady(id *codec.ID) {
	g.tally(codec.KindGroupReady, id, -1)
	g.wrote = true
}

// UnwrittenLeases is how many more items of a group are leased than its counter says.
func (g *Ledger) UnwrittenLeases(hash codec.GroupHash) int64 {
	return g.groups[groupCounter{hash: hash, leased: true}]
}

// ConflictLeasing makes the transaction conflict with others that lease items of a group. One that
// only makes others conflict does not look how many are leased.
func (g *Ledger) ConflictLeasing(hash codec.GroupHash, looks bool) {
	key := kv.SingleKey(g.L.GroupConflictKey(hash))
	if looks {
		g.Tx.AddReadConflict(key) // before the other: FoundationDB ignores it for what was written
	}
	g.Tx.AddWriteConflict(key)
}

// GroupLoad is how many items of a group there are.
type GroupLoad struct {
	Hash          codec.GroupHash
	Ready, Leased int64
}

// MostGroupRows is the most counters and rates of groups that are read at once.
const MostGroupRows = 20_000

// GroupLoads waits for up to limit counters of groups, in the order of their keys. cut says that there
// may be more, of the last of these groups, too. The error is ErrCorrupt or one of the store.
func GroupLoads(l *codec.Layout, read kv.Future[[]kv.KeyValue], limit int) (loads []GroupLoad, cut bool, err error) {
	pairs, err := read.Get()
	if err != nil {
		return nil, false, err
	}
	for _, pair := range pairs {
		hash, leased, err := l.ParseGroupCounter(pair.Key)
		if err != nil {
			return nil, false, err
		}
		n, err := ParseLength(pair.Value)
		if err != nil {
			return nil, false, err
		}

		if len(loads) == 0 || loads[len(loads)-1].Hash != hash {
			loads = append(loads, GroupLoad{Hash: hash})
		}
		if last := &loads[len(loads)-1]; leased {
			last.Leased += n
		} else {
			last.Ready += n
		}
	}
	return loads, len(pairs) == limit, nil
}

// BeginGroupLoads writes what has changed, and starts to read the counters of groups for GroupLoads,
// and how many items are ready, without conflict. pending is to be added to that.
func (g *Ledger) BeginGroupLoads() (loads kv.Future[[]kv.KeyValue], ready kv.Future[[]byte], pending int64) {
	g.flushGroups()
	for _, delta := range g.deltas {
		pending += delta
	}
	r := g.Tx.Snapshot()
	return r.GetRange(g.L.GroupCounters(), kv.RangeOptions{Limit: MostGroupRows}), r.Get(g.L.TotalKey()), pending
}
