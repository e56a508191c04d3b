package fdbpq

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
)

// configure runs the operations on settings, before all others.
func (t *txOps) configure() error {
	for _, q := range t.queues {
		if len(q.configs) > 0 {
			q.ledger.BeginSettings()
		}
	}
	for _, q := range t.queues {
		if err := t.configureQueue(q); err != nil {
			return err
		}
	}
	return nil
}

func (t *txOps) configureQueue(q *queueOps) error {
	if len(q.configs) == 0 {
		return nil
	}
	present, err := q.ledger.Settings()
	if err != nil {
		return failOps(t.results, q.configs, err)
	}

	for _, i := range q.configs {
		if t.ops[i].Kind == OpConfigure {
			changed := present.Clone()
			t.ops[i].Configure(changed)
			if err := q.l.CheckChange(changed, present); err != nil {
				t.results[i].Err = err
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
		t.results[i].Settings = present.Clone()
	}
	return nil
}

// readConfigs sets the results of operations that only read settings.
func (q *queueOps) readConfigs(results []Result) error {
	if len(q.configs) == 0 {
		return nil
	}
	stored, err := q.ledger.Config.Get()
	if err != nil {
		return failOps(results, q.configs, err)
	}

	for _, i := range q.configs {
		results[i].Settings = stored.Clone()
	}
	return nil
}
