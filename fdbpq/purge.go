package fdbpq

import (
	"bytes"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// purgeRange is the range of the keys of items in a state. Held items come right before ready ones.
func (l *layout) purgeRange(s ItemState) kv.Range {
	switch s {
	case Ready:
		return l.itemRange()
	case AnyState:
		return kv.Range{Begin: l.kindRange(kindHeld).Begin, End: l.itemRange().End}
	default:
		return l.kindRange(kindHeld)
	}
}

// purge runs an OpPurge. The error is ErrCorrupt or one of the store.
func (t *txOps) purge(q *queueOps, i int, done map[ID]bool) error {
	op, l := &t.ops[i], q.l
	pasts, err := q.edits.past.Get()
	if err != nil {
		return err
	}
	heldPrefix := l.key(kindHeld, 0)
	var begun []wholeItem // of the page
	prepare := func(pairs []kv.KeyValue) {
		begun = l.beginWholes(t.tx.Snapshot(), pairs)
		for _, pair := range pairs {
			if id, err := l.parseItem(pair.Key); err == nil {
				q.ledger.beginSize(&id)
			}
		}
	}
	s := t.newSweep(l, l.purgeRange(op.State), op.Progress)
	err = s.each(prepare, func(pair kv.KeyValue) (bool, error) {
		w := &begun[0]
		begun = begun[1:]
		id, err := l.parseItem(pair.Key)
		if err != nil {
			return false, err
		}
		var h *held
		if bytes.HasPrefix(pair.Key, heldPrefix) {
			if h, err = parseHeld(&id, pair.Value); err != nil {
				return false, err
			}
			if op.State != AnyState && op.State != h.state.itemState() {
				return true, nil
			}
		}
		if !t.fits(sweptKeys * len(pair.Key)) {
			return false, nil
		}
		s.noteDone(pair.Key)
		done[id] = true
		if h != nil {
			q.ledger.release(h)
			if t.results[i].Freed, err = q.ledger.limitsLeased(); err != nil {
				return false, err
			}
		} else {
			h = &held{id: id, value: pair.Value}
			if h.lasting, err = w.lasting(); err != nil {
				return false, err
			}
			s.bytes += w.size()
			q.ledger.clearExpiry(&id, h.expires)
			q.ledger.lend(&stored{item: Item{ID: id}, pair: pair})
			if len(pasts) > 0 {
				t.tx.Clear(l.historyKey(&id))
			}
		}
		q.ledger.discard(h)
		return true, nil
	})
	return s.end(op, &t.results[i], err)
}
