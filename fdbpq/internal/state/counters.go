package state

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// ReadNextCount starts to read the count of the next item that is pushed at a priority: one more
// than the last item there has, ready or held. Held items return to their old places, so nothing
// new may come before them.
func ReadNextCount(l *codec.Layout, snapshot kv.Reader, priority int64) kv.Future[int64] {
	last := kv.RangeOptions{Limit: 1, Reverse: true}
	reads := [...]kv.Future[[]kv.KeyValue]{
		snapshot.GetRange(l.PriorityRange(codec.KindItem, priority), last),
		snapshot.GetRange(l.PriorityRange(codec.KindHeld, priority), last),
	}

	return later[int64](func() (int64, error) {
		// Ready and held items are read apart, and the larger count leads.
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

// Load is what MaxItems and MaxBytes limit: a number of items, and their bytes.
type Load struct{ Items, Bytes int64 }

// Plus returns the sum.
func (a Load) Plus(b Load) Load { return Load{a.Items + b.Items, a.Bytes + b.Bytes} }

// Minus returns the difference.
func (a Load) Minus(b Load) Load { return Load{a.Items - b.Items, a.Bytes - b.Bytes} }

// Exceeds returns ErrFull or ErrFullBytes if a queue with the settings may not have this load.
func (a Load) Exceeds(s *codec.Settings) error {
	switch {
	case s.MaxItems > 0 && a.Items > s.MaxItems:
		return codec.ErrFull
	case s.MaxBytes > 0 && a.Bytes > s.MaxBytes:
		return codec.ErrFullBytes
	}
	return nil
}

// BeginLoad starts to read the counters of items in all states and, if the queue counts them, of
// their bytes.
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

// Unwritten returns how much Flush will add to the load.
func (g *Ledger) Unwritten() (n Load) {
	n.Items, n.Bytes = g.ready, g.bytes.delta
	for _, delta := range g.held {
		n.Items += delta
	}
	return n
}

// Held returns how much Flush will add to the counter of a state of held items.
func (g *Ledger) Held(s codec.ItemState) int64 { return g.held[s] }

// Ready returns how much Flush will add to the counter of ready items.
func (g *Ledger) Ready() int64 { return g.ready }

// UnwrittenLeases returns how much Flush will add to the counter of a group's leases.
func (g *Ledger) UnwrittenLeases(hash codec.GroupHash) int64 {
	return g.groups[codec.GroupCounter{Hash: hash, Of: codec.GroupLeased}]
}

// ConflictLeasing makes the transaction conflict with others that lease items of a group. looks
// says that it depends on how many are leased; otherwise it only makes others conflict.
func (g *Ledger) ConflictLeasing(hash codec.GroupHash, looks bool) {
	counter := codec.GroupCounter{Hash: hash, Of: codec.GroupConflict}
	key := kv.SingleKey(g.L.GroupCounterKey(counter))
	if looks {
		g.Tx.AddReadConflict(key) // first: FoundationDB ignores it for keys that were written
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

// BeginGroupLoads writes the changes of the groups' counters, and starts to read the first of these
// for GroupLoads, and the counter of ready items, without conflict. Add pending to the latter:
// Flush has yet to write it.
func (g *Ledger) BeginGroupLoads(limit int) (
	page kv.Future[[]kv.KeyValue], ready kv.Future[[]byte], pending int64,
) {
	g.FlushGroups()
	r := g.Tx.Snapshot()
	page = r.GetRange(g.L.GroupCounters(), kv.RangeOptions{Limit: limit})
	return page, r.Get(g.L.TotalKey()), g.ready
}

// GroupLoads waits for a page of up to limit counters of groups, three at least, and returns the
// groups in the order of their keys. rest is the range of the other groups, empty after the last.
// The error is ErrCorrupt or one of the store.
func GroupLoads(l *codec.Layout, page kv.Future[[]kv.KeyValue], limit int) (
	loads []GroupLoad, rest kv.Range, err error,
) {
	pairs, err := page.Get()
	if err != nil {
		return nil, rest, err
	}

	for _, pair := range pairs {
		counter, err := l.ParseGroupCounter(pair.Key)
		if err != nil {
			return nil, rest, err
		}

		n, err := ParseLength(pair.Value)
		if err != nil {
			return nil, rest, err
		}

		// The counters of a group lie next to each other.
		if len(loads) == 0 || loads[len(loads)-1].Hash != counter.Hash {
			loads = append(loads, GroupLoad{Hash: counter.Hash})
		}

		if last := &loads[len(loads)-1]; counter.Of > codec.GroupReady {
			last.Leased += n
		} else {
			last.Ready += n
		}
	}

	// The last group of a full page may have another counter behind it.
	if len(pairs) == limit {
		last := len(loads) - 1
		first := codec.GroupCounter{Hash: loads[last].Hash, Of: codec.GroupReady}
		rest = kv.Range{Begin: l.GroupCounterKey(first), End: l.GroupCounters().End}
		loads = loads[:last]
	}
	return loads, rest, nil
}

// countReady counts an item that comes into ("i") or, with -1, leaves it. Items of other programs
// are not counted.
func (g *Ledger) countReady(id *codec.ID, delta int64) {
	g.wrote = true
	if !codec.Ours(id) {
		return
	}

	if g.readyAt == nil {
		g.readyAt = map[int64]int64{}
	}
	g.readyAt[id.Priority] += delta
	g.ready += delta
	g.countGroup(id, codec.GroupReady, delta)
}

// countHeld is countReady for ("h"). Leases also count for their group.
func (g *Ledger) countHeld(h *codec.Record, delta int64) {
	g.wrote = true
	if !codec.Ours(&h.ID) {
		return
	}

	g.held[h.State] += delta
	if h.State == codec.Leased {
		g.countGroup(&h.ID, codec.GroupLeased, delta)
	}
}

// countGroup counts an item for its group, if that is indexed.
func (g *Ledger) countGroup(id *codec.ID, of int64, delta int64) {
	hash := codec.GroupIn(id)
	if hash == codec.NotIndexed {
		return
	}
	if g.groups == nil {
		g.groups = map[codec.GroupCounter]int64{}
	}
	g.groups[codec.GroupCounter{Hash: hash, Of: of}] += delta
}

// Flush writes the changes of the counters.
func (g *Ledger) Flush() error {
	g.flushCounter(&g.bytes.delta, g.L.BytesKey)
	for _, s := range codec.HeldStates {
		g.flushCounter(&g.held[s], func() []byte { return g.L.StateCounterKey(s) })
	}
	g.FlushGroups()
	g.flushCounter(&g.finished, g.L.FinishedCounterKey)

	for priority, delta := range g.readyAt {
		if !g.L.Fifo {
			addToCounter(g.Tx, g.L.CounterKey(priority), delta)
		}
	}
	clear(g.readyAt)
	g.flushCounter(&g.ready, g.L.TotalKey)
	if g.ownJoins {
		_, err := g.Joins.Flush(g.Tx, g.Now, false)
		g.fail(err)
	}
	return g.err
}

// flushCounter writes the change of a counter, whose key is made only if there is one.
func (g *Ledger) flushCounter(delta *int64, key func() []byte) {
	if *delta != 0 {
		addToCounter(g.Tx, key(), *delta)
		*delta = 0
	}
}

// FlushGroups writes the changes of the counters of groups.
func (g *Ledger) FlushGroups() {
	for c, delta := range g.groups {
		addToCounter(g.Tx, g.L.GroupCounterKey(c), delta)
	}
	clear(g.groups)
}

// addToCounter adds to a counter, and removes one that falls to zero, so that a queue with many
// priorities leaves nothing behind. A transaction that adds and subtracts must add first.
func addToCounter(tx kv.Transaction, key []byte, delta int64) {
	if delta == 0 {
		return
	}
	tx.Add(key, delta)
	if delta < 0 {
		tx.CompareAndClear(key, zeroCounter)
	}
}

var zeroCounter = make([]byte, 8)
