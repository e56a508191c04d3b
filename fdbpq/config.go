package fdbpq

import (
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// queueConfigs is the operations on the settings of one queue, which run before all others.
type queueConfigs struct {
	familyOps
	source int // one more than the index of what changes the state of the source; 0 is nothing
}

// configure runs the operations of a queue in their order.
func (q *queueConfigs) configure() error {
	present, err := q.ledger.Settings()
	if err != nil {
		return q.failOps(err, q.indexes...)
	}

	for _, i := range q.indexes {
		if present.Source != "" || q.ops[i].Kind == OpSetSource {
			if err := q.checkSource(i); err != nil {
				return err
			}
		}

		if q.ops[i].Kind == OpConfigure {
			changed, err := q.change(i, present)
			if err != nil {
				if err := q.failOps(err, i); err != nil {
					return err
				}
				continue
			}
			present = changed
		}
		q.results[i].Settings = present.Clone()
	}
	return nil
}

// change runs an OpConfigure, and returns the new settings. The error is ErrSettings, and then
// nothing has changed, or one of the store.
func (q *queueConfigs) change(i int, before *Settings) (*Settings, error) {
	changed := before.Clone()
	q.ops[i].Configure(changed)
	if err := q.l.CheckChange(changed, before); err != nil {
		return nil, err
	}
	if on := changed.MaxBytes > 0; on != (before.MaxBytes > 0) {
		if err := q.ledger.ResetBytes(on); err != nil {
			return nil, err
		}
	}

	changed = changed.Clone() // the caller may keep the other
	if !changed.PauseUntil.IsZero() {
		changed.PauseUntil = codec.Micros(changed.PauseUntil)
	}
	q.results[i].Unchanged = !q.ledger.SetSettings(changed)

	// Who draws looks again even if the source stays as it is. This may repeat a request that has
	// changed it, and has committed after its outcome was reported as unknown.
	q.ledger.Upcoming.Source = q.ledger.Upcoming.Source || before.Source+changed.Source != ""

	// A changed source or rate starts over.
	if before.Source != changed.Source {
		if err := q.configureSource(changed.Source); err != nil {
			return nil, err
		}
	}
	if before.Rate != changed.Rate {
		q.ledger.ResetBuckets(false)
	}
	if before.RatePerGroup != changed.RatePerGroup {
		q.ledger.ResetBuckets(true)
	}
	if changed.Trail < before.Trail { // or the older ones would have nobody to remove them
		q.tx.ClearRange(q.l.KindRange(codec.KindAttempt))
	}
	return changed, nil
}

// An OpSetSource and the pushes that follow it happen together or not at all, and they run in this
// order:
//
//	checkSource   decides about the state; if it fails, so do the pushes
//	the pushes    run after all operations on settings
//	writeSources  writes the state; if the pushes have failed, so does the OpSetSource

// checkSource reads the state for an operation and, if it is an OpSetSource, decides what becomes
// of it. The error is one of the store.
func (q *queueConfigs) checkSource(i int) error {
	r := q.snapshot
	if q.tx != nil {
		r = q.tx
	}
	op, result := &q.ops[i], &q.results[i]
	state, err := r.Get(q.l.SourceKey()).Get()
	if result.Source = state; err != nil || op.Kind != OpSetSource {
		return err
	}

	switch {
	case state == nil:
		result.Err = ErrNoSource
	case op.Change == nil:
		return nil
	case q.source > 0:
		result.Err = fmt.Errorf("%w: a source changes once in a transaction", ErrNoRoom)
	default:
		result.Source, result.Err = op.Change(state, q.now)
	}
	if result.Err == nil && len(op.Dead) > 0 {
		// Before anything is pushed, because the dead-letter queue may be corrupt.
		err = q.failOps(q.deadQueue().LoadNext(0), i)
	}

	if result.Err == nil {
		q.source = i + 1
	} else if q.leadsPushes(i) {
		q.results[i+1].Err = result.Err
	}
	return err
}

// leadsPushes reports whether pushes follow the OpSetSource.
func (q *queueConfigs) leadsPushes(i int) bool {
	return i+1 < len(q.ops) && q.ops[i+1].Kind == OpPush && q.ops[i+1].Follows
}

func (q *queueConfigs) deadQueue() *due.Destination {
	set, _ := q.ledger.Settings() // configure has read them
	return q.outgoing.To(q.l.DeadLetters(set.DeadLetter), 0)
}

// writeSources does what checkSource has decided, in all queues.
func writeSources(configs []*queueConfigs) error {
	for _, q := range configs {
		i := q.source - 1
		if i < 0 {
			continue
		}
		if q.leadsPushes(i) && q.results[i+1].Err != nil {
			q.results[i].Err = q.results[i+1].Err
			continue
		}

		for _, m := range q.ops[i].Dead {
			q.outgoing.BuryNew(&q.ledger, q.deadQueue(), m)
		}
		q.ledger.SetSource(q.results[i].Source)
	}
	return nil
}

// configureSource begins the state of another source setting.
func (q *queueConfigs) configureSource(source string) error {
	if i := q.source - 1; i >= 0 { // an OpSetSource, which would write the state of before
		q.results[i].Err = fmt.Errorf("%w: the source was set in the same transaction", ErrNoRoom)
		if q.leadsPushes(i) {
			q.results[i+1].Err = q.results[i].Err
		}
		q.source = 0
	}

	old, err := q.tx.Get(q.l.SourceKey()).Get()
	if err == nil {
		q.ledger.SetSource(settings.NextSource(old, source))
	}
	return err
}
