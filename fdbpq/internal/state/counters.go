package state

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

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

// ReadNextCount starts to read the count of the next item that is pushed at a priority: the last
// item there that is ready, and the last that is held. A held item returns to its old place, so
// nothing new may be pushed before it.
func ReadNextCount(l *codec.Layout, snapshot kv.Reader, priority int64) kv.Future[int64] {
	last := kv.RangeOptions{Limit: 1, Reverse: true}
	reads := [...]kv.Future[[]kv.KeyValue]{
		snapshot.GetRange(l.PriorityRange(priority), last), snapshot.GetRange(l.HeldRange(priority), last),
	}
	return later[int64](func() (int64, error) {
		count, empty := int64(0), true
		if l.Fifo { // the recipe of FIFO queues counts from 1
			count = 1
		}
		for _, read := range reads {
			pairs, err := read.Get()
			if err != nil {
				return 0, err
			}
			if len(pairs) == 0 {
				continue
			}

			id, err := l.ParseItem(pairs[0].Key)
			if err != nil {
				return 0, err
			}
			if next := codec.Following(id.Count); empty || next > count {
				count, empty = next, false
			}
		}
		return count, nil
	})
}

// Load is what limits limit: a number of items, and their bytes.
type Load struct{ Items, Bytes int64 }

func (a Load) Plus(b Load) Load { return Load{a.Items + b.Items, a.Bytes + b.Bytes} }

func (a Load) Minus(b Load) Load { return Load{a.Items - b.Items, a.Bytes - b.Bytes} }

// Exceeds returns an error if the limits do not allow this many. They say how many there are.
func (a Load) Exceeds(s *codec.Settings) error {
	switch {
	case s.MaxItems > 0 && a.Items > s.MaxItems:
		return codec.ErrFull
	case s.MaxBytes > 0 && a.Bytes > s.MaxBytes:
		return codec.ErrFullBytes
	}
	return nil
}

// BeginLoad starts to read the counters of items in all states, and of their bytes.
func (g *Ledger) BeginLoad() (counters []kv.Future[[]byte]) {
	counters = append(counters, g.Tx.Get(g.L.TotalKey()))
	for _, s := range codec.HeldStates {
		counters = append(counters, g.Tx.Get(g.L.StateCounterKey(s)))
	}
	if g.CountsBytes() {
		counters = append(counters, g.Tx.Get(g.L.BytesKey()))
	}
	return counters
}

// Unwritten is the changes of the counters that Flush will write.
func (g *Ledger) Unwritten() (n Load) {
	n.Items = g.ready
	for _, delta := range g.held {
		n.Items += delta
	}
	n.Bytes = g.bytes.delta
	return n
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

// countReady adds to the counters. Items of other programs are not counted.
func (g *Ledger) countReady(id *codec.ID, delta int64) {
	g.wrote = true
	if !codec.Ours(id) {
		return
	}
	if g.deltas == nil {
		g.deltas = make(map[int64]int64)
	}
	g.deltas[id.Priority] += delta
	g.ready += delta
	g.tally(codec.KindGroupReady, id, delta)
}

// countHeld adds to the counter of a held item's state.
func (g *Ledger) countHeld(h *codec.Record, delta int64) {
	g.wrote = true
	if codec.Ours(&h.ID) {
		g.held[h.State] += delta
		g.tallyHeld(h, delta)
	}
}

// Flush writes the changes of the counters.
func (g *Ledger) Flush() error {
	addToCounter(g.Tx, g.L.BytesKey(), g.bytes.delta)
	g.bytes.delta = 0
	for _, s := range codec.HeldStates {
		addToCounter(g.Tx, g.L.StateCounterKey(s), g.held[s])
		g.held[s] = 0
	}

	g.flushGroups()
	for priority, delta := range g.deltas {
		if !g.L.Fifo {
			addToCounter(g.Tx, g.L.CounterKey(priority), delta)
		}
	}
	addToCounter(g.Tx, g.L.TotalKey(), g.ready)
	clear(g.deltas)
	g.ready = 0
	return g.err
}
