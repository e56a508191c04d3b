package fdbpq

import "time"

// A staged pop takes an item whose headers nobody has read yet. If nobody collects it, it returns to the queue,
// where its expiry and its unique key count again. Meanwhile its entry of the time index may have fallen due, with
// no item to remove, and another item may have got its key.

// returning is a staged item that is to return, being read.
type returning struct {
	id    *ID
	whole wholeItem
}

// beginReturn starts to read what it takes to return an item of a staged pop.
func (g *ledger) beginReturn(id *ID) returning {
	return returning{id, g.l.beginWhole(g.tx.Snapshot(), id)}
}

// returnStaged returns an item to its old place, with its value as it was stored. One that has expired stays away,
// and one whose unique key another item has by now returns without. The error is one of the store.
func (g *ledger) returnStaged(r returning, value []byte) error {
	lasts, err := r.whole.lasting()
	if err != nil {
		return err
	}
	if expired(lasts.expires, g.now) {
		g.tx.Clear(g.l.historyKey(r.id))
		g.clearExpiry(r.id, lasts.expires)
		g.expireLent(&held{id: *r.id, history: history{lasting: lasts}, value: value})
		return nil
	}
	taken, err := g.takenUnique(&Item{Message: Message{Unique: lasts.unique}})
	if err != nil {
		return err
	}
	if taken {
		g.strays = true
		return g.returnWithoutUnique(r, value, lasts.expires)
	}
	g.strays = true
	g.keepUnique(r.id, lasts.unique)
	g.giveBack(r.id, value)
	g.setExpiry(r.id, lasts)
	return nil
}

// returnWithoutUnique returns an item whose unique key another one has.
func (g *ledger) returnWithoutUnique(r returning, value []byte, expires time.Time) error {
	past, err := g.l.readHistory(g.tx, r.id).Get()
	if err != nil {
		return err
	}
	err = r.whole.load(g, r.id, value, true)
	if err != nil {
		return err
	}
	h, err := parseHistory(r.id, past)
	if err != nil {
		return err
	}
	item := &r.whole.item.item
	g.countRemoved(&held{id: *r.id, message: &item.Message, value: value})
	item.Unique, h.unique = "", ""
	g.tx.ClearRange(g.l.metaRange(r.id))
	g.giveBack(r.id, g.addRest(r.id, &item.Message))
	g.setExpiry(r.id, lasting{expires: expires})
	if past != nil {
		g.setHistory(r.id, h.encode())
	}
	return nil
}
