package state

import (
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// HeldItem is a held item, or one that came back to the queue and that nobody else got.
type HeldItem struct {
	*codec.Held
	Ready bool // it is in ("i")
}

// HeldRead is the keys that an item may have, being read. The last two are nil until
// ReadReady.
type HeldRead struct {
	held, Item, History kv.Future[[]byte]
	dropped             int // bytes of the item's value that shrink has dropped
}

// ReadHeld starts to read an item where it usually is.
func (g *Ledger) ReadHeld(id *codec.ID) HeldRead {
	key := g.L.HeldKey(id)
	if g.Facts != nil {
		if value := g.Facts.leased[string(key)]; value != nil {
			return HeldRead{held: kv.Ready(value, nil)}
		}
	}
	return HeldRead{held: g.Tx.Get(key)}
}

// ReadReady starts to read the item where else it can be, if it is not held. An item that is
// held needs no more: whoever moves it writes the key that was read.
func (r *HeldRead) ReadReady(tx kv.Reader, l *codec.Layout, id *codec.ID) {
	if record, err := r.held.Get(); record == nil && err == nil && r.Item == nil {
		r.Item, r.History = tx.Get(l.ItemKey(id)), tx.Get(l.HistoryKey(id))
	}
}

// Shrink waits for what was begun, and drops the value of the item, which an acknowledgement does without.
func (r *HeldRead) Shrink(l *codec.Layout, id *codec.ID) error {
	record, err := r.held.Get()
	if err != nil {
		return err
	}
	if h, err := codec.ParseHeld(id, record); record != nil && err == nil {
		r.dropped = len(codec.DecodeValue(l.Format, h.Value))
		r.held = kv.Ready(slices.Clone(record[:len(record)-len(h.Value)]), nil)
	}
	if r.Item == nil {
		return nil
	}
	value, err := r.Item.Get()
	if err == nil && value != nil {
		r.dropped = len(codec.DecodeValue(l.Format, value))
		r.Item = kv.Ready([]byte{}, nil)
	}
	return err
}

// Find returns the item if the token still holds, nil otherwise.
func (r *HeldRead) Find(l *codec.Layout, token *codec.Token) (*HeldItem, error) {
	if !codec.Possible(token, l) {
		return nil, nil
	}
	record, err := r.held.Get()
	if err != nil {
		return nil, err
	}
	if record != nil {
		h, err := codec.ParseHeld(&token.ID, record)
		if err != nil || h.Fence != token.Fence || h.NeverLeased() {
			return nil, err
		}
		h.Dropped = r.dropped
		return &HeldItem{Held: h}, nil
	}
	value, err := r.Item.Get()
	if err != nil {
		return nil, err
	}
	past, err := r.History.Get()
	if err != nil {
		return nil, err
	}
	if value != nil {
		history, err := codec.ParseHistory(&token.ID, past)
		if err != nil || history.Fence != token.Fence {
			return nil, err
		}
		h := &codec.Held{ID: token.ID, History: history, End: token.End, Value: value, Dropped: r.dropped}
		return &HeldItem{Held: h, Ready: true}, nil
	}
	return nil, nil
}

// Anywhere returns the item in whichever state it is, nil if it is not in the queue.
func (r *HeldRead) Anywhere(id *codec.ID) (*HeldItem, error) {
	record, err := r.held.Get()
	if err != nil {
		return nil, err
	}
	if record != nil {
		h, err := codec.ParseHeld(id, record)
		return &HeldItem{Held: h}, err
	}
	value, err := r.Item.Get()
	if value == nil || err != nil {
		return nil, err
	}
	return &HeldItem{Held: &codec.Held{ID: *id, Value: value}, Ready: true}, nil
}
