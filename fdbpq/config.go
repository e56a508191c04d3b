package fdbpq

import (
	"errors"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
)

// queueConfigs is the operations on the settings of one queue, which run before all others.
type queueConfigs struct {
	*queueTxn
	indexes []int // into txn.ops
	source  int   // one more than the index of what changes the state of the source; 0 is nothing
}

// configs is those of all queues.
type configs []*queueConfigs

// run reads the settings, and changes them.
func (c configs) run() error {
	for _, q := range c {
		q.ledger.BeginSettings()
	}
	return each(c, (*queueConfigs).configure)
}

// configure runs the operations of a queue in their order. A transaction that only reads has failed
// those that change something.
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
		if q.ops[i].Kind == OpConfigure && q.tx != nil {
			changed := present.Clone()
			q.ops[i].Configure(changed)
			if err := q.l.CheckChange(changed, present); err != nil {
				q.results[i].Err = err
				continue
			}
			if on := changed.MaxBytes > 0; on != (present.MaxBytes > 0) {
				if err := q.ledger.ResetBytes(on); errors.Is(err, ErrSettings) {
					q.results[i].Err = err
					continue
				} else if err != nil {
					return err
				}
			}

			before := present
			present = changed.Clone() // the caller may keep the other
			if !present.PauseUntil.IsZero() {
				present.PauseUntil = codec.Micros(present.PauseUntil)
			}
			q.ledger.SetSettings(present)

			if before.Source != present.Source {
				if err := q.configureSource(present.Source); err != nil {
					return err
				}
			}
			if before.Rate != present.Rate {
				q.ledger.ResetBuckets(false)
			}
			if before.RatePerGroup != present.RatePerGroup {
				q.ledger.ResetBuckets(true)
			}
		}
		q.results[i].Settings = present.Clone()
	}
	return nil
}
