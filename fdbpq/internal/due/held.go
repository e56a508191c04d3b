package due

import (
	"bytes"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects/trail"
)

// dueHeld is a held item that has fallen due, or a ready one that has expired.
type dueHeld struct {
	dueRecord
	due   *Due
	id    codec.ID
	ready bool

	read   kv.Future[[]byte] // nil for a ready item, which removeExpired reads
	h      *codec.Record     // nil if nothing is due here after all
	burial *Burial           // if the item has had its last delivery
	size   int               // about how many bytes moving or removing it takes

	early bool              // the entry is not that of its record
	join  *state.JoinRead   // of a delayed item that may be a joiner
	fires *codec.JoinCounts // the joiner need not wait any more
	rest  state.ItemRead    // of such a joiner
}

// maxReturn is the most items that a step of returnHeld reads: many small items may be followed by
// large ones.
const maxReturn = 512

// returnHeld returns held items to their old places, or holds or buries them as their settings say,
// and removes items that have expired, as far as there is room. It reads few first, and never more
// than there can be room for.
func returnHeld(all []*dueHeld, budget *Budget) error {
	// Everything is read before the first write: a store may have to look through all that a
	// transaction has written for each read that follows.
	var moves []*dueHeld
	step := firstReturn
	for len(all) > 0 && budget.Bytes > 0 {
		some := all[:min(step, len(all), budget.Bytes/state.RestoreOverhead+1)]
		all, step = all[len(some):], min(step*returnGrowth, maxReturn)
		for _, d := range some {
			if !d.ready {
				d.read = d.due.Ledger.Tx.Get(d.key)
			}
		}

		if err := state.Each(some, (*dueHeld).finishRead); err != nil {
			return err
		}
		if err := state.Each(some, (*dueHeld).beginFiring); err != nil {
			return err
		}

		for _, d := range some {
			fits, err := d.spend(budget, len(moves) == 0)
			if err != nil {
				return err
			}
			if fits {
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

// removeExpired removes the ready items among the due ones. The error is one of the store.
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

// finishRead waits for the item, and sets h if it is due. If the item has had its last delivery, it
// starts to read what burying it takes. The error is one of the store.
func (d *dueHeld) finishRead() error {
	g := d.due.Ledger
	if d.ready {
		expires, err := g.L.DueTime(d.entry)
		lasting := codec.Lasting{Expires: expires, Unique: string(d.says)}
		d.h = &codec.Record{ID: d.id, History: codec.History{Lasting: lasting}}
		d.size = state.ExpiredSize(g.L, &d.id, string(d.says))
		if codec.Must(&d.id) {
			g.BeginDelete(&d.id)
		}
		return err
	}

	encoded, err := d.read.Get()
	if err != nil {
		return err
	}

	if encoded == nil { // this transaction has settled it, or the entry has no key
		g.Tx.Clear(d.entry)
		return nil
	}

	// The value moves with the record.
	d.size = len(encoded) + state.RestoreOverhead + g.L.IndexSizeOf(&d.id)
	h, err := codec.ParseRecord(&d.id, encoded)
	if err != nil {
		d.due.Err = err
		return nil
	}

	// The record may be of a later lease or delay, which has an entry of its own. A joiner may have
	// others besides.
	d.early = !bytes.Equal(g.L.DueKey(h.FallsDue(), d.key), d.entry)
	if codec.Must(&d.id) && h.State == codec.Delayed {
		d.join = g.BeginJoin(&d.id)
	} else if d.early {
		g.Tx.Clear(d.entry)
		return nil
	}

	d.h = h

	// An expired item is removed; a delayed one comes back. Neither needs more.
	if h.Expired(g.Now) {
		g.BeginDelete(&d.id)
		d.size += g.ForgetSize(h)
		return nil
	}

	if h.State != codec.Leased {
		return nil
	}

	settings, err := g.Settings()
	if err != nil {
		return d.noteUnreadable(err)
	}

	if settings.Exhausted(h.Deliveries) {
		d.burial = d.due.Outgoing.BeginBurial(g, h, settings)
		d.size += g.ForgetSize(h)
	}
	return nil
}

// spend reports whether the item can move, and charges it. A large dead letter can
// only be the first to move. The error is one of the store.
func (d *dueHeld) spend(budget *Budget, first bool) (fits bool, err error) {
	if d.h != nil && d.h.Expired(d.due.Ledger.Now) {
		if err := d.due.Ledger.Understands(d.h); err != nil {
			return false, d.noteUnreadable(err)
		}
	}

	switch {
	case d.h == nil:
		return false, nil
	case d.ready:
		if budget.Expired <= 0 {
			d.due.More = true
			return false, nil
		}

		budget.Expired -= d.size
		return true, nil
	case budget.Bytes <= 0:
		d.due.More = true
		return false, nil
	case d.join != nil:
		if err := d.lookAtJoin(); err != nil {
			return false, d.noteUnreadable(err)
		}
	}

	if d.burial == nil {
		budget.Bytes -= d.size
		return d.h != nil, nil
	}

	// The rest are dead letters, whose size only reading them shows.
	mayBeLarge := first && budget.Fits != nil
	if err := d.burial.Load(d.h, mayBeLarge); err != nil {
		return false, d.noteUnreadable(err)
	}

	size := d.burial.Size() + d.size
	unread := d.burial.Large && !mayBeLarge
	if unread || size > budget.Bytes && !(mayBeLarge && budget.Fits(size)) {
		d.due.More = true
		if !d.burial.Large { // smaller items behind it must not overtake it
			budget.Bytes = 0
		}
		return false, nil
	}

	budget.Bytes = max(budget.Bytes-size, 0) // Fits has reserved what exceeds it
	return true, nil
}

// beginFiring finds out whether a joiner has to wait any longer. If not, it starts to read all of
// it. The error is one of the store.
func (d *dueHeld) beginFiring() error {
	if d.h == nil || d.join == nil {
		return nil
	}
	g := d.due.Ledger
	counts, waits, err := d.join.Finish()
	if err != nil {
		return d.noteUnreadable(err)
	}
	if waits && (counts[codec.JoinOpen] <= 0 || !d.early) {
		d.rest = state.BeginItem(g.L, g.Tx.Snapshot(), &d.id, state.Beginning)
		d.fires = &counts
	}
	return nil
}

// lookAtJoin reads a joiner that has not to wait any longer. The error is ErrCorrupt or one of the
// store.
func (d *dueHeld) lookAtJoin() error {
	g := d.due.Ledger
	fired := d.join.Fired()
	if d.fires != nil && !fired {
		if err := d.rest.Load(g.Tx.Snapshot(), g.L, d.h.Value, true); err != nil {
			return err
		}
		d.size += g.L.PushSize(&d.rest.Item.Message, false) // it is written anew
		d.join.Fire(g, d.fires)
		return nil
	}
	d.fires = nil

	// A mark goes, unless another transaction has just left another one here.
	if d.early || fired {
		g.Tx.CompareAndClear(d.entry, d.says)
		d.h = nil
	}
	return nil
}

// move moves an item that is due. The error is one of the store.
func (d *dueHeld) move() error {
	g, h := d.due.Ledger, d.h
	if d.fires != nil {
		g.FireJoin(h, &d.rest, d.fires)
		g.Tx.Clear(d.entry)
		d.due.Returned = true
		return nil
	}

	g.Unhold(h)
	last := h.Attempt(trail.RanOut, h.Due, "")
	if h.State == codec.Leased {
		g.SideEffects.RanOut++
	}
	switch {
	case h.Expired(g.Now):
		g.DeleteExpired(h)
		return nil
	case d.burial != nil:
		g.Delete(h, codec.MemberDead)
		d.due.Outgoing.Bury(d.burial, h, codec.ReasonMaxDeliver, &last)
		return nil
	}

	// A lease that has run out counts as a failure, so a backoff may hold the item back.
	if h.State == codec.Leased {
		g.NoteAttempt(&h.ID, last)
		settings, err := g.Settings()
		if err != nil {
			return err // not ErrCorrupt: finishRead has read them
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

// noteUnreadable records an ErrCorrupt, so that the item stays, and returns any other error.
func (d *dueHeld) noteUnreadable(err error) error {
	if err = d.due.noteUnreadable(err); err == nil {
		d.h = nil
	}
	return err
}
