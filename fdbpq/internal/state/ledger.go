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

// Held is how many more items are in the state of a held item than Flush has written.
func (g *Ledger) Held(s codec.ItemState) int64 { return g.held[s] }

// Ready is how many more items are ready than Flush has written.
func (g *Ledger) Ready() int64 { return g.ready }

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
