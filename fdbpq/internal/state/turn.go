package state

import (
	"cmp"
	"math"
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// turnOf names the items of a group at a priority: they share one turn.
type turnOf struct {
	hash     codec.GroupHash
	priority int64
}

// turn is what Turns.Next must know of these items to choose the count of the next one, as the open
// transaction sees them. The items of a group have consecutive counts, so that groups take turns.
// In a group of weight w, up to w items share each count, and their times order them. The highest
// count is the tail. The next item joins the tail while fewer than w items have that count, and
// otherwise gets a later count.
//
// Each item, ready or held, has a row in the index of its group. Rows are read from the end, and
// only as many as can share the tail. If there may be more, their number is unknown: see uncounted.
//
// A turn is in one of these states:
//
//	new      not loaded, no reads   nothing is known
//	reading  reads                  beginRead has started to read it
//	known    loaded, no reads       there are no rows, or same is exact and not 0
//	vague    loaded, no reads       items that were not read may share the tail, or it is empty
//
// beginRead moves a turn that is new or vague to reading, finishRead from there to known or vague.
// noteKey keeps a loaded turn up to date, which may make it vague.
type turn struct {
	turnOf
	weight int        // highest weight of the items that the transaction pushes; 0 before the first
	reads  *turnReads // set while the turn is being read
	loaded bool       // the fields below are valid

	rows  int64 // number of items, ready and held; near uncounted if not all were read
	ready int64 // number of ready items, by the counter

	// front is the count of the first ready item. It is not raised when that item leaves, so it may
	// be too low afterwards.
	front int64

	tail   int64 // highest count; if same is 0, all items with it have left, and it is too high
	same   int64 // number of items with that count; near uncounted if not all were read
	latest int64 // time of the newest of these, in microseconds
}

// uncounted stands for the number of items that were not all read. noteKey still adds to it and
// subtracts from it. It is twice the most items that a queue can have, so a number below
// uncounted/2 is exact.
const uncounted = 1 << 40

// turnReads is a turn being read.
type turnReads struct {
	most        int                      // bound of the rows in ready, and of those in held
	ready, held kv.Future[[]kv.KeyValue] // the last rows
	first       kv.Future[[]kv.KeyValue] // the first row of a ready item
	length      kv.Future[[]byte]        // how many items are ready
}

// empty reports whether the group has no items. It goes by the rows, because programs that do not
// know groups leave the counter wrong.
func (t *turn) empty() bool { return t.rows == 0 }

// isKnown reports whether the turn need not be read.
func (t *turn) isKnown() bool {
	return t.loaded && (t.empty() || 0 < t.same && t.same < uncounted/2)
}

// beginRead starts to read the turn, unless it is known or being read.
func (t *turn) beginRead(r kv.Reader, l *codec.Layout) {
	if t.isKnown() || t.reads != nil {
		return
	}

	// Up to weight items share a count, so the last weight rows show the whole tail.
	last := kv.RangeOptions{Limit: t.weight, Reverse: true}
	ready := l.GroupRange(codec.KindGroupReady, t.hash, t.priority)
	t.reads = &turnReads{
		most:   t.weight,
		ready:  r.GetRange(ready, last),
		held:   r.GetRange(l.GroupRange(codec.KindGroupHeld, t.hash, t.priority), last),
		first:  r.GetRange(ready, kv.RangeOptions{Limit: 1}),
		length: r.Get(l.GroupReadyKey(t.hash, t.priority)),
	}
}

// finishRead waits for what beginRead started. The error is ErrCorrupt or one of the store.
func (t *turn) finishRead(l *codec.Layout) error {
	reads := t.reads
	if reads == nil {
		return nil
	}

	ready, readyErr := reads.ready.Get()
	held, heldErr := reads.held.Get()
	first, firstErr := reads.first.Get()
	if err := cmp.Or(readyErr, heldErr, firstErr); err != nil {
		return err
	}

	// The tail may have ready items and held ones.
	read := turn{turnOf: t.turnOf, weight: t.weight, loaded: true}
	for _, pair := range slices.Concat(ready, held) {
		id, err := l.ParseGroupItem(pair.Key)
		if err != nil {
			return err
		}
		read.extendTo(&id)
	}

	// If all rows that were read may be of the tail, there may be more of it.
	if read.same >= int64(reads.most) {
		read.same = uncounted
	}

	read.rows = int64(len(ready) + len(held))
	if len(ready) == reads.most || len(held) == reads.most {
		read.rows = uncounted
	}

	if len(first) > 0 {
		id, err := l.ParseGroupItem(first[0].Key)
		if err != nil {
			return err
		}
		read.front = id.Count
	}

	var err error
	if read.ready, err = ReadCounter(reads.length); err == nil {
		*t = read
	}
	return err
}

// extendTo counts an item that is at the tail, or makes it the new tail if its count is higher.
func (t *turn) extendTo(id *codec.ID) {
	switch {
	case t.same == 0 && (t.empty() || id.Count >= t.tail), id.Count > t.tail:
		t.tail, t.same, t.latest = id.Count, 0, math.MinInt64
	case id.Count < t.tail:
		return
	}
	t.same++
	t.latest = max(t.latest, codec.PushedAt(id).UnixMicro())
}

// noteKey records that a key in the index of the group is written or, with -1, removed.
func (t *turn) noteKey(l *codec.Layout, kind string, id *codec.ID, delta int64) {
	if t.finishRead(l) != nil || !t.loaded {
		return
	}

	if delta > 0 {
		t.extendTo(id)
	} else if id.Count == t.tail && t.same > 0 {
		t.same--
	}

	t.rows += delta
	if kind == codec.KindGroupHeld {
		return
	}

	// A first item that leaves does not raise front.
	if delta > 0 && (t.ready == 0 || id.Count < t.front) {
		t.front = id.Count
	}
	t.ready += delta
}
