package fdbpq

import (
	"maps"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/subjects/trail"
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
		var first *ID // which may not have been read
		if job := f.Job; f.Place != (ID{}) {
			first = &job
		}
		q.ledger.RemoveFinished(&f.FinishedEntry)
		q.results[i].Item = namedItem(&f.Record.ID, first)
		return nil
	case OpRedriveItem:
		return q.redriveFinished(i, f)
	}
	return ErrDone
}

// redriveFinished begins a new life of a finished job, at the end of its last priority.
func (q *queueEdits) redriveFinished(i int, f *state.FinishedRead) error {
	op, result, record := &q.ops[i], &q.results[i], f.Record
	size := record.Message.Size() + q.l.IndexSizeOf(&record.ID) + q.l.AliasSize()
	if q.ledger.Trail() > 0 {
		size += trail.MaxBytes
	}
	switch {
	case record.NoValue:
		return ErrNoValue
	case f.Cut || !q.moving.fits(size):
		q.moving.full = true
		return state.ErrNoRoom
	}

	record.SetTrail(record.Attempts(), q.ledger.Trail())
	back, err := q.pushAgain(op, q.l, record.ID.Priority, &record.Message, f.Job, nil)
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

// pushAgain adds a message to a queue once more, at the end of a priority, as a new life of a job.
// It expires as the settings of that queue say, and keeps the attempts of the life before.
func (q *queueEdits) pushAgain(
	op *Op, home *codec.Layout, priority int64, m *Message, job ID, attempts []trail.Attempt,
) (Item, error) {
	to := q.outgoing.To(home, priority)
	if err := to.LoadNext(priority); err != nil {
		return Item{}, err
	}
	settings, err := to.Ledger.ReadableSettings()
	if err != nil {
		return Item{}, err
	}

	back := op.kept(m)
	back.EndLife(attempts, q.ledger.Trail())
	back.Expires, back.First = (&Op{}).expires(q.now, settings), &job
	id := to.Push(priority, back, q.now, q.now)
	return namedItem(&id, &job), nil
}

// kept is the message of a dead letter, or of a finished job, as it comes back to its queue.
func (op *Op) kept(m *Message) *Message {
	kept := &Message{Value: m.Value, Headers: maps.Clone(m.Headers), Keep: m.Keep}
	maps.DeleteFunc(kept.Headers, func(name string, _ []string) bool {
		return name == trail.HeaderNext || op.DropHeader != nil && op.DropHeader(name)
	})
	return kept
}
