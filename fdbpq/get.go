package fdbpq

import (
	"errors"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
)

// get is an OpGet.
type get struct {
	*queueTxn
	index int // into txn.ops
	id    ID
	begun bool
	where state.Lookup
	rest  state.Stored // what else belongs to the item
}

// beginReads implements inspection.
func (g *get) beginReads(bytes int) {
	if g.returned.Refused {
		return
	}
	g.begun = true
	g.where = state.LookUp(g.l, g.snapshot, &g.id)
	g.rest = state.BeginItem(g.l, g.snapshot, &g.id, bytes)
}

// finish implements inspection.
func (g *get) finish() error {
	if !g.begun {
		g.results[g.index].Err = state.ErrNoRoom
		return nil
	}
	return g.failOps(g.find(), g.index)
}

// find sets the result. The error is ErrCorrupt or one of the store.
func (g *get) find() error {
	result := &g.results[g.index]
	h, err := g.where.Anywhere(&g.id)
	if err != nil {
		return err
	}
	if h == nil {
		result.Err = notFound(&g.id)
		return nil
	}

	item, err := g.rest.Present(g.snapshot, g.l, h.Value, &g.returned)
	if errors.Is(err, ErrNoRoom) {
		result.Err = err
		return nil
	}
	if err != nil {
		return err
	}

	if h.State != Leased && codec.Expired(item.Expires, g.now) {
		result.Err = notFound(&g.id)
		return nil
	}
	result.Item, result.State = item, h.State
	g.where = state.Lookup{} // it holds the value
	return nil
}
