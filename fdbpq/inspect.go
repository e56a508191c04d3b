package fdbpq

import (
	"errors"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// get is an OpGet, being read.
type get struct {
	index    int // into txOps.ops
	id       ID
	occupied state.Occupied
	metas    kv.Future[[]kv.KeyValue]
	asked    kv.RangeOptions // of metas
}

// inspections is the OpGets and OpRanks of some queues. They are read a few at a time, in order.
type inspections struct {
	r        kv.Reader
	returned *state.ItemRoom
	list     []inspection
	begun    int       // of list: they are being read
	now      time.Time // items that have expired by then are not found
}

// inspection is one of these: either a get or a rank.
type inspection struct {
	q    *queueOps
	get  *get
	rank *rank
}

// beginInspections starts the reads of the first OpGets and OpRanks of the queues.
func beginInspections(r kv.Reader, queues []*queueOps, returned *state.ItemRoom) *inspections {
	all := &inspections{r: r, returned: returned}
	for _, q := range queues {
		for _, g := range q.gets {
			all.list = append(all.list, inspection{q: q, get: g})
		}
		for _, k := range q.ranks {
			all.list = append(all.list, inspection{q: q, rank: k})
		}
	}
	all.begin()
	return all
}

// begin starts the reads of the next ones: each takes up to three values to begin with.
func (all *inspections) begin() {
	all.begun = min(len(all.list), (all.returned.AtOnce()+2)/3)
	share := all.returned.Share(1, all.begun)
	for _, one := range all.list[:all.begun] {
		if g := one.get; g != nil {
			if all.returned.Refused {
				continue
			}
			g.asked = kv.RangeOptions{Bytes: share}
			g.occupied, g.metas = state.ReadOccupied(one.q.l, all.r, &g.id), state.ReadMetas(one.q.l, all.r, &g.id, g.asked)
			continue
		}
		one.rank.begin(all.r, one.q.l, share)
	}
}

// run sets the results. The error is one of the store.
func (all *inspections) run(results []Result) error {
	for ; len(all.list) > 0; all.list, all.begun = all.list[1:], all.begun-1 {
		if all.begun == 0 {
			all.begin()
		}
		var i int
		var err error
		one := &all.list[0]
		if g := one.get; g != nil && g.occupied.Item == nil {
			refuse(results, []int{g.index})
			i = g.index
		} else if g != nil {
			i, err = g.index, g.finish(all.r, one.q.l, all.returned, &results[g.index], all.now)
		} else {
			i, err = one.rank.index, one.rank.finish(all.r, one.q.l, all.returned, &results[one.rank.index])
		}
		if err = failOps(results, []int{i}, err); err != nil {
			return err
		}
		*one = inspection{}
	}
	return nil
}

// finish sets the result. The error is ErrCorrupt or one of the store.
func (g *get) finish(r kv.Reader, l *codec.Layout, returned *state.ItemRoom, result *Result, now time.Time) error {
	value, err := g.occupied.Item.Get()
	if err != nil {
		return err
	}
	where := Ready
	if value == nil {
		record, err := g.occupied.Held.Get()
		if err != nil {
			return err
		}
		if record == nil {
			result.Err = notFound(&g.id)
			return nil
		}
		h, err := codec.ParseHeld(&g.id, record)
		if err != nil {
			return err
		}
		value, where = h.Value, h.State.ItemState()
	}
	s := state.StoredAs(l, g.id, kv.KeyValue{Key: l.ItemKey(&g.id), Value: value})
	s.Metas, s.Asked = g.metas, g.asked
	item, err := s.Whole(r, l, returned)
	if errors.Is(err, ErrNoRoom) {
		result.Err = err
		return nil
	}
	if err != nil {
		return err
	}
	if where != Leased && codec.Expired(item.Expires, now) {
		result.Err = notFound(&g.id)
		return nil
	}
	result.Item, result.State = item, where
	g.occupied, g.metas = state.Occupied{}, nil
	return nil
}

func notFound(id *ID) error { return fmt.Errorf("%w: %s", ErrNotFound, id) }

// checkManaging returns an error if the queue does not support an operation on an item by its id,
// or on many of its items.
func (op *Op) checkManaging(l *codec.Layout) error {
	switch {
	case op.Kind == OpMove && l.Fifo:
		return fmt.Errorf("%w: a FIFO queue has no priorities to move an item to", ErrOp)
	case op.Kind == OpPurge && op.State > Leased:
		return fmt.Errorf("%w: no state %d", ErrOp, op.State)
	case op.Limit < 0:
		return fmt.Errorf("%w: a limit of %d: want 0 or more", ErrOp, op.Limit)
	case op.Kind == OpPurge || op.Kind == OpRedrive:
		return nil
	case op.End > Back:
		return fmt.Errorf("%w: no end %d", ErrOp, op.End)
	case op.Kind == OpRank && l.Fifo && op.End == Back:
		return fmt.Errorf("%w: a FIFO queue is served from its front only", ErrOp)
	case l.Fifo && op.ID.Priority != 0: // its key would be that of another item
		return notFound(&op.ID)
	}
	return nil
}
