package fdbpq

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// redrive runs an OpRedrive: items with a DeadLetter are pushed again to the queues that they were in,
// in their order. Others stay. The error is ErrCorrupt or one of the store.
func (t *txOps) redrive(q *queueOps, i int, done map[ID]bool) error {
	op, l, g := &t.ops[i], q.l, &q.ledger
	pasts, err := q.edits.past.Get()
	if err != nil {
		return err
	}
	s := t.newSweep(l, l.ItemRange(), op.Progress)
	var begun []state.WholeItem // of the page
	prepare := func(pairs []kv.KeyValue) { begun = state.BeginWholes(l, t.tx, pairs) }
	err = s.each(prepare, func(pair kv.KeyValue) (bool, error) {
		w := &begun[0]
		begun = begun[1:]
		id, err := l.ParseItem(pair.Key)
		switch {
		case err != nil:
			return false, err
		case op.Limit > 0 && op.Progress.Done+s.done >= op.Limit:
			return false, nil
		case w.Head == nil: // no dead letter
			return true, nil
		}
		if err := w.Load(g, &id, pair.Value, !t.full); err != nil {
			return false, err
		}
		if w.Large && t.full {
			return false, nil
		}
		item := &w.Item.Item
		var home *codec.Layout
		if item.DeadLetter != nil {
			home = l.Home(item.DeadLetter)
		}
		if home == nil {
			return true, nil
		}
		if !t.fits(item.Message.Size() + state.SweptKeys*len(pair.Key)) {
			t.full = true
			return false, nil
		}
		to := t.dead.Target(home, id.Priority)
		if err := to.LoadNext(id.Priority); err != nil {
			return false, err
		}
		s.noteDone(pair.Key)
		done[id] = true
		g.Detach(&state.Stored{Item: Item{ID: id}, Pair: pair})
		if len(pasts) > 0 {
			t.tx.Clear(l.HistoryKey(&id))
		}
		g.Delete(&codec.Held{ID: id, History: codec.History{Lasting: codec.LastingOf(&item.Message)}, Message: &item.Message})
		return true, t.sendHome(to, id.Priority, op.kept(&item.Message))
	})
	return s.end(op, &t.results[i], err)
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

// sendHome pushes a message to the queue that it was in before it was a dead letter. It expires as that queue's
// settings say. The error is one of the store.
func (t *txOps) sendHome(to *due.DeadQueue, priority int64, m *Message) error {
	l := to.Ledger.L
	settings, err := to.Ledger.Limits()
	if err != nil {
		return err
	}
	m.Expires = (&Op{}).expires(t.now, settings)
	if l.List != nil {
		state.AddToList(l, t.tx, t.now)
	}
	id := codec.NewID(priority, to.TakeNext(priority), t.now, codec.UniqueBytes(1), l.NeedsMeta(m))
	to.Ledger.Add(&id, m)
	to.Buried[id] = struct{}{}
	return nil
}
