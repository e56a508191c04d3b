package fdbpq

import (
	"bytes"
	"errors"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// dueHeld is a held item that has fallen due, or a ready one that has expired.
type dueHeld struct {
	dueRecord
	due   *due
	id    ID
	ready bool

	read   kv.Future[[]byte]
	size   int     // of the record, once load has returned
	h      *held   // nil if nothing is due here after all
	burial *burial // if the item has had its last delivery
}

// maxReturn is the most items that a step of returnHeld reads: small items may come before many
// large ones.
const maxReturn = 256

// returnHeld returns held items to their old places, or holds or buries them as their settings
// say, until that takes about room bytes. As returnItems, it reads few first, and never more
// than there can be room for.
func returnHeld(all []*dueHeld, room int, alone bool) error {
	moved := false
	for next := firstReturn; len(all) > 0 && room > 0; next = min(next*returnGrowth, maxReturn) {
		some := all[:min(next, len(all), room/restoreOverhead+1)]
		all = all[len(some):]
		for _, d := range some {
			d.read = d.due.ledger.tx.Get(d.key)
		}
		for _, d := range some {
			if err := d.load(); err != nil {
				return err
			}
		}
		for _, d := range some {
			if d.h == nil {
				continue
			}
			if room <= 0 {
				d.due.more = true
				continue
			}
			size, err := d.settle(room, alone && !moved)
			if err != nil {
				return err
			}
			room -= size
			d.due.done = d.due.done || size > 0
			moved = moved || size > 0
		}
	}
	for _, d := range all {
		d.due.more = true
	}
	return nil
}

// load reads the item, if its record says that it is due, and starts to read what it takes to
// bury it, if it has to be. The error is one of the store.
func (d *dueHeld) load() error {
	g := d.due.ledger
	encoded, err := d.read.Get()
	if err != nil {
		return err
	}
	if encoded == nil { // this transaction has settled it, or the entry has no key
		g.tx.Clear(d.entry)
		return nil
	}
	if d.ready {
		d.size = len(encoded) + restoreOverhead
		d.h = &held{id: d.id, unique: string(d.says), value: encoded}
		g.beginSize(&d.id)
		return nil
	}
	h, err := parseHeld(&d.id, encoded)
	if err != nil {
		d.due.err = err
		return nil
	}
	if !bytes.Equal(g.l.dueKey(h.fallsDue(), d.key), d.entry) {
		g.tx.Clear(d.entry)
		return nil
	}
	d.size = len(encoded) + restoreOverhead
	if h.expired(g.now) {
		g.beginSize(&d.id)
	} else if h.state == leased {
		settings, err := g.settings()
		if err != nil {
			return d.fail(err)
		}
		if settings.exhausted(h.deliveries) {
			d.burial = d.due.dead.begin(g, &h.id, settings)
		}
	}
	d.h = h
	return nil
}

// settle moves an item that is due, and returns how many bytes that took. It leaves a large item to
// another transaction, unless this one is alone; and one that does not fit with all that come after it,
// by taking all of the room. The error is one of the store.
func (d *dueHeld) settle(room int, alone bool) (size int, err error) {
	g, h := d.due.ledger, d.h
	if d.ready {
		g.tx.Clear(d.entry)
		g.expireReady(h)
		d.due.returned = true
		return d.size, nil
	}
	if h.expired(g.now) {
		g.release(h)
		g.expireLent(h)
		return d.size, nil
	}
	if d.burial != nil {
		if err := d.burial.load(h, alone); err != nil {
			return 0, d.fail(err)
		}
		size = d.burial.size() + d.size
		switch {
		case alone:
		case d.burial.large:
			d.due.more = true
			return 0, nil
		case size > room:
			d.due.more = true
			return room, nil
		}
		g.release(h)
		g.discard(h)
		d.due.dead.bury(d.burial, h, ReasonMaxDeliver)
		return size, nil
	}
	g.release(h)
	if h.state == leased {
		settings, err := g.settings()
		if err != nil {
			return 0, err // load has read them
		}
		if until := h.due.Add(settings.backoffAfter(h.deliveries)); until.After(g.now) {
			h.state, h.due = delayed, until
			g.hold(h)
			d.due.next = earliest(d.due.next, micros(h.fallsDue()))
			return d.size, nil
		}
	}
	g.putBack(h)
	d.due.returned = true
	return d.size, nil
}

// fail records what cannot be read. It returns any other error.
func (d *dueHeld) fail(err error) error {
	if !errors.Is(err, ErrCorrupt) {
		return err
	}
	d.due.err = err
	return nil
}
