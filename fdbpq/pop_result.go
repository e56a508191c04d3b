package fdbpq

import (
	"errors"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
)

// What pops are told beside their items.

// countReady tells a pop how many items are ready after it. The error is one of the store.
func (q *queuePops) countReady(i int) error {
	n, err := state.ReadCounter(q.ready)
	if err != nil {
		return codec.UnlessCorrupt(err) // the item is taken all the same
	}
	// The counter does not have what this transaction has still to write.
	n += q.ledger.Ready() + q.dead.Ready(q.l) - int64(len(q.expired))
	q.results[i].Ready = max(n, 0)
	return nil
}

// noteDue records when something falls due, for the pops that wait.
func (q *queuePops) noteDue(at time.Time) { q.nextDue = codec.Earliest(q.nextDue, at) }

// findNextDue tells the pops that wait and have found nothing when the next item falls due.
func (q *queuePops) findNextDue() error {
	if !q.waits {
		return nil
	}
	entries, err := q.later.Get()
	if err != nil {
		return err
	}

	if len(entries) > 0 {
		at, err := q.l.DueTime(entries[0].Key)
		if err == nil { // else whoever brings it back says what is wrong
			q.noteDue(at)
		}
	}
	q.noteDue(q.due.Next) // later was read before
	q.noteDue(q.groups.next)
	q.noteDue(q.limits.used)
	if q.limits.paused != nil {
		q.nextDue = q.limits.paused.Until
	}
	for _, i := range q.indexes {
		if err := q.results[i].Err; q.ops[i].Waits && (errors.Is(err, ErrEmpty) || errors.Is(err, ErrMaxLeased)) {
			q.results[i].NextDue = q.nextDue
		}
	}
	return nil
}
