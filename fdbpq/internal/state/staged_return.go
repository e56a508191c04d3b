package state

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
)

// A staged pop takes an item whose headers nobody has read yet. If nobody collects it, it returns to the queue,
// where its expiry and its unique key count again. Meanwhile its entry of the time index may have fallen due, with
// no item to remove, and another item may have got its key.

// Returning is a staged item that is to return, being read.
type Returning struct {
	id    *codec.ID
	whole WholeItem
}

// BeginReturn starts to read what it takes to return an item of a staged pop.
func (g *Ledger) BeginReturn(id *codec.ID) Returning {
	return Returning{id, BeginWhole(g.L, g.Tx.Snapshot(), id)}
}

// ReturnStaged returns an item to its old place, with its value as it was stored. One that has expired stays away,
// and one whose unique key another item has by now returns without. The error is one of the store.
func (g *Ledger) ReturnStaged(r Returning, value []byte) error {
	lasts, err := r.whole.Lasting()
	if err != nil {
		return err
	}
	if codec.Expired(lasts.Expires, g.Now) {
		g.Tx.Clear(g.L.HistoryKey(r.id))
		g.ClearExpiry(r.id, lasts.Expires)
		g.DeleteExpired(&codec.Held{ID: *r.id, History: codec.History{Lasting: lasts}, Value: value})
		return nil
	}
	taken, err := g.takenUnique(&codec.Item{Message: codec.Message{Unique: lasts.Unique}})
	if err != nil {
		return err
	}
	if taken {
		g.Strays = true
		return g.returnWithoutUnique(r, value, lasts.Expires)
	}
	g.Strays = true
	g.keepUnique(r.id, lasts.Unique)
	g.Attach(r.id, value)
	g.SetExpiry(r.id, lasts)
	return nil
}

// returnWithoutUnique returns an item whose unique key another one has.
func (g *Ledger) returnWithoutUnique(r Returning, value []byte, expires time.Time) error {
	past, err := ReadHistory(g.L, g.Tx, r.id).Get()
	if err != nil {
		return err
	}
	err = r.whole.Load(g, r.id, value, true)
	if err != nil {
		return err
	}
	h, err := codec.ParseHistory(r.id, past)
	if err != nil {
		return err
	}
	item := &r.whole.Item.Item
	g.countRemoved(&codec.Held{ID: *r.id, Message: &item.Message, Value: value})
	item.Unique, h.Unique = "", ""
	g.Tx.ClearRange(g.L.MetaRange(r.id))
	g.Attach(r.id, g.AddRest(r.id, &item.Message))
	g.SetExpiry(r.id, codec.Lasting{Expires: expires})
	if past != nil {
		g.SetHistory(r.id, h.Encode())
	}
	return nil
}
