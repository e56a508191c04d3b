package fdbpq

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
)

// editFinished runs an operation whose item is not in the queue, if its job is a finished one. The
// error is missing if it is not.
func (q *queueEdits) editFinished(i int, missing error) error {
	op := &q.ops[i]
	look := state.BeginFinished(q.l, q.tx, &op.ID, state.Beginning)
	most := state.NoBound
	if op.Kind != OpRedriveItem || q.moving.full { // no value is needed, or has room
		most = 0
	}
	f, err := look.Load(q.tx, most)
	if err != nil {
		return err
	}
	if f == nil || f.OverBy(q.now) || op.misses(&f.Record.ID) {
		return missing
	}

	switch op.Kind {
	case OpRemove:
		q.ledger.RemoveFinished(&f.FinishedEntry)
		q.results[i].Item = namedItem(&f.Record.ID, jobIfMoved(&f.FinishedEntry))
		return nil
	case OpRedriveItem:
		return q.redriveFinished(i, f)
	}
	return ErrDone
}

// jobIfMoved returns the Message.First of the item of a finished job, which may not have been read.
func jobIfMoved(e *codec.FinishedEntry) *ID {
	if e.Place == (ID{}) {
		return nil
	}
	job := e.Job // the entry holds the whole record
	return &job
}

// redriveFinished begins a new life of a finished job, at the end of its last priority.
func (q *queueEdits) redriveFinished(i int, f *state.FinishedRead) error {
	op, result, record := &q.ops[i], &q.results[i], f.Record
	switch {
	case record.NoValue:
		return ErrNoValue
	case f.Cut || !q.moving.fits(record.Message.Size()+q.l.IndexSizeOf(&record.ID)+q.l.AliasSize()):
		q.moving.full = true
		return state.ErrNoRoom
	}

	back, err := q.pushAgain(op, q.l, record.ID.Priority, &record.Message, f.Job)
	if err != nil {
		return err
	}
	q.ledger.RemoveFinished(&f.FinishedEntry)
	result.Item, result.Home = back, q.l.Name()
	return nil
}

// purgeFinished removes all finished jobs.
func (q *queueEdits) purgeFinished(result *Result) (err error) {
	if err := q.ledger.Flush(); err != nil {
		return err
	}
	result.Len, err = q.ledger.PurgeFinished()
	return err
}
