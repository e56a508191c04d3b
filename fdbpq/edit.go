package fdbpq

import (
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// edits is the removes, moves, purges and redrives of one queue, in the order of txOps.ops. They
// see what the operations with tokens have done, and run before the pops.
type edits struct {
	indexes []int // into txOps.ops
	reads   map[int]*editRead
	past    kv.Future[[]kv.KeyValue]  // the first history of an item; nil unless wanted
	last    map[int64]state.LastItems // of the priorities that items move to
	next    map[int64]int64           // their next counts, once known
}

// editRead is what an OpRemove or OpMove reads.
type editRead struct {
	state.HeldRead
	whole state.WholeItem
}

// edit runs the removes, moves, purges and redrives. It reads what is about one item for a few of them at a time.
func (t *txOps) edit() error {
	type edit struct {
		q     *queueOps
		index int
		done  map[ID]bool // items of the queue that this transaction has moved: their reads are stale
	}
	var all []edit
	for _, q := range t.queues {
		if q.edits == nil {
			continue
		}
		q.edits.init()
		done := map[ID]bool{}
		for _, i := range q.edits.indexes {
			all = append(all, edit{q, i, done})
		}
	}
	// Each reads up to three values.
	for some := range slices.Chunk(all, (t.returned.AtOnce()+2)/3) {
		for _, e := range some {
			t.beginEdit(e.q, e.index)
		}
		for _, e := range some {
			err := t.editOne(e.q, e.index, e.done)
			delete(e.q.edits.reads, e.index)
			if err = failOps(t.results, []int{e.index}, err); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *edits) init() {
	e.reads, e.last, e.next = map[int]*editRead{}, map[int64]state.LastItems{}, map[int64]int64{}
}

// beginEdit starts the reads of an operation.
func (t *txOps) beginEdit(q *queueOps, i int) {
	e := q.edits
	switch op := &t.ops[i]; op.Kind {
	case OpRemove, OpMove:
		t.readEdited(q, i)
		if _, begun := e.last[op.Priority]; op.Kind == OpMove && !begun {
			e.last[op.Priority] = state.ReadLast(q.l, t.tx.Snapshot(), op.Priority)
		}
	default:
		e.past = q.ledger.FirstHistory()
	}
}

// readEdited starts to read the item of an OpRemove or OpMove, with conflict.
func (t *txOps) readEdited(q *queueOps, i int) {
	id := &t.ops[i].ID
	read := &editRead{HeldRead: q.ledger.ReadHeld(id)}
	read.Item, read.History = t.tx.Get(q.l.ItemKey(id)), t.tx.Get(q.l.HistoryKey(id))
	read.whole = state.BeginWhole(q.l, t.tx, id)
	q.edits.reads[i] = read
}

// editOne runs one operation. The error is ErrCorrupt, and then nothing has changed, or one of
// the store.
func (t *txOps) editOne(q *queueOps, i int, done map[ID]bool) error {
	op := &t.ops[i]
	switch op.Kind {
	case OpPurge:
		return t.purge(q, i, done)
	case OpRedrive:
		return t.redrive(q, i, done)
	}
	if done[op.ID] {
		t.readEdited(q, i)
	}
	read := q.edits.reads[i]
	h, err := read.Anywhere(&op.ID)
	if err != nil {
		return err
	}
	if h == nil {
		t.results[i].Err = notFound(&op.ID)
		return nil
	}
	if h.Ready {
		if h.Lasting, err = read.whole.Lasting(); err != nil {
			return err
		}
	}
	if h.HasExpired(t.now) {
		t.results[i].Err = notFound(&op.ID)
		return nil
	}
	if op.Kind == OpMove {
		return t.move(q, i, h, done)
	}
	done[op.ID] = true
	q.ledger.DetachLeased(h)
	q.ledger.Delete(h.Held)
	if !h.Ready && h.State == codec.HeldLeased {
		t.results[i].Freed, err = q.ledger.LimitsLeased()
		return err
	}
	return nil
}

// move moves an item to the end of another priority, or of its own.
func (t *txOps) move(q *queueOps, i int, h *state.HeldItem, done map[ID]bool) error {
	op, result, e := &t.ops[i], &t.results[i], q.edits
	if !h.Ready && h.State == codec.HeldLeased {
		result.Err = ErrLeased
		return nil
	}
	whole := &e.reads[i].whole
	if err := whole.Load(&q.ledger, &op.ID, h.Value, !t.full); err != nil {
		return err
	}
	if whole.Large && t.full || !t.fits(whole.Item.Item.Message.Size()) {
		t.full = true
		result.Err = state.ErrNoRoom
		return nil
	}
	var past []byte
	if h.Ready {
		var err error
		if past, err = e.reads[i].History.Get(); err != nil {
			return err
		}
	}
	count, err := t.nextOfMoves(q, op.Priority)
	if err != nil {
		return err
	}
	pushed := codec.PushedAt(&op.ID)
	if pushed.IsZero() { // another program wrote it
		pushed = t.now
	}
	m := &whole.Item.Item.Message
	if h.Ready {
		h.Lasting = codec.LastingOf(m)
	}
	id := codec.NewID(op.Priority, count, pushed, codec.UniqueBytes(1), q.l.NeedsMeta(m))
	done[op.ID] = true
	g := &q.ledger
	if err := g.MoveMsgID(&op.ID, &id, m.MsgID); err != nil {
		return err
	}
	h.Message = m
	g.DetachLeased(h)
	g.Delete(h.Held)
	value := g.AddRest(&id, m)
	if h.Ready {
		g.Attach(&id, value)
		g.SetExpiry(&id, h.Lasting)
		if past != nil {
			g.SetHistory(&id, past)
		}
		q.notePushed(&id)
	} else {
		moved := *h.Held
		moved.ID, moved.Value = id, value
		g.Hold(&moved)
	}
	result.Item = Item{ID: id, PushedAt: codec.PushedAt(&id)}
	return nil
}

// nextOfMoves returns the count of the next item that moves to a priority.
func (t *txOps) nextOfMoves(q *queueOps, priority int64) (int64, error) {
	e := q.edits
	count, known := e.next[priority]
	if !known {
		var err error
		if count, err = state.NextCount(q.l, e.last[priority]); err != nil {
			return 0, err
		}
	}
	e.next[priority] = codec.Following(count)
	return count, nil
}

// notePushed records an item of this transaction's own, for peeks.
func (q *queueOps) notePushed(id *ID) {
	if q.peeks == nil {
		return
	}
	if q.pushed == nil {
		q.pushed = map[ID]struct{}{}
	}
	q.pushed[*id] = struct{}{}
}
