package fdbpq

import (
	"strings"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// home returns the queue of a dead letter in this dead-letter queue, nil if there cannot be one.
func (l *layout) home(d *DeadLetter) *layout {
	home := &layout{list: l.list, fifo: l.fifo, format: l.format}
	if l.list == nil {
		prefix, found := strings.CutSuffix(l.prefix, string(tuple.AppendString(nil, kindDead)))
		if !found || d.Queue != "" {
			return nil
		}
		home.prefix = prefix
		return home
	}
	if d.Queue == "" || len(d.Queue) > MaxQueueName || d.Queue == l.name() {
		return nil
	}
	home.prefix = string(tuple.AppendString([]byte(l.list.root), d.Queue))
	return home
}

// redrive runs an OpRedrive: items with a DeadLetter are pushed again to the queues that they were in,
// in their order. Others stay. The error is ErrCorrupt or one of the store.
func (t *txOps) redrive(q *queueOps, i int, done map[ID]bool) error {
	op, l, g := &t.ops[i], q.l, &q.ledger
	pasts, err := q.edits.past.Get()
	if err != nil {
		return err
	}
	s := t.newSweep(l, l.itemRange(), op.Progress)
	var begun []wholeItem // of the page
	prepare := func(pairs []kv.KeyValue) { begun = l.beginWholes(t.tx, pairs) }
	err = s.each(prepare, func(pair kv.KeyValue) (bool, error) {
		w := &begun[0]
		begun = begun[1:]
		id, err := l.parseItem(pair.Key)
		switch {
		case err != nil:
			return false, err
		case op.Limit > 0 && op.Progress.Done+s.done >= op.Limit:
			return false, nil
		case w.head == nil: // no dead letter
			return true, nil
		}
		if err := w.load(g, &id, pair.Value, !t.full); err != nil {
			return false, err
		}
		if w.large && t.full {
			return false, nil
		}
		item := &w.item.item
		var home *layout
		if item.DeadLetter != nil {
			home = l.home(item.DeadLetter)
		}
		if home == nil {
			return true, nil
		}
		if !t.fits(item.Message.Size() + sweptKeys*len(pair.Key)) {
			t.full = true
			return false, nil
		}
		to := t.dead.target(home, id.Priority)
		if err := to.loadNext(id.Priority); err != nil {
			return false, err
		}
		s.noteDone(pair.Key)
		done[id] = true
		g.lend(&stored{item: Item{ID: id}, pair: pair})
		if len(pasts) > 0 {
			t.tx.Clear(l.historyKey(&id))
		}
		g.discard(&held{id: id, history: history{lasting: item.Message.lasts()}, message: &item.Message})
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
func (t *txOps) sendHome(to *deadQueue, priority int64, m *Message) error {
	l := to.ledger.l
	settings, err := to.ledger.limits()
	if err != nil {
		return err
	}
	m.Expires = (&Op{}).expires(t.now, settings)
	if l.list != nil {
		l.addToList(t.tx, t.now)
	}
	id := newID(priority, to.takeNext(priority), t.now, uniqueBytes(1), l.needsMeta(m))
	to.ledger.add(&id, m)
	to.buried[id] = struct{}{}
	return nil
}
