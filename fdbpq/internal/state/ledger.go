package state

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Ledger owns the state of one queue's items in one transaction. Nothing else writes their keys or
// counters. An item is in one of these states:
//
//	ready     under its key in ("i"), and counted
//	held      under its key in ("h"), and counted as leased or delayed
//	detached  under neither key, and not counted; this transaction or a staged pop keeps its value
//	gone      without any key
//
// In the first three it keeps its ("m") keys, its unique key and its alias, if it has them. It
// moves between the states like this:
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
// Pop is Detach and DeleteRest. Requeue is Attach with the item's history. DetachAnywhere detaches
// an item that is ready or held. An item that is buried is detached and deleted here, and added to
// its dead-letter queue (package due). A new state needs one method for each arrow to it and from
// it.
//
// Call Flush last. It writes the counters, and returns the first error of the store that a method
// without an error result has met.
type Ledger struct {
	Tx  kv.Transaction // Tx, L and Now do not change
	L   *codec.Layout
	Now time.Time

	cache     *cachedQueue     // what is known of the queue without a read; nil is nothing
	own       map[turnOf]*turn // the turns of this transaction if cache is nil
	bytes     byteCount
	metaReads map[codec.ID]*ItemRead // of items to be deleted: see BeginDelete

	settingsRead kv.Future[[]byte]     // nil before BeginSettings, and if they were known
	settings     *codec.StoredSettings // once read, or set by the transaction

	// What Flush adds to the counters.
	readyAt map[int64]int64         // ready items, by priority
	ready   int64                   // ready items at all priorities
	held    [codec.Leased + 1]int64 // held items, by state
	groups  map[codec.GroupCounter]int64

	finished int64 // finished jobs that are kept

	orderRead   kv.Future[[]kv.KeyValue] // the last entry of the order; nil if not being read
	ownOrderEnd time.Time                // see orderEnd

	err   error // of the store, for Flush
	wrote bool

	Secrets *GroupSecrets   // of the transaction; nil if only this ledger needs them
	Cached  *CachedSettings // of the transaction; nil if it must read the settings

	// SideEffects is what has left the queue, or come into it, without an operation.
	SideEffects SideEffects
	// Upcoming is when what the ledger has written falls due, and whether the source has changed.
	Upcoming Upcoming

	Ended []codec.ID      // jobs that are done and kept, or buried
	Ran   []time.Duration // how long the former ran; negative if not known
}

// NewLedger returns the ledger of a queue in a transaction. cache saves reads; nil knows nothing.
// All ledgers of a queue in one transaction must have the same.
func NewLedger(tx kv.Transaction, l *codec.Layout, now time.Time, cache *QueueCache) Ledger {
	return Ledger{Tx: tx, L: l, Now: now, cache: cache.queue(l)}
}

// Add writes an item that is ready.
func (g *Ledger) Add(id *codec.ID, m *codec.Message) {
	g.Attach(id, g.AddRest(id, m))
	g.SetExpiry(id, codec.LastingOf(m))
}

// AddDelayed writes an item that is held until a time.
func (g *Ledger) AddDelayed(id *codec.ID, m *codec.Message, until time.Time) {
	g.Hold(codec.NewDelayed(id, m, until, g.AddRest(id, m)))
}

// AddRest writes what belongs to a new item besides its own key: the unique key, the alias if the
// item has moved, and the ("m") keys if its id says that it has some. It returns the value for the
// item's own key.
//
// The random part of an id has no room for more than 24 random bits beside a group. So of two
// transactions that add different items with the same id at the same time, one conflicts.
func (g *Ledger) AddRest(id *codec.ID, m *codec.Message) []byte {
	g.keepUnique(id, m.Unique)
	if codec.Moved(id) {
		g.Tx.Set(g.L.AliasKey(m.First), codec.EncodeID(id))
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

// Detach takes a ready item out of ("i"). Its ("m") keys stay; the caller keeps its value.
func (g *Ledger) Detach(s *ItemRead) {
	g.Tx.Clear(s.Pair.Key)
	g.cache.detached(s.Pair.Key)
	g.removeFromGroup(codec.KindGroupReady, &s.Item.ID)
	g.countReady(&s.Item.ID, -1)
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
	g.noteDue(h.FallsDue())
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

	key := g.L.ItemKey(&h.ID)
	g.Tx.Clear(key)
	g.cache.detached(key)
	g.Tx.Clear(g.L.HistoryKey(&h.ID))
	g.ClearExpiry(&h.ID, h.Expires)
	g.removeFromGroup(codec.KindGroupReady, &h.ID)
	g.countReady(&h.ID, -1)
}

// Delete removes the rest of a detached item, with its alias, and frees its unique key. Only h need
// have been read; see BeginDelete.
func (g *Ledger) Delete(h *codec.Record) {
	g.countRemoved(h) // reads the ("m") keys, so it comes first
	g.deleteAlias(&h.ID, g.firstOf(h))
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
	g.Delete(h)
	g.SideEffects.Expired++
}

// Discard removes an item to make room for others.
func (g *Ledger) Discard(h *codec.Record) {
	g.DetachAnywhere(h)
	g.Delete(h)
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
	g.deleteAlias(&s.Item.ID, s.Item.First)
	g.wrote = true
}

// Pop removes a ready item, which must have been read in full.
func (g *Ledger) Pop(s *ItemRead) {
	g.Detach(s)
	g.DeleteRest(s)
}

// deleteAlias removes the alias of an item that leaves the queue, if it still names that item.
// first is its Message.First, nil if it has not moved.
func (g *Ledger) deleteAlias(id *codec.ID, first *codec.ID) {
	if first != nil {
		g.Tx.CompareAndClear(g.L.AliasKey(first), codec.EncodeID(id))
	}
}

// SetExpiry writes the entry of the time index for an item in ("i"), if it expires.
func (g *Ledger) SetExpiry(id *codec.ID, l codec.Lasting) {
	if !l.Expires.IsZero() {
		g.Tx.Set(g.L.DueKey(l.Expires, g.L.ExpiryKey(id)), []byte(l.Unique))
		g.noteDue(l.Expires)
	}
}

// ClearExpiry removes what SetExpiry wrote.
func (g *Ledger) ClearExpiry(id *codec.ID, at time.Time) {
	if !at.IsZero() {
		g.Tx.Clear(g.L.DueKey(at, g.L.ExpiryKey(id)))
	}
}

// SetUntil writes a key that falls due at a time, with its entry of the time index.
func SetUntil(l *codec.Layout, tx kv.Transaction, at time.Time, key, value []byte) {
	tx.Set(key, value)
	tx.Set(l.DueKey(at, key), []byte{})
}

// ClearUntil removes a key that falls due, or fell due, at a time, with its entry.
func ClearUntil(l *codec.Layout, tx kv.Transaction, at time.Time, key []byte) {
	tx.Clear(key)
	tx.Clear(l.DueKey(at, key))
}

// noteDue records that the transaction has written something that falls due.
func (g *Ledger) noteDue(at time.Time) {
	at = codec.Micros(at) // as the time index has it, without a monotonic clock
	g.Upcoming.Due = codec.Earliest(g.Upcoming.Due, at)
	g.cache.noteDue(at)
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

// addToGroup writes the key of an item that comes into ("i") or ("h") to the index of its group.
func (g *Ledger) addToGroup(kind string, id *codec.ID) {
	if hash := codec.GroupIn(id); hash != codec.NotIndexed {
		g.Tx.Set(g.L.GroupItemKey(kind, hash, id), []byte{})
		(*g.turns())[turnOf{hash, id.Priority}].noteAdded(g.L, id)
	}
}

// removeFromGroup removes what addToGroup wrote.
func (g *Ledger) removeFromGroup(kind string, id *codec.ID) {
	if hash := codec.GroupIn(id); hash != codec.NotIndexed {
		g.Tx.Clear(g.L.GroupItemKey(kind, hash, id))
		(*g.turns())[turnOf{hash, id.Priority}].noteRemoved(g.L, id)
	}
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

// fail keeps the first error for Flush.
func (g *Ledger) fail(err error) {
	if g.err == nil {
		g.err = err
	}
}
