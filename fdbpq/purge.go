package fdbpq

import (
	"bytes"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// purge runs an OpPurge. The error is ErrCorrupt or one of the store.
func (t *txOps) purge(q *queueOps, i int, done map[ID]bool) error {
	op, l := &t.ops[i], q.l
	pasts, err := q.edits.past.Get()
	if err != nil {
		return err
	}
	heldPrefix := l.Key(codec.KindHeld, 0)
	var begun []state.WholeItem // of the page
	prepare := func(pairs []kv.KeyValue) {
		begun = state.BeginWholes(l, t.tx.Snapshot(), pairs)
		for _, pair := range pairs {
			if id, err := l.ParseItem(pair.Key); err == nil {
				q.ledger.BeginSize(&id)
			}
		}
	}
	s := t.newSweep(l, l.PurgeRange(op.State), op.Progress)
	err = s.each(prepare, func(pair kv.KeyValue) (bool, error) {
		w := &begun[0]
		begun = begun[1:]
		id, err := l.ParseItem(pair.Key)
		if err != nil {
			return false, err
		}
		var h *codec.Held
		if bytes.HasPrefix(pair.Key, heldPrefix) {
			if h, err = codec.ParseHeld(&id, pair.Value); err != nil {
				return false, err
			}
			if op.State != AnyState && op.State != h.State.ItemState() {
				return true, nil
			}
		}
		if !t.fits(state.SweptKeys * len(pair.Key)) {
			return false, nil
		}
		s.noteDone(pair.Key)
		done[id] = true
		if h != nil {
			q.ledger.Unhold(h)
			if t.results[i].Freed, err = q.ledger.LimitsLeased(); err != nil {
				return false, err
			}
		} else {
			h = &codec.Held{ID: id, Value: pair.Value}
			if h.Lasting, err = w.Lasting(); err != nil {
				return false, err
			}
			s.bytes += w.Size()
			q.ledger.ClearExpiry(&id, h.Expires)
			q.ledger.Detach(&state.Stored{Item: Item{ID: id}, Pair: pair})
			if len(pasts) > 0 {
				t.tx.Clear(l.HistoryKey(&id))
			}
		}
		q.ledger.Delete(h)
		return true, nil
	})
	return s.end(op, &t.results[i], err)
}
