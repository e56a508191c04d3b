package fdbpq

import (
	"errors"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// queueSweeps is the OpSweeps of one queue, which share one result. They do more due work than
// other operations, and remove message ids whose window is over, and finished jobs.
type queueSweeps struct {
	familyOps
	over kv.Future[[]kv.KeyValue] // message ids whose window is over
	page int                      // the most of them to remove, and of finished jobs

	finished state.FinishedSweep
}

// sweptMsgIDs is the most message ids that all OpSweeps of a transaction remove, and the most
// finished jobs.
const sweptMsgIDs = 512

// beginSweeps divides what one transaction may remove among the queues that are swept, and starts
// to read it. It comes before Due.ReadIndex.
func beginSweeps(sweeps []*queueSweeps) {
	for _, q := range sweeps {
		q.due.Page = max(due.SweepPage/len(sweeps), due.Page)
		q.page = max(sweptMsgIDs/len(sweeps), 1)
		q.over = q.snapshot.GetRange(q.l.OverRange(q.now), kv.RangeOptions{Limit: q.page})
		q.finished = q.ledger.BeginFinishedSweep(q.page)
	}
}

// finish sets the results, once the due entries were handled. The error is one of the store.
func (q *queueSweeps) finish() error {
	entries, err := q.over.Get()
	if err != nil {
		return err
	}

	more, jobs, moreJobs := len(entries) == q.page, 0, false
	if q.moving.moves > 0 { // a large dead letter leaves no room
		more, entries = len(entries) > 0, nil
	} else if jobs, moreJobs, err = q.finished.Finish(&q.ledger); err != nil {
		return err
	}
	for _, entry := range entries {
		q.ledger.RemoveMsgID(entry)
	}

	swept := Swept{
		More:     more || moreJobs || q.due.Behind(),
		Done:     q.due.Done || len(entries)+jobs > 0,
		MsgIDs:   len(entries),
		Finished: jobs,
	}
	for _, i := range q.indexes {
		q.results[i].Err, q.results[i].Swept = q.due.Err, swept
	}
	return nil
}

// ReadUpcoming returns when each of the queues has something to do next, in their order, in one
// round trip, or two where finished jobs are kept. now is the time by the clock of Apply. An entry
// that cannot be read counts as none. Errors of the store pass through.
func ReadUpcoming(r kv.Reader, queues []Target, now time.Time) ([]Upcoming, error) {
	type heads struct {
		due, over kv.Future[[]kv.KeyValue]
		finished  state.FinishedAhead
		source    kv.Future[[]byte]
	}
	begun := make([]heads, len(queues))
	for i, queue := range queues {
		l := queue.Layout()
		begun[i].due = r.GetRange(l.KindRange(codec.KindDue), kv.RangeOptions{Limit: 1})
		begun[i].over = r.GetRange(l.KindRange(codec.KindMsgIDEnd), kv.RangeOptions{Limit: 1})
		begun[i].finished = state.BeginFinishedAhead(l, r)
		begun[i].source = r.Get(l.SourceKey())
	}
	for i := range begun {
		if err := begun[i].finished.Next(r); err != nil {
			return nil, err
		}
	}

	found := make([]Upcoming, len(queues))
	for i, queue := range queues {
		due, dueErr := begun[i].due.Get()
		over, overErr := begun[i].over.Get()
		finished, finishedErr := begun[i].finished.Time(now)
		source, err := begun[i].source.Get()
		if err := errors.Join(dueErr, overErr, finishedErr, err); err != nil {
			return nil, err
		}

		found[i].Source = source != nil
		if len(due) > 0 {
			if at, err := queue.Layout().DueTime(due[0].Key); err == nil {
				found[i].Due = at
			}
		}
		if len(over) > 0 {
			if until, _, err := queue.Layout().ParseMsgIDEnd(over[0].Key); err == nil {
				found[i].Over = until
			}
		}
		found[i].Over = codec.Earliest(found[i].Over, finished)
	}
	return found, nil
}
