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
// In the first three it keeps its ("m") keys, its unique key and its alias, if it has them, and is
// a member of its join. It moves between the states like this:
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

	ownJoins bool // nobody else flushes Joins

	err   error // of the store, for Flush
	wrote bool

	Secrets *GroupSecrets   // of the transaction; nil if only this ledger needs them
	Joins   *Joins          // of the transaction; nil if Flush writes them
	Cached  *CachedSettings // of the transaction; nil if it must read the settings

	// ForgetRanges removes the attempts of an item as a range. That takes less of a transaction,
	// and more of the embedded store.
	ForgetRanges bool

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

// SetExpiry writes the entry of the time index for an item in ("i"), if it expires.
func (g *Ledger) SetExpiry(id *codec.ID, l codec.Lasting) {
	if !l.Expires.IsZero() {
		g.Tx.Set(g.L.DueKey(l.Expires, g.L.ExpiryKey(id)), []byte(l.Unique))
		g.NoteDue(l.Expires)
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

// NoteDue records that the transaction has written something that falls due.
func (g *Ledger) NoteDue(at time.Time) {
	at = codec.Micros(at) // as the time index has it, without a monotonic clock
	g.Upcoming.Due = codec.Earliest(g.Upcoming.Due, at)
	g.cache.noteDue(at)
}

// fail keeps the first error for Flush.
func (g *Ledger) fail(err error) {
	if g.err == nil {
		g.err = err
	}
}

// Wrote reports whether the ledger has written anything.
func (g *Ledger) Wrote() bool { return g.wrote }

// Err returns the error that Flush will return.
func (g *Ledger) Err() error { return g.err }

// AppendUpcoming appends what lies ahead by what the ledger has written, if anything does.
func (g *Ledger) AppendUpcoming(list []QueueUpcoming) []QueueUpcoming {
	if g.Upcoming == (Upcoming{}) || g.L.List == nil {
		return list
	}
	queue := codec.QueueName{FIFO: g.L.Fifo, Name: g.L.Name()}
	return append(list, QueueUpcoming{Queue: queue, Upcoming: g.Upcoming})
}

// AppendEnded appends the jobs that the transaction has ended.
func (g *Ledger) AppendEnded(list []QueueJob) []QueueJob {
	if len(g.Ended) == 0 || g.L.List == nil {
		return list
	}

	queue := codec.QueueName{FIFO: g.L.Fifo, Name: g.L.Name()}
	for _, job := range g.Ended {
		list = append(list, QueueJob{Queue: queue, Job: job})
	}
	return list
}

// Upcoming is when there is something to do about a queue even if no request comes.
type Upcoming struct {
	// Due is when the next item falls due: its lease or delay ends, or it expires. Zero if none
	// does.
	Due time.Time
	// Over is when the window of the next message id ends, or when the oldest finished job is over
	// or may be one too many; zero if there is none.
	Over time.Time
	// Source says that the queue has a source, or that its source may have changed.
	Source bool
}

// QueueUpcoming is the Upcoming of a queue of a Keyspace.
type QueueUpcoming struct {
	Queue codec.QueueName
	Upcoming
}

// SideEffects counts items that left their queues for good without an operation that removes items,
// such as a pop or an acknowledgement, items that came without a push, and leases that ran out.
type SideEffects struct {
	Expired   int64 // items that expired
	Discarded int64 // items that DiscardOld removed to make room
	Dead      int64 // items that moved to a dead-letter queue
	RanOut    int64 // leases that ran out

	Next    int64         // items that acknowledgements pushed
	Fired   int64         // items that schedules pushed
	Skipped int64         // times of schedules without an item
	Late    time.Duration // how much later than their times schedules pushed, summed up
}

// Add adds the counts of other items.
func (s *SideEffects) Add(more SideEffects) {
	s.Expired += more.Expired
	s.Discarded += more.Discarded
	s.Dead += more.Dead
	s.RanOut += more.RanOut
	s.Next += more.Next
	s.Fired += more.Fired
	s.Skipped += more.Skipped
	s.Late += more.Late
}

// QueueJob is a job of a queue of a Keyspace.
type QueueJob struct {
	Queue codec.QueueName
	Job   codec.ID // see codec.Item.Job
}

// QueueSideEffects is the SideEffects of a queue of a Keyspace. Dead counts at the queue that an
// item leaves.
type QueueSideEffects struct {
	Queue codec.QueueName
	SideEffects
	Ran []time.Duration // how long each job ran that is done and kept; negative if not known
}

// Each runs a step for each queue, or part, until one fails.
func Each[Q any](parts []Q, step func(Q) error) error {
	for _, q := range parts {
		if err := step(q); err != nil {
			return err
		}
	}
	return nil
}

// InOrder runs steps until one fails.
func InOrder(steps ...func() error) error {
	return Each(steps, func(step func() error) error { return step() })
}
