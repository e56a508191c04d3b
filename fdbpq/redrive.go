package fdbpq

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// redriving is an OpRedrive.
type redriving struct {
	*queueEdits
	op      *Op
	walk    *itemWalk
	begun   []state.Stored // what else belongs to the items of the page
	anyPast bool           // items may have histories
}

// redrive runs an OpRedrive: items with a DeadLetter are pushed again to the queues that they were
// in, in their order. Others stay. The error is ErrCorrupt or one of the store.
func (q *queueEdits) redrive(i int) error {
	pasts, err := q.past.Get()
	if err != nil {
		return err
	}
	op := &q.ops[i]
	r := &redriving{queueEdits: q, op: op, walk: q.newWalk(q.l.ItemRange(), op.Progress), anyPast: len(pasts) > 0}
	err = r.walk.each(r.prepare, r.visit)
	return r.walk.setResult(i, err)
}

// prepare starts to read the rest of the items of a page.
func (r *redriving) prepare(pairs []kv.KeyValue) { r.begun = state.BeginItems(r.l, r.tx, pairs) }

// visit sends an item home if it is a dead letter. It returns false if there is no room for more,
// or the limit is reached.
func (r *redriving) visit(pair kv.KeyValue) (bool, error) {
	rest := &r.begun[0]
	r.begun = r.begun[1:]
	id, err := r.l.ParseItem(pair.Key)
	switch {
	case err != nil:
		return false, err
	case r.op.Limit > 0 && r.op.Progress.Done+r.walk.done >= r.op.Limit:
		return false, nil
	case !codec.HasMeta(&id): // no dead letter
		return true, nil
	}

	// Once there is no room, no large item is read only to find that it does not fit.
	if err := rest.Load(r.tx, r.l, pair.Value, !r.moving.full); err != nil {
		return false, err
	}
	if rest.Cut {
		return false, nil
	}
	item := &rest.Item
	var home *codec.Layout
	if item.DeadLetter != nil {
		home = r.l.Home(item.DeadLetter)
	}
	if home == nil {
		return true, nil
	}
	if !r.moving.fits(item.Message.Size() + state.SweptKeys*len(pair.Key)) {
		r.moving.full = true
		return false, nil
	}

	to := r.dead.Target(home, id.Priority)
	if err := to.LoadNext(id.Priority); err != nil {
		return false, err
	}
	r.walk.noteDone(pair.Key)
	r.stale[id] = true
	r.detach(id, pair, r.anyPast)
	r.ledger.Delete(&codec.Record{ID: id, History: codec.History{Lasting: codec.LastingOf(&item.Message)}, Message: &item.Message})
	return true, r.sendHome(to, id.Priority, r.op.kept(&item.Message))
}

// sendHome pushes a message to the queue that it was in before it was a dead letter. It expires as
// that queue's settings say. The error is one of the store.
func (r *redriving) sendHome(to *due.DeadQueue, priority int64, m *Message) error {
	settings, err := to.Limits()
	if err != nil {
		return err
	}

	m.Expires = (&Op{}).expires(r.now, settings)
	to.Push(priority, m, r.now)
	return nil
}

// kept is the message of a dead letter as it comes back to its queue.
func (op *Op) kept(m *Message) *Message {
	kept := &Message{Value: m.Value}
	for name, values := range m.Headers {
		if op.DropHeader != nil && op.DropHeader(name) {
			continue
		}
		if kept.Headers == nil {
			kept.Headers = make(map[string][]string, len(m.Headers))
		}
		kept.Headers[name] = values
	}
	return kept
}
