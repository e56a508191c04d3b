package fdbpq

import (
	"errors"
	"fmt"
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/subjects/trail"
)

// runEdits reads the items of a few operations at a time, and edits them.
func (t *txn) runEdits(edits []*queueEdits) error {
	type edit struct {
		*queueEdits
		index int
	}
	var all []edit
	for _, q := range edits {
		q.reads, q.stale = map[int]*editRead{}, map[ID]bool{}
		for _, i := range q.indexes {
			all = append(all, edit{q, i})
		}
	}

	// Each reads up to three values.
	for some := range slices.Chunk(all, (t.returned.AtOnce()+2)/3) {
		for _, one := range some {
			one.beginReads(one.index)
		}
		for _, one := range some {
			one.beginAlias(one.index)
		}
		for _, one := range some {
			one.follow(one.index)
		}
		for _, one := range some {
			if err := one.failOps(one.run(one.index), one.index); err != nil {
				return err
			}
		}
	}
	return nil
}

// run runs the operation at an index. The error is for the operation, and then nothing has changed,
// or one of the store. So are the errors below.
func (q *queueEdits) run(i int) error {
	defer delete(q.reads, i)
	switch {
	case q.ops[i].Kind != OpPurge:
	case q.ops[i].State == Done:
		return q.purgeFinished(&q.results[i])
	default:
		return q.purge(&q.results[i])
	}
	if q.ops[i].Follows && i > 0 && q.results[i-1].Err != nil {
		q.results[i].Err = q.results[i-1].Err
		return nil
	}

	h, err := q.find(i)
	op := &q.ops[i]
	if errors.Is(err, ErrNotFound) && (op.Kind != OpRemove || op.State == Done) {
		return q.editFinished(i, err)
	}
	if err != nil {
		return err
	}
	switch op.Kind {
	case OpMove:
		return q.move(i, h)
	case OpRelease:
		return q.release(i, h)
	case OpRedriveItem:
		return q.redriveItem(i, h)
	}
	return q.remove(i, h)
}

// remove removes an item, wherever it is.
func (q *queueEdits) remove(i int, h *codec.Record) (err error) {
	result := &q.results[i]
	if err := q.moving.forget(q.ledger.ForgetSize(h)); err != nil {
		return err
	}
	if result.Item, err = q.named(i, &h.ID); err != nil {
		return err
	}
	q.stale[h.ID] = true
	q.ledger.DetachAnywhere(h)
	q.ledger.Delete(h, codec.MemberGone)
	if h.State == Leased {
		result.Freed, err = q.ledger.LimitsLeased()
	}
	return err
}

// purge removes all items. What operations before it have added is in the counters by then.
func (q *queueEdits) purge(result *Result) (err error) {
	if err := q.outgoing.Flush(); err != nil {
		return err
	}
	if err := q.ledger.Flush(); err != nil {
		return err
	}
	if result.Len, err = q.ledger.Purge(); err != nil {
		return err
	}
	q.purged = true
	result.Freed, err = q.ledger.LimitsLeased()
	return err
}

// readMoved reads the rest of an item that moves, if it may and there is room.
func (q *queueEdits) readMoved(i int, h *codec.Record) (*Message, error) {
	rest := &q.reads[i].rest
	if h.State == Leased {
		return nil, ErrLeased
	}
	// Once there is no room, no large item is read only to find that it does not fit.
	if err := rest.Load(q.tx, q.l, h.Value, !q.moving.full); err != nil {
		return nil, err
	}
	if rest.Item.Message.Join > 0 {
		return nil, fmt.Errorf("%w: the job %s waits for its members: remove it, or let it wait",
			ErrJoins, rest.Item.Job())
	}
	size := rest.Item.Message.Size() + q.l.IndexSizeOf(&h.ID) + q.l.AliasSize()
	if forget := q.ledger.ForgetSize(h); forget > 0 {
		size += 2*forget + codec.AttemptsSize
	}
	if rest.Cut || !q.moving.fits(size) {
		q.moving.full = true
		return nil, state.ErrNoRoom
	}
	return &rest.Item.Message, nil
}

// release ends the lease of an item, and returns it to its place.
func (q *queueEdits) release(i int, h *codec.Record) (err error) {
	op, result := &q.ops[i], &q.results[i]
	if h.State != Leased {
		return ErrNotLeased
	}
	if !q.moving.fits(len(h.Value)) {
		return state.ErrNoRoom
	}
	if result.Freed, err = q.ledger.LimitsLeased(); err != nil {
		return err
	}
	if result.Item, err = q.named(i, &h.ID); err != nil {
		return err
	}

	if h.Expired(q.now) {
		result.Err = notFound(&op.ID)
	}
	q.stale[h.ID] = true
	q.ledger.DetachAnywhere(h)
	q.requeue(op, h, nil)
	return nil
}

// move moves an item to the end of another priority, or of its own. The job keeps its id.
func (q *queueEdits) move(i int, h *codec.Record) error {
	op, result, read := &q.ops[i], &q.results[i], q.reads[i]
	m, err := q.readMoved(i, h)
	if err != nil {
		return err
	}

	var past []byte
	if h.State == Ready {
		if past, err = read.Past(); err != nil {
			return err
		}
		h.Lasting = codec.LastingOf(m)
	}

	// It gets the next count of the priority, and keeps the time of its push.
	to := q.outgoing.To(q.l, op.Priority)
	if err := to.LoadNext(op.Priority); err != nil {
		return err
	}
	pushed := codec.PushedAt(&h.ID)
	if pushed.IsZero() { // another program wrote it
		pushed = q.now
	}
	attempts, err := q.attempts(h)
	if err != nil {
		return err
	}
	moved, job := *m, read.rest.Item.Job()
	moved.First = &job
	id := to.NewID(op.Priority, &moved, pushed)

	q.stale[h.ID] = true
	h.Message = m
	q.ledger.DetachAnywhere(h)
	q.ledger.Delete(h, codec.MemberMoved)
	q.addAt(&id, &moved, h, past)
	for _, a := range attempts {
		q.ledger.NoteAttempt(&id, a)
	}
	result.Item = namedItem(&id, moved.First)
	return nil
}

// attempts returns the attempts of an item that moves. The error is one of the store.
func (q *queueEdits) attempts(h *codec.Record) ([]trail.Attempt, error) {
	if q.ledger.Trail() == 0 {
		return nil, nil
	}
	return state.BeginAttempts(q.l, q.snapshot, h).Finish(0)
}

// addAt adds an item that was removed again at another place, in the same state.
func (q *queueEdits) addAt(id *ID, m *Message, h *codec.Record, past []byte) {
	g := &q.ledger
	value := g.AddRest(id, m)
	if h.State != Ready {
		moved := *h
		moved.ID, moved.Value = *id, value
		g.Hold(&moved)
		return
	}

	g.Attach(id, value)
	g.SetExpiry(id, h.Lasting)
	if past != nil {
		g.SetHistory(id, past)
	}
	q.pushed = true
}

// redriveItem pushes a dead letter again to the queue that it was in.
func (q *queueEdits) redriveItem(i int, h *codec.Record) error {
	op, result := &q.ops[i], &q.results[i]
	m, err := q.readMoved(i, h)
	if err != nil {
		return err
	}

	var home *codec.Layout
	if m.DeadLetter != nil {
		home = q.l.Home(m.DeadLetter)
	}
	if home == nil {
		return ErrNotDeadLetter
	}
	attempts, err := q.attempts(h)
	if err != nil {
		return err
	}
	back, err := q.pushAgain(op, home, h.ID.Priority, m, q.reads[i].rest.Item.Job(), attempts)
	if err != nil {
		return err
	}

	q.stale[h.ID] = true
	h.Message = m
	q.ledger.DetachAnywhere(h)
	q.ledger.Delete(h, codec.MemberGone)
	result.Item, result.Home = back, home.Name()
	return nil
}
