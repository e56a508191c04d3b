package fdbpq

import (
	"bytes"
	"errors"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// itemWalk walks items of a queue for an OpPurge or OpRedrive, in the order of their keys. It reads
// without conflict, and what it changes conflicts item by item, so it never conflicts with pushes.
type itemWalk struct {
	*queueEdits
	op      *Op
	result  *Result
	anyPast bool // items may have histories

	rest  kv.Range
	last  []byte // the key that it has walked last
	ended bool   // there are no more
	done  int64  // items that were changed
	bytes int    // of what was read
	turns *int64 // the last priority that clearTurn has cleared

	indexed bool // an item was in the index of a group
}

// bulk runs an OpPurge or OpRedrive. The error is ErrCorrupt or one of the store.
func (q *queueEdits) bulk(i int) error {
	pasts, err := q.past.Get()
	if err != nil {
		return err
	}

	w := &itemWalk{queueEdits: q, op: &q.ops[i], result: &q.results[i], anyPast: len(pasts) > 0 || q.released}
	keys, visit := q.l.ItemRange(), w.redrive
	if w.op.Kind == OpPurge {
		keys, visit = q.l.PurgeRange(w.op.State), w.purge
	}
	if next := w.op.Progress.Next; next != "" { // where an earlier one has ended
		keys.Begin = kv.SingleKey(append([]byte(q.l.Prefix), next...)).End
	}
	w.rest = keys
	return w.finish(w.each(visit))
}

// each calls visit for the items, with what else belongs to them, until the transaction has walked
// enough, or visit returns false, which leaves the item to the next transaction.
func (w *itemWalk) each(visit func(id ID, pair kv.KeyValue, rest *state.Stored) (bool, error)) error {
	walked := 0
	for size := state.FirstSweepPage; walked < state.SweepItems && w.bytes < state.SweepBytes; size = min(4*size, state.MaxSweepPage) {
		o := kv.RangeOptions{Limit: min(size, w.returned.AtOnce()), Bytes: state.SweepBytes - w.bytes}
		pairs, err := w.snapshot.GetRange(w.rest, o).Get()
		if err != nil {
			return err
		}

		rests := w.beginPage(pairs)
		for i, pair := range pairs {
			id, err := w.l.ParseItem(pair.Key)
			if err != nil {
				return err
			}
			if more, err := visit(id, pair, &rests[i]); err != nil || !more {
				return err
			}
			rests[i] = state.Stored{} // it holds values
			w.last = pair.Key
			walked, w.bytes = walked+1, w.bytes+len(pair.Value)
		}

		if !o.Full(pairs) {
			w.ended = true
			break
		}
		w.rest.Begin = kv.SingleKey(w.last).End
	}
	return nil
}

// beginPage starts to read what else belongs to the items of a page.
func (w *itemWalk) beginPage(pairs []kv.KeyValue) []state.Stored {
	if w.op.Kind == OpRedrive {
		return state.BeginItems(w.l, w.tx, pairs)
	}
	for _, pair := range pairs {
		if id, err := w.l.ParseItem(pair.Key); err == nil {
			w.ledger.BeginSize(&id)
		}
	}
	return state.BeginItems(w.l, w.snapshot, pairs)
}

// noteDone records that an item is changed. The transaction conflicts with whoever else changes it.
func (w *itemWalk) noteDone(id ID, key []byte) {
	w.tx.AddReadConflict(kv.SingleKey(key))
	w.done++
	w.stale[id] = true
}

// detach removes a ready item, and its history if items may have some.
func (w *itemWalk) detach(id ID, pair kv.KeyValue) {
	w.ledger.Detach(&state.Stored{Item: Item{ID: id}, Pair: pair})
	if w.anyPast {
		w.tx.Clear(w.l.HistoryKey(&id))
	}
}

// clearTurn removes what the turns of groups have left at the priority of an item, which nobody will
// serve.
func (w *itemWalk) clearTurn(id ID) {
	if codec.GroupIn(&id) > codec.NoGroup && (w.turns == nil || *w.turns != id.Priority) {
		w.turns = &id.Priority
		w.tx.Clear(w.l.TurnKey(id.Priority))
	}
}

// finish sets the result, once each has returned with the given error. An item that cannot be read
// ends the transaction's share, and fails the operation only if there was nothing before it.
func (w *itemWalk) finish(err error) error {
	if err != nil && (!errors.Is(err, ErrCorrupt) || w.last == nil) {
		return err
	}

	progress := &w.result.Progress
	progress.Done = w.op.Progress.Done + w.done
	switch {
	case w.ended || w.op.Limit > 0 && progress.Done >= w.op.Limit:
	case w.last == nil:
		w.result.Err = state.ErrNoRoom
	default:
		progress.Next = string(w.last[len(w.l.Prefix):])
	}
	if err == nil && w.ended && w.op.Kind == OpPurge && w.op.State == AnyState {
		return w.clearGroups()
	}
	return nil
}

// clearGroups removes what programs that do not know groups have left of them, if the queue is empty.
// Otherwise a group could seem to have leases, and be at its limit for good. The error is one of the
// store.
func (w *itemWalk) clearGroups() error {
	if !w.indexed && w.op.Progress.Done == 0 { // there are no groups, or not here
		return nil
	}
	left, err := w.tx.GetRange(w.l.PurgeRange(AnyState), kv.RangeOptions{Limit: 1}).Get()
	if err != nil || len(left) > 0 {
		return err
	}
	w.ledger.ClearGroups()
	return nil
}

// purge removes an item in one of the states that are asked for. It returns false if there is no
// room for more.
func (w *itemWalk) purge(id ID, pair kv.KeyValue, rest *state.Stored) (_ bool, err error) {
	var h *codec.Record
	if bytes.HasPrefix(pair.Key, w.l.Key(codec.KindHeld, 0)) {
		if h, err = codec.ParseRecord(&id, pair.Value); err != nil {
			return false, err
		}
		if w.op.State != AnyState && w.op.State != h.State {
			return true, nil
		}
	}
	if !w.moving.fits(state.SweptKeys*len(pair.Key) + w.l.GroupSizeOf(&id)) {
		return false, nil
	}

	w.noteDone(id, pair.Key)
	w.indexed = w.indexed || codec.GroupIn(&id) != codec.NotIndexed
	if h != nil {
		w.ledger.Unhold(h)
		if w.result.Freed, err = w.ledger.LimitsLeased(); err != nil {
			return false, err
		}
	} else {
		h = &codec.Record{ID: id, State: Ready, Value: pair.Value}
		if h.Lasting, err = rest.Lasting(); err != nil {
			return false, err
		}
		w.bytes += rest.Read()
		w.ledger.ClearExpiry(&id, h.Expires)
		w.detach(id, pair)
		w.clearTurn(id)
	}
	w.ledger.Delete(h)
	return true, nil
}

// redrive pushes a dead letter again to the queue that it was in; other items stay. It returns
// false if there is no room for more, or the limit is reached.
func (w *itemWalk) redrive(id ID, pair kv.KeyValue, rest *state.Stored) (bool, error) {
	switch {
	case w.op.Limit > 0 && w.op.Progress.Done+w.done >= w.op.Limit:
		return false, nil
	case !codec.HasMeta(&id): // no dead letter
		return true, nil
	}

	// Once there is no room, no large item is read only to find that it does not fit.
	if err := rest.Load(w.tx, w.l, pair.Value, !w.moving.full); err != nil {
		return false, err
	}
	if rest.Cut {
		return false, nil
	}
	m := &rest.Item.Message
	home := w.homeOf(m)
	if home == nil {
		return true, nil
	}
	if !w.moving.fits(m.Size() + state.SweptKeys*len(pair.Key) + w.l.GroupSizeOf(&id)) {
		w.moving.full = true
		return false, nil
	}

	if _, err := w.sendHome(w.op, home, id.Priority, m); err != nil {
		return false, err
	}
	w.noteDone(id, pair.Key)
	w.detach(id, pair)
	w.ledger.Delete(&codec.Record{ID: id, History: codec.History{Lasting: codec.LastingOf(m)}, Message: m})
	return true, nil
}

// homeOf returns the queue that a dead letter was in; nil for other items.
func (q *queueEdits) homeOf(m *Message) *codec.Layout {
	if m.DeadLetter == nil {
		return nil
	}
	return q.l.Home(m.DeadLetter)
}

// sendHome pushes a dead letter, which the caller then removes, again to its queue. If there is an
// error, nothing has changed; it is ErrCorrupt or one of the store.
func (q *queueEdits) sendHome(op *Op, home *codec.Layout, priority int64, m *Message) (ID, error) {
	to := q.dead.Target(home, priority)
	if err := to.LoadNext(priority); err != nil {
		return ID{}, err
	}

	// It expires as the settings of its queue say.
	settings, err := to.ReadableSettings()
	if err != nil {
		return ID{}, err
	}
	back := op.kept(m)
	back.Expires = (&Op{}).expires(q.now, settings)
	return to.Push(priority, back, q.now, q.now), nil
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
