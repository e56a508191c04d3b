package fdbpq

import (
	"bytes"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// purging is an OpPurge.
type purging struct {
	*queueEdits
	index   int // into txn.ops
	walk    *itemWalk
	begun   []state.Stored // what else belongs to the items of the page
	anyPast bool           // items may have histories
}

// purge runs an OpPurge. The error is ErrCorrupt or one of the store.
func (q *queueEdits) purge(i int) error {
	pasts, err := q.past.Get()
	if err != nil {
		return err
	}
	op := &q.ops[i]
	p := &purging{queueEdits: q, index: i, walk: q.newWalk(q.l.PurgeRange(op.State), op.Progress), anyPast: len(pasts) > 0}
	err = p.walk.each(p.prepare, p.visit)
	return p.walk.setResult(i, err)
}

// prepare starts to read what removing the items of a page takes.
func (p *purging) prepare(pairs []kv.KeyValue) {
	p.begun = state.BeginItems(p.l, p.snapshot, pairs)
	for _, pair := range pairs {
		if id, err := p.l.ParseItem(pair.Key); err == nil {
			p.ledger.BeginSize(&id)
		}
	}
}

// visit removes an item in one of the states that are asked for. It returns false if there is no
// room for more.
func (p *purging) visit(pair kv.KeyValue) (bool, error) {
	rest := &p.begun[0]
	p.begun = p.begun[1:]
	id, err := p.l.ParseItem(pair.Key)
	if err != nil {
		return false, err
	}
	var h *codec.Record
	if bytes.HasPrefix(pair.Key, p.l.Key(codec.KindHeld, 0)) {
		if h, err = codec.ParseRecord(&id, pair.Value); err != nil {
			return false, err
		}
		if asked := p.ops[p.index].State; asked != AnyState && asked != h.State {
			return true, nil
		}
	}
	if !p.moving.fits(state.SweptKeys * len(pair.Key)) {
		return false, nil
	}

	p.walk.noteDone(pair.Key)
	p.stale[id] = true
	if h != nil {
		p.ledger.Unhold(h)
		if p.results[p.index].Freed, err = p.ledger.LimitsLeased(); err != nil {
			return false, err
		}
	} else {
		h = &codec.Record{ID: id, State: Ready, Value: pair.Value}
		if h.Lasting, err = rest.Lasting(); err != nil {
			return false, err
		}
		p.walk.bytes += rest.Read()
		p.ledger.ClearExpiry(&id, h.Expires)
		p.detach(id, pair, p.anyPast)
	}
	p.ledger.Delete(h)
	return true, nil
}

// detach removes a ready item, and its history if items may have some.
func (q *queueEdits) detach(id ID, pair kv.KeyValue, anyPast bool) {
	q.ledger.Detach(&state.Stored{Item: Item{ID: id}, Pair: pair})
	if anyPast {
		q.tx.Clear(q.l.HistoryKey(&id))
	}
}
