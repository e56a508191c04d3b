package due

import (
	"bytes"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// dueHeld is a held item that has fallen due, or a ready one that has expired.
type dueHeld struct {
	dueRecord
	due   *Due
	id    codec.ID
	ready bool

	read   kv.Future[[]byte] // nil for a ready one: see removeExpired
	h      *codec.Record     // nil if nothing is due here after all
	burial *Burial           // if the item has had its last delivery
	size   int               // of what moves, or removing it takes, about
}

// maxReturn is the most items that a step of returnHeld reads: small items may come before many
// large ones.
const maxReturn = 512

// returnHeld returns held items to their old places, or holds or buries them as their settings say,
// and removes those that have expired, until that takes about as many bytes as there is room for.
// It reads few first, and never more than there can be room for.
func returnHeld(all []*dueHeld, room *Room) error {
	// All is read before the first write: a store may have to look through all that a transaction
	// has written for each read that follows.
	var moves []*dueHeld
	for next := firstReturn; len(all) > 0 && room.Bytes > 0; next = min(next*returnGrowth, maxReturn) {
		some := all[:min(next, len(all), room.Bytes/state.RestoreOverhead+1)]
		all = all[len(some):]
		for _, d := range some {
			d.beginRead()
		}
		for _, d := range some {
			if err := d.finishRead(); err != nil {
				return err
			}
		}
		for _, d := range some {
			takes, err := d.takeRoom(room, len(moves) == 0)
			if err != nil {
				return err
			}
			if takes {
				moves = append(moves, d)
			}
		}
	}
	for _, d := range all {
		d.due.More = true
	}

	if err := removeExpired(moves); err != nil {
		return err
	}
	for _, d := range moves {
		if !d.ready {
			if err := d.move(); err != nil {
				return err
			}
		}
		d.due.Done = true
	}
	return nil
}

// removeExpired removes the ready items among those that are due. The error is one of the store.
func removeExpired(moves []*dueHeld) error {
	var byQueue []*state.Expiries
	for _, d := range moves {
		if !d.ready {
			continue
		}
		e := d.due.expired
		if e == nil {
			e = &state.Expiries{G: d.due.Ledger}
			d.due.expired, byQueue = e, append(byQueue, e)
		}
		e.Items = append(e.Items, d.h)
		d.due.Returned = true
	}

	if err := state.RemoveExpired(byQueue...); err != nil {
		return err
	}
	for _, d := range moves {
		if d.ready && len(d.due.expired.Left) > 0 {
			d.due.More = true
		}
	}
	return nil
}

// beginRead starts to read the item.
func (d *dueHeld) beginRead() {
	if !d.ready {
		d.read = d.due.Ledger.Tx.Get(d.key)
	}
}

// finishRead waits for the item, if its record says that it is due, and starts to read what it
// takes to bury it, if it has to be. The error is one of the store.
func (d *dueHeld) finishRead() error {
	g := d.due.Ledger
	if d.ready {
		expires, err := g.L.DueTime(d.entry)
		d.h = &codec.Record{ID: d.id, History: codec.History{Lasting: codec.Lasting{Expires: expires, Unique: string(d.says)}}}
		d.size = state.ExpiredSize(g.L, &d.id, string(d.says))
		return err
	}

	encoded, err := d.read.Get()
	if err != nil {
		return err
	}
	if encoded == nil { // this transaction has settled it, or the entry has no key
		d.dropEntry()
		return nil
	}

	d.size = len(encoded) + state.RestoreOverhead + g.L.GroupSizeOf(&d.id)
	h, err := codec.ParseRecord(&d.id, encoded)
	if err != nil {
		d.due.Err = err
		return nil
	}

	// The record may be of a later lease or delay, which has an entry of its own.
	if !bytes.Equal(g.L.DueKey(h.FallsDue(), d.key), d.entry) {
		d.dropEntry()
		return nil
	}

	d.h = h
	if h.Expired(g.Now) {
		g.BeginSize(&d.id)
	} else if h.State == codec.Leased {
		settings, err := g.Settings()
		if err != nil {
			return d.noteUnreadable(err)
		}
		if settings.Exhausted(h.Deliveries) {
			d.burial = d.due.Dead.BeginBurial(g, &h.ID, settings)
		}
	}
	return nil
}

// dropEntry removes an entry that stands for nothing.
func (d *dueHeld) dropEntry() {
	d.due.Ledger.Tx.Clear(d.entry)
}

// takeRoom takes the room that the item needs, and reports whether it is to be moved. A large dead
// letter may only be the first. The error is one of the store.
func (d *dueHeld) takeRoom(room *Room, first bool) (takes bool, err error) {
	switch {
	case d.h == nil:
		return false, nil
	case d.ready:
		if room.Expired <= 0 {
			d.due.More = true
			return false, nil
		}
		room.Expired -= d.size
		return true, nil
	case room.Bytes <= 0:
		d.due.More = true
		return false, nil
	case d.burial == nil:
		room.Bytes -= d.size
		return true, nil
	}

	alone := first && room.Fits != nil
	if err := d.burial.Load(d.h, alone); err != nil {
		return false, d.noteUnreadable(err)
	}
	size := d.burial.Size() + d.size
	if d.burial.Large && !alone || size > room.Bytes && !(alone && room.Fits(size)) {
		d.due.More = true
		if !d.burial.Large { // nor do those that come after it overtake it
			room.Bytes = 0
		}
		return false, nil
	}
	room.Bytes = max(room.Bytes-size, 0) // Fits has taken what exceeds it
	return true, nil
}

// move moves an item that is due. The error is one of the store.
func (d *dueHeld) move() error {
	g, h := d.due.Ledger, d.h
	g.Unhold(h)
	switch {
	case h.Expired(g.Now):
		g.DeleteExpired(h)
		return nil
	case d.burial != nil:
		g.Delete(h)
		d.due.Dead.Bury(d.burial, h, codec.ReasonMaxDeliver)
		return nil
	}

	if h.State == codec.Leased {
		settings, err := g.Settings()
		if err != nil {
			return err // finishRead has read them
		}
		if until := h.Due.Add(settings.BackoffAfter(h.Deliveries)); until.After(g.Now) {
			h.State, h.Due = codec.Delayed, until
			g.Hold(h)
			d.due.Next = codec.Earliest(d.due.Next, codec.Micros(h.FallsDue()))
			return nil
		}
	}
	g.Requeue(h)
	d.due.Returned = true
	return nil
}

// noteUnreadable records what cannot be read, so that the item stays. It returns any other error.
func (d *dueHeld) noteUnreadable(err error) error {
	if err = d.due.noteUnreadable(err); err == nil {
		d.h = nil
	}
	return err
}
