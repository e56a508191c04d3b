package fdbpq

import (
	"errors"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// get is an OpGet.
type get struct {
	*queueTxn
	index    int // into txn.ops
	id       ID
	occupied state.Occupied
	metas    kv.Future[[]kv.KeyValue]
	asked    kv.RangeOptions // of metas
}

// beginReads implements inspection.
func (g *get) beginReads(bytes int) {
	if g.returned.Refused {
		return
	}
	g.asked = kv.RangeOptions{Bytes: bytes}
	g.occupied = state.ReadOccupied(g.l, g.snapshot, &g.id)
	g.metas = state.ReadMetas(g.l, g.snapshot, &g.id, g.asked)
}

// finish implements inspection.
func (g *get) finish() error {
	if g.occupied.Item == nil { // it was not begun
		g.results[g.index].Err = state.ErrNoRoom
		return nil
	}
	return g.failOps(g.find(), g.index)
}

// find sets the result. The error is ErrCorrupt or one of the store.
func (g *get) find() error {
	result := &g.results[g.index]
	value, where, found, err := g.value()
	if err != nil {
		return err
	}
	if !found {
		result.Err = notFound(&g.id)
		return nil
	}

	s := state.StoredAs(g.l, g.id, kv.KeyValue{Key: g.l.ItemKey(&g.id), Value: value})
	s.Metas, s.Asked = g.metas, g.asked
	item, err := s.Whole(g.snapshot, g.l, &g.returned)
	if errors.Is(err, ErrNoRoom) {
		result.Err = err
		return nil
	}
	if err != nil {
		return err
	}

	if where != Leased && codec.Expired(item.Expires, g.now) {
		result.Err = notFound(&g.id)
		return nil
	}
	result.Item, result.State = item, where
	g.occupied, g.metas = state.Occupied{}, nil
	return nil
}

// value returns the first part of the item as it is stored, and in which state the item is.
func (g *get) value() (value []byte, where ItemState, found bool, err error) {
	value, err = g.occupied.Item.Get()
	if err != nil || value != nil {
		return value, Ready, err == nil, err
	}

	record, err := g.occupied.Held.Get()
	if err != nil || record == nil {
		return nil, Ready, false, err
	}
	h, err := codec.ParseHeld(&g.id, record)
	if err != nil {
		return nil, Ready, false, err
	}
	return h.Value, h.State.ItemState(), true, nil
}
