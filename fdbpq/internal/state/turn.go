package state

import (
	"cmp"
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// turnOf names the items of a group at a priority: they share one turn.
type turnOf struct {
	hash     codec.GroupHash
	priority int64
}

// turn is what Turns.Next must know of these items to choose the place of the next one, as the open
// transaction sees them: which place is the last, that no item of the group comes after.
//
// Each item, ready or held, has a row in the index of its group. Only the last rows are read, so
// the number of the rows is usually unknown: see uncounted.
//
// A turn is in one of these states:
//
//	new      not loaded, no reads   nothing is known
//	reading  reads                  beginRead has started to read it
//	known    loaded, no reads       there are no rows, or the last place has an item
//	vague    loaded, no reads       an item has left the last place
//
// beginRead moves a turn that is new or vague to reading, finishRead from there to known. noteAdded
// and noteRemoved keep a loaded turn up to date; the latter may make it vague.
type turn struct {
	turnOf
	wanted bool // by the open transaction, see Turns.Want
	had    bool // items, when it was wanted: see goesOn
	loaded bool // the fields below are valid

	rows int64          // number of items, ready and held; near uncounted if not all were read
	last codec.TurnItem // if vague, it may be too high
	left bool           // the turn is vague

	// The last row of each, while the turn is being read.
	readReady, readHeld kv.Future[[]kv.KeyValue]
}

// uncounted stands for the number of items that were not all read. noteAdded still adds to it, and
// noteRemoved subtracts from it. It is more items than a queue can have, so it never gets to 0.
const uncounted = 1 << 40

// empty reports whether the group has no items.
func (t *turn) empty() bool { return t.rows == 0 }

// goesOn reports whether the next item comes after the last place. A turn that had items when the
// open transaction wanted it goes on even if all of them leave meanwhile: that can only be seen
// where they are counted, and places must not depend on what is known.
func (t *turn) goesOn() bool { return t.had || !t.empty() }

// beginRead starts to read the turn, unless it is known or being read.
func (t *turn) beginRead(r kv.Reader, l *codec.Layout) {
	known := t.loaded && (t.empty() || !t.left)
	if known || t.readReady != nil {
		return
	}

	last := kv.RangeOptions{Limit: 1, Reverse: true}
	t.readReady = r.GetRange(l.GroupRange(codec.KindGroupReady, t.hash, t.priority), last)
	t.readHeld = r.GetRange(l.GroupRange(codec.KindGroupHeld, t.hash, t.priority), last)
}

// finishRead waits for what beginRead started. The error is ErrCorrupt or one of the store.
func (t *turn) finishRead(l *codec.Layout) error {
	if t.readReady == nil {
		return nil
	}

	ready, readyErr := t.readReady.Get()
	held, heldErr := t.readHeld.Get()
	if err := cmp.Or(readyErr, heldErr); err != nil {
		return err
	}

	read := turn{turnOf: t.turnOf, wanted: t.wanted, loaded: true}
	for _, pair := range slices.Concat(ready, held) {
		id, err := l.ParseGroupItem(pair.Key)
		if err != nil {
			return err
		}
		read.extendTo(&id)
		read.rows = uncounted
	}

	*t = read
	return nil
}

// extendTo notes an item, which may be the last.
func (t *turn) extendTo(id *codec.ID) {
	if item := codec.TurnItemOf(id); t.empty() || item.Compare(t.last) >= 0 {
		t.last, t.left = item, false
	}
}

// noteAdded records that an item comes into the index of the group.
func (t *turn) noteAdded(l *codec.Layout, id *codec.ID) {
	if t.load(l) {
		t.extendTo(id)
		t.rows++
	}
}

// noteRemoved records that an item leaves the index of the group.
func (t *turn) noteRemoved(l *codec.Layout, id *codec.ID) {
	if t.load(l) {
		t.left = t.left || codec.TurnItemOf(id) == t.last
		t.rows--
	}
}

// load waits for a turn that is being read, and reports whether there is one to keep up to date.
func (t *turn) load(l *codec.Layout) bool { return t != nil && t.finishRead(l) == nil && t.loaded }
