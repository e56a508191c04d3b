package state

import (
	"encoding/binary"
	"fmt"
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
// Pop is Detach and DeleteRest in one, Requeue is Attach with the item's history, and
// DetachAnywhere gets an item in whichever of these states it is. An item that is buried is
// detached and deleted here, and added to its dead-letter queue (package due). A new state needs
// one method for each arrow to it and from it.
//
// Flush writes the counters, so it must be called after all else, and returns an error of the store
// that a method without one has met.
type Ledger struct {
	Tx  kv.Transaction // these three do not change
	L   *codec.Layout
	Now time.Time

	facts  *facts                  // what is known of the queue; nil is nothing
	config config                  // its settings
	deltas map[int64]int64         // changes of the counters, by priority
	ready  int64                   // all of these together
	held   [codec.Leased + 1]int64 // the same of held items, by state
	groups map[groupCounter]int64  // the same of groups
	own    map[turnOf]*turn        // without facts
	bytes  byteCount
	err    error // of the store, for Flush

	wrote   bool
	removed Removed
	ahead   Ahead // what falls due of what it has written
	strays  bool  // items of staged pops have come back
}

// NewLedger returns the ledger of a queue in a transaction. known is what need not be read; nil is
// nothing. All ledgers of a queue in one transaction have the same.
func NewLedger(tx kv.Transaction, l *codec.Layout, now time.Time, known *Known) Ledger {
	return Ledger{Tx: tx, L: l, Now: now, facts: known.queue(l)}
}

// Wrote reports whether anything has changed.
func (g *Ledger) Wrote() bool { return g.wrote }

// Removed is what has left the queue although no operation took or removed it.
func (g *Ledger) Removed() Removed { return g.removed }

// CountFired counts an item that a schedule has pushed, late by that much, and CountSkipped times
// without one.
func (g *Ledger) CountFired(late time.Duration) {
	g.removed.Fired++
	g.removed.Late += late
}

func (g *Ledger) CountSkipped(n int64) { g.removed.Skipped += n }

// Strays reports whether items of staged pops have come back. Their counts may be any.
func (g *Ledger) Strays() bool { return g.strays }

// Err is the error that Flush will return.
func (g *Ledger) Err() error { return g.err }

// fail keeps an error for Flush.
func (g *Ledger) fail(err error) {
	if g.err == nil {
		g.err = err
	}
}

// Held is how many more items are in the state of a held item than Flush has written.
func (g *Ledger) Held(s codec.ItemState) int64 { return g.held[s] }

// Ready is how many more items are ready than Flush has written.
func (g *Ledger) Ready() int64 { return g.ready }

// AppendAhead appends what falls due of what the ledger has written, if anything does.
func (g *Ledger) AppendAhead(list []QueueAhead) []QueueAhead {
	if g.ahead == (Ahead{}) || g.L.List == nil {
		return list
	}
	return append(list, QueueAhead{Queue: codec.QueueName{FIFO: g.L.Fifo, Name: g.L.Name()}, Ahead: g.ahead})
}

// byteCount is what a transaction knows of the bytes of a queue.
type byteCount struct {
	loaded bool
	on     bool                 // the queue counts them
	all    bool                 // all items count
	to     []byte               // the place up to which they do, if an earlier version has not counted all; nil if none does
	delta  int64                // change of the counter
	sizes  map[codec.ID]*Stored // of which the ("m") keys are read
}

// config is the settings of one queue as one transaction sees them.
type config struct {
	value    kv.Future[[]byte]     // being read; nil before, and if the settings were known
	settings *codec.StoredSettings // once read, or changed by the transaction
}

// SetExpiry writes the entry of an item in ("i"), if it expires.
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

// SetUntil writes a key that falls due at the given time.
func SetUntil(l *codec.Layout, tx kv.Transaction, at time.Time, key, value []byte) {
	tx.Set(key, value)
	tx.Set(l.DueKey(at, key), []byte{})
}

// ClearUntil removes a key that falls due, or fell due, at the given time.
func ClearUntil(l *codec.Layout, tx kv.Transaction, at time.Time, key []byte) {
	tx.Clear(key)
	tx.Clear(l.DueKey(at, key))
}

// noteDue records that something is written that falls due.
func (g *Ledger) noteDue(at time.Time) {
	g.ahead.Due = codec.Earliest(g.ahead.Due, at)
	g.facts.noteDue(at)
}

// ReadDue starts to read the first entries of what is due, without conflict: handling it conflicts
// with everyone who handles the same.
func (g *Ledger) ReadDue(limit int) kv.Future[[]kv.KeyValue] {
	if g.facts.quiet(g.Now) {
		return nothing
	}
	head := g.Tx.Snapshot().GetRange(g.L.DueRange(g.Now), kv.RangeOptions{Limit: limit})
	if g.facts == nil {
		return head
	}

	if entries, err := head.Get(); err == nil && len(entries) == 0 {
		g.facts.learnDue(g.Tx.Snapshot(), g.L)
	}
	return head
}

// Ahead is when there will be something to do about a queue that nobody asks for.
type Ahead struct {
	// Due is when the next item falls due: a lease or delay is over, or the item expires. Zero if
	// none will.
	Due time.Time
	// Over is when the window of the next message id is over; zero if there is none.
	Over time.Time
	// Source says that the queue has a source, or that this has changed.
	Source bool
}

// QueueAhead is that of a queue of a Keyspace.
type QueueAhead struct {
	Queue codec.QueueName
	Ahead
}

// Removed is how many items left their queues although no operation took or removed them, and how
// many came although none pushed them.
type Removed struct {
	Expired   int64 // because they had expired
	Discarded int64 // because of DiscardOld
	Dead      int64 // because they moved to a dead-letter queue

	Fired   int64         // items that schedules have pushed
	Skipped int64         // times of schedules without an item
	Late    time.Duration // how much later than their times the items were pushed, summed up
}

// Add adds other items.
func (r *Removed) Add(more Removed) {
	r.Expired += more.Expired
	r.Discarded += more.Discarded
	r.Dead += more.Dead
	r.Fired += more.Fired
	r.Skipped += more.Skipped
	r.Late += more.Late
}

// groupCounter names a counter of a group.
type groupCounter struct {
	hash     codec.GroupHash
	leased   bool
	priority int64 // 0 for leased items
}

func ReadCounter(value kv.Future[[]byte]) (int64, error) {
	encoded, err := value.Get()
	if err != nil {
		return 0, err
	}
	return ParseLength(encoded)
}

func ParseLength(value []byte) (int64, error) {
	if value == nil {
		return 0, nil
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("%w: item counter has %d bytes: want 8", codec.ErrCorrupt, len(value))
	}
	return int64(binary.LittleEndian.Uint64(value)), nil
}

// LookUp starts to read an item with its history, wherever it is.
func (g *Ledger) LookUp(id *codec.ID) Lookup {
	k := g.LookUpHeld(id)
	k.item, k.history = g.Tx.Get(g.L.ItemKey(id)), g.Tx.Get(g.L.HistoryKey(id))
	return k
}

// LookUpHeld starts to read an item where it is while it is held.
func (g *Ledger) LookUpHeld(id *codec.ID) Lookup {
	return Lookup{held: g.Tx.Get(g.L.HeldKey(id))}
}

// LookUpLeased is LookUpHeld for callers that need no value.
func (g *Ledger) LookUpLeased(id *codec.ID) Lookup {
	if g.facts != nil {
		if known := g.facts.leased[*id]; known != nil {
			return Lookup{known: known}
		}
	}
	return g.LookUpHeld(id)
}

// FirstHistory starts to read the first history of an item in the queue. If there is none, which is
// usual, pops need not read those of their items. It reads without conflict: see ReadHistory.
func (g *Ledger) FirstHistory() kv.Future[[]kv.KeyValue] {
	if g.facts != nil && g.facts.noHistories {
		return nothing
	}
	first := g.Tx.Snapshot().GetRange(g.L.KindRange(codec.KindHistory), kv.RangeOptions{Limit: 1})
	if g.facts != nil {
		pairs, err := first.Get()
		g.facts.noHistories = err == nil && len(pairs) == 0
	}
	return first
}
