package fdbpq

import (
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// ItemState is what an item in a queue waits for.
type ItemState uint8

// The states of items. AnyState is that of no item.
const (
	AnyState ItemState = iota
	Ready              // to be popped
	Delayed            // held back until a time
	Leased             // with whoever leased it
)

// String returns "any", "ready", "delayed" or "leased".
func (s ItemState) String() string {
	if names := [...]string{"any", "ready", "delayed", "leased"}; int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("ItemState(%d)", uint8(s))
}

// itemState returns the state of a held item.
func (s heldState) itemState() ItemState {
	if s == delayed {
		return Delayed
	}
	return Leased
}

// get is an OpGet, being read.
type get struct {
	index    int // into txOps.ops
	id       ID
	occupied occupied
	metas    kv.Future[[]kv.KeyValue]
}

// beginInspections starts the reads of the OpGets and OpRanks.
func (q *queueOps) beginInspections(r kv.Reader) {
	for _, g := range q.gets {
		g.occupied, g.metas = q.l.readOccupied(r, &g.id), q.l.readMetas(r, &g.id)
	}
	for _, k := range q.ranks {
		k.begin(r, q.l)
	}
}

// runInspections sets the results of the OpGets and OpRanks of the queues, whose reads have begun.
// Items that have expired by now are not found. The error is one of the store.
func runInspections(r kv.Reader, queues []*queueOps, results []Result, now time.Time) error {
	for _, q := range queues {
		for _, g := range q.gets {
			err := g.finish(q.l, &results[g.index], now)
			if err = failOps(results, []int{g.index}, err); err != nil {
				return err
			}
		}
		for _, k := range q.ranks {
			err := k.finish(r, q.l, &results[k.index])
			if err = failOps(results, []int{k.index}, err); err != nil {
				return err
			}
		}
	}
	return nil
}

// finish sets the result. The error is ErrCorrupt or one of the store.
func (g *get) finish(l *layout, result *Result, now time.Time) error {
	value, err := g.occupied.item.Get()
	if err != nil {
		return err
	}
	state := Ready
	if value == nil {
		record, err := g.occupied.held.Get()
		if err != nil {
			return err
		}
		if record == nil {
			result.Err = notFound(&g.id)
			return nil
		}
		h, err := parseHeld(&g.id, record)
		if err != nil {
			return err
		}
		value, state = h.value, h.state.itemState()
	}
	s := l.storedAs(g.id, kv.KeyValue{Key: l.itemKey(&g.id), Value: value})
	s.metas = g.metas
	if err := s.finishRead(); err != nil {
		return err
	}
	if s.err != nil {
		return s.err
	}
	if state != Leased && expired(s.item.Expires, now) {
		result.Err = notFound(&g.id)
		return nil
	}
	result.Item, result.State = s.item, state
	return nil
}

func notFound(id *ID) error { return fmt.Errorf("%w: %s", ErrNotFound, id) }

// checkManaging returns an error if the queue does not support an operation on an item by its id,
// or on many of its items.
func (op *Op) checkManaging(l *layout) error {
	switch {
	case op.Kind == OpMove && l.fifo:
		return fmt.Errorf("%w: a FIFO queue has no priorities to move an item to", ErrOp)
	case op.Kind == OpPurge && op.State > Leased:
		return fmt.Errorf("%w: no state %d", ErrOp, op.State)
	case op.Limit < 0:
		return fmt.Errorf("%w: a limit of %d: want 0 or more", ErrOp, op.Limit)
	case op.Kind == OpPurge || op.Kind == OpRedrive:
		return nil
	case op.End > Back:
		return fmt.Errorf("%w: no end %d", ErrOp, op.End)
	case op.Kind == OpRank && l.fifo && op.End == Back:
		return fmt.Errorf("%w: a FIFO queue is served from its front only", ErrOp)
	case l.fifo && op.ID.Priority != 0: // its key would be that of another item
		return notFound(&op.ID)
	}
	return nil
}
