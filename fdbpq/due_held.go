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

	read   kv.Future[[]byte] // nil for a ready one: see expiries
	h      *held             // nil if nothing is due here after all
	burial *burial           // if the item has had its last delivery
	size   int               // of what moves, about
}

// maxReturn is the most items that a step of returnHeld reads: small items may come before many
// large ones.
const maxReturn = 512

// returnHeld returns held items to their old places, or holds or buries them as their settings
// say, until that takes about as many bytes as there is room for. As returnItems, it reads few first, and
// never more than there can be room for.
func returnHeld(all []*dueHeld, room *dueRoom) error {
	// All is read before the first write: a store may have to look through all that a transaction has written
	// for each read that follows.
	var moves []*dueHeld
	for next := firstReturn; len(all) > 0 && room.bytes > 0; next = min(next*returnGrowth, maxReturn) {
		some := all[:min(next, len(all), room.bytes/restoreOverhead+1)]
		all = all[len(some):]
		for _, d := range some {
			d.begin()
		}
		for _, d := range some {
			if err := d.load(); err != nil {
				return err
			}
		}
		for _, d := range some {
			takes, err := d.measure(room, len(moves) == 0)
			if err != nil {
				return err
			}
			if takes {
				moves = append(moves, d)
			}
		}
	}
	for _, d := range all {
		d.due.more = true
	}

	if err := removeExpired(moves); err != nil {
		return err
	}
	for _, d := range moves {
		if !d.ready {
			if err := d.settle(); err != nil {
				return err
			}
		}
		d.due.done = true
	}
	return nil
}

// removeExpired removes the ready items among those that are due. The error is one of the store.
func removeExpired(moves []*dueHeld) error {
	var byQueue []*expiries
	for _, d := range moves {
		if !d.ready {
			continue
		}
		e := d.due.expired
		if e == nil {
			e = &expiries{g: d.due.ledger}
			d.due.expired, byQueue = e, append(byQueue, e)
		}
		e.items = append(e.items, d.h)
		d.due.returned = true
	}

	for _, e := range byQueue {
		e.begin()
	}
	for _, e := range byQueue {
		if err := e.arrive(); err != nil {
			return err
		}
	}
	for _, e := range byQueue {
		if err := e.remove(); err != nil {
			return err
		}
	}
	for _, d := range moves {
		if d.ready && len(d.due.expired.left) > 0 {
			d.due.more = true
		}
	}
	return nil
}

// begin starts to read the item.
func (d *dueHeld) begin() {
	if !d.ready {
		d.read = d.due.ledger.tx.Get(d.key)
	}
}

// load waits for the item, if its record says that it is due, and starts to read what it takes to
// bury it, if it has to be. The error is one of the store.
func (d *dueHeld) load() error {
	g := d.due.ledger
	if d.ready {
		expires, err := g.l.dueTime(d.entry)
		d.h = &held{id: d.id, history: history{lasting: lasting{expires: expires, unique: string(d.says)}}}
		d.size = restoreOverhead
		return err
	}
	encoded, err := d.read.Get()
	if err != nil {
		return err
	}
	if encoded == nil { // this transaction has settled it, or the entry has no key
		d.stale()
		return nil
	}
	d.size = len(encoded) + restoreOverhead
	h, err := parseHeld(&d.id, encoded)
	if err != nil {
		d.due.err = err
		return nil
	}
	if !bytes.Equal(g.l.dueKey(h.fallsDue(), d.key), d.entry) {
		d.stale()
		return nil
	}
	d.h = h
	if h.expired(g.now) {
		g.beginSize(&d.id)
	} else if h.state == leased {
		settings, err := g.settings()
		if err != nil {
			return d.fail(err)
		}
		if settings.Exhausted(h.deliveries) {
			d.burial = d.due.dead.begin(g, &h.id, settings)
		}
	}
	return nil
}

// stale removes an entry that stands for nothing.
func (d *dueHeld) stale() {
	d.due.ledger.tx.Clear(d.entry)
}

// measure takes the room that the item needs, and reports whether it is to be moved. A large dead letter may
// only be the first. The error is one of the store.
func (d *dueHeld) measure(room *dueRoom, first bool) (takes bool, err error) {
	switch {
	case d.h == nil:
		return false, nil
	case room.bytes <= 0:
		d.due.more = true
		return false, nil
	case d.burial == nil:
		room.bytes -= d.size
		return true, nil
	}

	alone := first && room.fits != nil
	if err := d.burial.load(d.h, alone); err != nil {
		return false, d.fail(err)
	}
	size := d.burial.size() + d.size
	switch {
	case d.burial.large && !alone, size > room.bytes && !(alone && room.fits(size)):
		d.due.more = true
		if !d.burial.large { // nor do those that come after it overtake it
			room.bytes = 0
		}
		return false, nil
	}
	room.bytes = max(room.bytes-size, 0) // what exceeds it, fits has taken
	return true, nil
}

// settle moves an item that is due. The error is one of the store.
func (d *dueHeld) settle() error {
	g, h := d.due.ledger, d.h
	switch {
	case h.expired(g.now):
		g.release(h)
		g.expireLent(h)
		return nil
	case d.burial != nil:
		g.release(h)
		g.discard(h)
		d.due.dead.bury(d.burial, h, ReasonMaxDeliver)
		return nil
	}

	g.release(h)
	if h.state == leased {
		settings, err := g.settings()
		if err != nil {
			return err // load has read them
		}
		if until := h.due.Add(settings.BackoffAfter(h.deliveries)); until.After(g.now) {
			h.state, h.due = delayed, until
			g.hold(h)
			d.due.next = earliest(d.due.next, micros(h.fallsDue()))
			return nil
		}
	}
	g.putBack(h)
	d.due.returned = true
	return nil
}

// fail records what cannot be read, so that the item stays. It returns any other error.
func (d *dueHeld) fail(err error) error {
	if !errors.Is(err, ErrCorrupt) {
		return err
	}
	d.due.err, d.h = err, nil
	return nil
}
