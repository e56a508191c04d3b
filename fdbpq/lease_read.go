package fdbpq

import (
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// heldRead is the keys that an item may have, being read. The last two are nil until
// readReady.
type heldRead struct {
	held, item, history kv.Future[[]byte]
	dropped             int // bytes of the item's value that shrink has dropped
}

// readHeld starts to read an item where it usually is.
func (g *ledger) readHeld(id *ID) heldRead {
	key := g.l.heldKey(id)
	if g.facts != nil {
		if value := g.facts.leased[string(key)]; value != nil {
			return heldRead{held: kv.Ready(value, nil)}
		}
	}
	return heldRead{held: g.tx.Get(key)}
}

// readReady starts to read the item where else it can be, if it is not held. An item that is
// held needs no more: whoever moves it writes the key that was read.
func (r *heldRead) readReady(tx kv.Reader, l *layout, id *ID) {
	if record, err := r.held.Get(); record == nil && err == nil && r.item == nil {
		r.item, r.history = tx.Get(l.itemKey(id)), tx.Get(l.historyKey(id))
	}
}

// shrink waits for what was begun, and drops the value of the item, which an acknowledgement does without.
func (r *heldRead) shrink(l *layout, id *ID) error {
	record, err := r.held.Get()
	if err != nil {
		return err
	}
	if h, err := parseHeld(id, record); record != nil && err == nil {
		r.dropped = len(l.format.decode(h.value))
		r.held = kv.Ready(slices.Clone(record[:len(record)-len(h.value)]), nil)
	}
	if r.item == nil {
		return nil
	}
	value, err := r.item.Get()
	if err == nil && value != nil {
		r.dropped = len(l.format.decode(value))
		r.item = kv.Ready([]byte{}, nil)
	}
	return err
}

// span chooses the next operations, about most of them and whole groups, and returns how many.
func (s *settlements) span(ops []Op, most int) (n int) {
	s.from = s.to
	for s.to < len(s.indexes) && s.to-s.from < most {
		s.to++
		for s.to < len(s.indexes) && tied(ops, s.indexes[s.to]) {
			s.to++
		}
	}
	return s.to - s.from
}

// begin starts to read the items that the tokens of the span name. Only a group of acknowledgements, which ends
// the span, may make that longer than atOnce: it has no more values in memory at once either. The error is one of the store.
func (s *settlements) begin(t *txOps, q *queueOps) error {
	if s.reads == nil {
		s.reads, s.burials = make([]heldRead, len(s.indexes)), make([]*burial, len(s.indexes))
	}
	atOnce := t.returned.atOnce()
	for from := s.from; from < s.to; from += atOnce {
		to := min(from+atOnce, s.to)
		s.beginSome(t, q, from, to)
		if to == s.to {
			break
		}
		s.readReady(t, q, from, to)
		for n := from; n < to; n++ {
			op := &t.ops[s.indexes[n]]
			if op.Kind != OpAck { // before the group, and moves the value
				continue
			}
			if err := s.reads[n].shrink(q.l, &op.Token.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// readReady is heldRead.readReady for some places.
func (s *settlements) readReady(t *txOps, q *queueOps, from, to int) {
	for n := from; n < to; n++ {
		s.reads[n].readReady(t.tx, q.l, &t.ops[s.indexes[n]].Token.ID)
	}
}

func (s *settlements) beginSome(t *txOps, q *queueOps, from, to int) {
	for n := from; n < to; n++ {
		i := s.indexes[n]
		s.reads[n] = q.ledger.readHeld(&t.ops[i].Token.ID)
		if op := &t.ops[i]; op.Kind == OpTerm || op.Kind == OpAck || op.Kind == OpNak && !op.Uncounted {
			q.ledger.beginSettings()
		}
	}
}

// find returns the item if the token still holds, nil otherwise.
func (r *heldRead) find(l *layout, token *Token) (*heldItem, error) {
	if !token.possible(l) {
		return nil, nil
	}
	record, err := r.held.Get()
	if err != nil {
		return nil, err
	}
	if record != nil {
		h, err := parseHeld(&token.ID, record)
		if err != nil || h.fence != token.Fence || h.neverLeased() {
			return nil, err
		}
		h.dropped = r.dropped
		return &heldItem{held: h}, nil
	}
	value, err := r.item.Get()
	if err != nil {
		return nil, err
	}
	past, err := r.history.Get()
	if err != nil {
		return nil, err
	}
	if value != nil {
		history, err := parseHistory(&token.ID, past)
		if err != nil || history.fence != token.Fence {
			return nil, err
		}
		h := &held{id: token.ID, history: history, end: token.End, value: value, dropped: r.dropped}
		return &heldItem{held: h, ready: true}, nil
	}
	return nil, nil
}
