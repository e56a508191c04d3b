package due

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Outgoing is the items that a transaction adds to queues other than by a push: dead letters,
// redriven items, items of schedules, and items that change their priority. If an item was in a
// queue before, it has Message.First: see codec/alias.go.
type Outgoing struct {
	Tx      kv.Transaction
	Now     time.Time
	Cache   *state.QueueCache   // saves reads; nil knows nothing
	Secrets *state.GroupSecrets // of the transaction; nil if each queue has its own
	Joins   *state.Joins        // the same

	Queues map[string]*Destination // that To has returned, by prefix
}

// Destination is a queue that gets items of an Outgoing.
type Destination struct {
	Ledger state.Ledger
	Filled bool // items came here, or may now

	counts map[int64]kv.Future[int64] // the next counts being read, by priority
	next   map[int64]int64            // the next counts that are known
}

// To returns a queue to add items to, and starts to read its next count at a priority.
func (o *Outgoing) To(l *codec.Layout, priority int64) *Destination {
	to := o.destination(l)
	to.Ledger.BeginSettings()
	if _, begun := to.counts[priority]; !begun {
		to.counts[priority] = state.ReadNextCount(l, o.Tx.Snapshot(), priority)
	}
	return to
}

// Look notes that something of a queue has to be looked at, at a time. Pops that wait there have to
// learn of that.
func (o *Outgoing) Look(l *codec.Layout, at time.Time) {
	to := o.destination(l)
	to.Ledger.NoteDue(at)
	to.Filled = true
}

// destination returns a queue, without any read.
func (o *Outgoing) destination(l *codec.Layout) *Destination {
	to := o.Queues[l.Prefix]
	if to == nil {
		to = &Destination{
			Ledger: state.NewLedger(o.Tx, l, o.Now, o.Cache),
			counts: map[int64]kv.Future[int64]{},
			next:   map[int64]int64{},
		}

		if o.Queues == nil {
			o.Queues = map[string]*Destination{}
		}

		o.Queues[l.Prefix] = to
		to.Ledger.Secrets, to.Ledger.Joins = o.Secrets, o.Joins
	}
	return to
}

// LoadNext waits for the next count at a priority. The error is ErrCorrupt or one of the store.
func (to *Destination) LoadNext(priority int64) error {
	if _, known := to.next[priority]; known {
		return nil
	}
	next, err := to.counts[priority].Get()
	if err == nil {
		to.next[priority] = next
	}
	return err
}

// NewID returns the id of a message that is added at the end of a priority, with at as the time of
// its push. Call LoadNext before.
func (to *Destination) NewID(priority int64, m *codec.Message, at time.Time) codec.ID {
	count, flags := to.next[priority], to.Ledger.L.Flags(m)
	id := codec.NewID(priority, count, at, codec.UniqueBytes(1), flags)
	to.next[priority] = codec.Following(count)

	// The settings say whether items without a group are indexed.
	if settings, err := to.Ledger.ReadableSettings(); err == nil { // else Add reports the error
		codec.SetGroup(&id, to.Ledger.GroupOf(m, settings), 1)
	}
	return id
}

// Push adds a message at the end of a priority, with at as the time of its push, and lists the
// queue. The item is delayed until a time; zero is no delay. Call LoadNext before.
func (to *Destination) Push(priority int64, m *codec.Message, at, until time.Time) codec.ID {
	g, id := &to.Ledger, to.NewID(priority, m, at)
	g.AddToList()
	if until.After(g.Now) {
		g.AddDelayed(&id, m, codec.Micros(until))
	} else {
		g.Add(&id, m)
	}
	to.Filled = true
	return id
}

// AddNextCounts raises counts to those that follow the added items. A Batcher then knows them, so
// that pushes to the queue need not read them.
func (to *Destination) AddNextCounts(after state.CountsByQueue) {
	prefix := to.Ledger.L.Prefix
	if after[prefix] == nil {
		after[prefix] = map[int64]int64{}
	}
	for priority, next := range to.next {
		after[prefix][priority] = max(after[prefix][priority], next)
	}
}

// Flush writes the counters of all queues that To has returned.
func (o *Outgoing) Flush() error {
	for _, to := range o.Queues {
		if err := to.Ledger.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// Ready returns how much Flush will add to the counter of ready items of a queue.
func (o *Outgoing) Ready(l *codec.Layout) int64 {
	if to := o.Queues[l.Prefix]; to != nil {
		return to.Ledger.Ready()
	}
	return 0
}

// Fills reports whether this transaction has added items to the queue.
func (o *Outgoing) Fills(l *codec.Layout) bool {
	to := o.Queues[l.Prefix]
	return to != nil && to.Filled
}
