package fdbpq

import "github.com/pqbridge/pqbridge/fdbpq/internal/codec"

// redriveItem pushes a dead letter again to the queue that it was in.
func (q *queueEdits) redriveItem(i int, h *codec.Record) error {
	op, result := &q.ops[i], &q.results[i]
	m, err := q.take(i, h)
	if m == nil || err != nil {
		return err
	}

	var home *codec.Layout
	if m.DeadLetter != nil {
		home = q.l.Home(m.DeadLetter)
	}
	if home == nil {
		result.Err = ErrNotDeadLetter
		return nil
	}
	to := q.dead.Target(home, op.ID.Priority)
	if err := to.LoadNext(op.ID.Priority); err != nil {
		return err
	}

	// It expires as the settings of its queue say.
	settings, err := to.ReadableSettings()
	if err != nil {
		return err
	}
	back := op.kept(m)
	back.Expires = (&Op{}).expires(q.now, settings)
	id := to.Push(op.ID.Priority, back, q.now, q.now)

	q.stale[op.ID] = true
	h.Message = m
	q.ledger.DetachAnywhere(h)
	q.ledger.Delete(h)
	result.Item, result.Home = Item{ID: id, PushedAt: codec.PushedAt(&id)}, home.Name()
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
