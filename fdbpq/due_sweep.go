package fdbpq

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// dueSweep is the OpSweeps of one queue, which share one result.
type dueSweep struct {
	indexes []int                    // into txOps.ops
	over    kv.Future[[]kv.KeyValue] // message ids that are over
	page    int                      // of those
}

// sweptMsgIDs is the most message ids that all OpSweeps of a transaction remove.
const sweptMsgIDs = 512

// beginSweep starts to read what the OpSweeps of a queue remove besides what is due, and has more of that handled.
func (t *txOps) beginSweep(q *queueOps) {
	s := q.sweeps
	if s == nil {
		return
	}
	q.due.Page = max(due.SweptPage/t.sweeps, due.DuePage)
	s.page = max(sweptMsgIDs/t.sweeps, 1)
	s.over = t.tx.Snapshot().GetRange(q.l.OverRange(t.now), kv.RangeOptions{Limit: s.page})
}

// finishSweeps sets the results of the OpSweeps, once what is due was handled. The error is one of the store.
func (t *txOps) finishSweeps() error {
	for _, q := range t.queues {
		s := q.sweeps
		if s == nil {
			continue
		}
		entries, err := s.over.Get()
		if err != nil {
			return err
		}

		more := len(entries) == s.page
		if t.moves > 0 { // a large dead letter leaves no room
			more, entries = len(entries) > 0, nil
		}
		for _, entry := range entries {
			state.RemoveMsgID(q.l, t.tx, entry)
			q.ledger.Wrote = true
		}
		for _, i := range s.indexes {
			t.results[i].Err = q.due.Err
			t.results[i].Swept = Swept{More: more || q.due.Behind(), Done: q.due.Done || len(entries) > 0, MsgIDs: len(entries)}
		}
	}
	return nil
}
