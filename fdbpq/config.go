package fdbpq

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
)

// configs is the operations on settings. They run before all others.
type configs struct {
	*txn
	queues []*queueConfigs
}

// queueConfigs is those of one queue.
type queueConfigs struct {
	*queueTxn
	indexes []int // into txn.ops
}

// run reads the settings of all queues, and changes them.
func (c *configs) run() error {
	for _, q := range c.queues {
		q.ledger.BeginSettings()
	}
	for _, q := range c.queues {
		if err := q.configure(); err != nil {
			return err
		}
	}
	return nil
}

// configure runs the operations of a queue in their order.
func (q *queueConfigs) configure() error {
	present, err := q.ledger.Settings()
	if err != nil {
		return q.failOps(err, q.indexes...)
	}

	for _, i := range q.indexes {
		if q.ops[i].Kind == OpConfigure {
			changed := present.Clone()
			q.ops[i].Configure(changed)
			if err := q.l.CheckChange(changed, present); err != nil {
				q.results[i].Err = err
				continue
			}

			before := present
			present = changed.Clone() // the caller may keep the other
			if !present.PauseUntil.IsZero() {
				present.PauseUntil = codec.Micros(present.PauseUntil)
			}
			q.ledger.SetSettings(present)

			if (before.MaxBytes > 0) != (present.MaxBytes > 0) {
				if err := q.ledger.ResetBytes(); err != nil {
					return err
				}
			}
		}
		q.results[i].Settings = present.Clone()
	}
	return nil
}

// beginReads starts to read the settings in a transaction that only reads.
func (c *configs) beginReads() {
	for _, q := range c.queues {
		q.ledger.ReadSettings(q.snapshot, q.l)
	}
}

// finishReads sets the results in a transaction that only reads.
func (c *configs) finishReads() error {
	for _, q := range c.queues {
		stored, err := q.ledger.Settings()
		if err != nil {
			if err := q.failOps(err, q.indexes...); err != nil {
				return err
			}
			continue
		}

		for _, i := range q.indexes {
			q.results[i].Settings = stored.Clone()
		}
	}
	return nil
}
