package fdbpq

import (
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// beginLimits starts to read the settings of all queues that are pushed to or
// popped from, because they may limit that.
func (t *txOps) beginLimits() {
	for _, q := range t.queues {
		if len(q.pushes) > 0 || q.pops != nil {
			q.ledger.beginSettings()
		}
	}
}

// limits returns the settings that limit the queue. If they cannot be read, nothing does: the items
// themselves may be fine.
func (g *ledger) limits() (*Settings, error) {
	s, err := g.settings()
	if errors.Is(err, ErrCorrupt) {
		return &Settings{}, nil
	}
	return s, err
}

// pausedError is the error of pops and leases of a paused queue.
type pausedError struct{ until time.Time }

// Error implements error.
func (e *pausedError) Error() string {
	return fmt.Sprintf("%v until %s", ErrPaused, e.until.UTC().Format(time.RFC3339Nano))
}

// Unwrap returns the errors that this is.
func (e *pausedError) Unwrap() []error { return []error{ErrPaused, ErrEmpty} }

// pauseAt returns the error of pops and leases at the given time, nil if they are not paused.
func (s *Settings) pauseAt(now time.Time) *pausedError {
	if !s.PauseUntil.After(now) {
		return nil
	}
	return &pausedError{s.PauseUntil}
}

// popLimits is what limits the pops and leases of one queue.
type popLimits struct {
	paused    *pausedError // nil if they are not
	maxLeased int64        // 0 if there is no limit
	leased    kv.Future[[]byte]
	kept      int64 // places for leases that follow the acknowledgements that freed them
}

// beginPopLimits finds out what limits the pops and leases of the queue.
func (t *txOps) beginPopLimits(q *queueOps) error {
	settings, err := q.ledger.limits()
	if err != nil {
		return err
	}
	limits := popLimits{paused: settings.pauseAt(q.ledger.now), maxLeased: settings.MaxLeased}
	if limits.maxLeased > 0 && q.pops.leases {
		limits.leased = q.ledger.tx.Get(q.l.stateCounterKey(leased))
		for _, i := range q.pops.indexes {
			if t.hasPlace(i) {
				limits.kept++
			}
		}
	}
	q.pops.limits = limits
	return nil
}

// hasPlace reports whether an operation is a lease that follows an acknowledgement which freed a place. The
// place is kept for it, whichever leases come before it.
func (t *txOps) hasPlace(i int) bool {
	return i > 0 && t.ops[i].Kind == OpLease && t.ops[i].Follows && t.results[i-1].place
}

// leaseLimit returns an error if no further item may be leased. It wraps ErrMaxLeased or ErrCorrupt, or
// is one of the store.
func (q *queueOps) leaseLimit() error {
	limits := &q.pops.limits
	if limits.maxLeased == 0 {
		return nil
	}
	n, err := readCounter(limits.leased)
	if err == nil && n+q.ledger.held[leased]+limits.kept >= limits.maxLeased { // with those of this transaction
		err = fmt.Errorf("%w: %d", ErrMaxLeased, limits.maxLeased)
	}
	return err
}

// noteFreed records in a result that a lease has ended, if others may wait for that.
func (g *ledger) noteFreed(result *Result) error {
	settings, err := g.limits()
	if err == nil {
		result.Freed = settings.MaxLeased > 0
	}
	return err
}

func readCounter(value kv.Future[[]byte]) (int64, error) {
	encoded, err := value.Get()
	if err != nil {
		return 0, err
	}
	return parseLength(encoded)
}

// pushLimits is what limits the pushes of one queue.
type pushLimits struct {
	maxItems int64                    // 0 if there is no limit
	counters []kv.Future[[]byte]      // of the items in all states
	due      kv.Future[[]kv.KeyValue] // something that is due; nil if nobody looks
	total    int64
	behind   bool // what is due comes back first, in another transaction
}

// beginPushLimits starts to read how many items there are in queues with a limit. The pushes conflict
// with all that changes the numbers.
func (t *txOps) beginPushLimits() error {
	for _, q := range t.queues {
		if len(q.pushes) == 0 {
			continue
		}
		settings, err := q.ledger.limits()
		if err != nil {
			return err
		}
		if settings.MaxItems == 0 {
			continue
		}
		t.limited = true
		q.limits.maxItems = settings.MaxItems
		keys := [][]byte{q.l.totalKey()}
		for state := range heldState(heldStates) {
			keys = append(keys, q.l.stateCounterKey(state))
		}
		for _, key := range keys {
			q.limits.counters = append(q.limits.counters, t.tx.Get(key))
		}
		if !isLate(t.late, q.l) && !isLate(t.caught, q.l) {
			q.limits.due = t.tx.Snapshot().GetRange(q.l.dueRange(t.now), kv.RangeOptions{Limit: 1})
		}
	}
	return nil
}

// countItems waits for what beginPushLimits started. If the queue has no room for all its pushes, what is due
// in it has to come back first, because items may leave the queue then.
func (t *txOps) countItems(q *queueOps) error {
	if q.limits.maxItems == 0 {
		return nil
	}
	for _, counter := range q.limits.counters {
		n, err := readCounter(counter)
		if err != nil {
			return err
		}
		q.limits.total += n
	}
	if q.limits.total+int64(len(q.pushes)) <= q.limits.maxItems || q.limits.due == nil {
		return nil
	}
	entries, err := q.limits.due.Get()
	if err != nil || len(entries) == 0 {
		return err
	}
	if !t.callers {
		q.limits.behind = true
		return nil
	}
	// There is no other transaction, and the counters that were read do not have what is written here.
	if err := bringBack([]*due{&q.due}); err != nil {
		return err
	}
	for _, delta := range q.ledger.deltas {
		q.limits.total += delta
	}
	for _, delta := range q.ledger.held {
		q.limits.total += delta
	}
	return nil
}

// admit reports whether the queue has room for a group of pushes, and fails them otherwise. Duplicates take
// none.
func (t *txOps) admit(q *queueOps, group []int) bool {
	if q.limits.maxItems == 0 {
		return true
	}
	added := q.dedup.countNew(t.ops, group)
	if n := q.limits.total + int64(added); added == 0 || n <= q.limits.maxItems {
		q.limits.total = n
		return true
	}
	err := fmt.Errorf("%w: it has %d items, with those that are leased or delayed, and max_items is %d", ErrFull, q.limits.total, q.limits.maxItems)
	if added > 1 {
		err = fmt.Errorf("%w: no room for %d more", err, added)
	}
	if isLate(t.late, q.l) {
		err = ErrBehind
	}
	for _, i := range group {
		t.results[i].Err = err
	}
	return false
}

// pushGroups returns the pushes of a queue, those together that follow each other.
func (t *txOps) pushGroups(q *queueOps) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		for rest := q.pushes; len(rest) > 0; {
			size := 1
			for size < len(rest) && t.ops[rest[size]].Follows && rest[size] == rest[size-1]+1 {
				size++
			}
			if !yield(rest[:size]) {
				return
			}
			rest = rest[size:]
		}
	}
}
