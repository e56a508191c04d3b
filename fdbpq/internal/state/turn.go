package state

import (
	"math"
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// turnOf names the items of a group at a priority.
type turnOf struct {
	hash     codec.GroupHash
	priority int64
}

// turn is how far these items reach, as the open transaction sees it. The next item of the group is
// pushed behind the tail. A turn is in one of these states:
//
//	new      not loaded, no reads   nothing is known
//	reading  reads                  beginRead has started to read it
//	known    loaded, no reads       there are no rows, or same is exact and not 0
//	vague    loaded, no reads       there were too many rows to count, or those at the tail left
//
// beginRead moves a turn that is new or vague to reading, finishRead from there to known or vague.
// noteKey keeps a loaded turn up to date, which may make it vague.
type turn struct {
	turnOf
	weight int // highest weight of the items that the transaction pushes; 0 before the first
	reads  *turnReads
	loaded bool // the fields below are right

	rows   int64 // keys in the index of the group; about uncounted or more if not all were read
	ready  int64 // items that are ready, by the counter
	front  int64 // count of the first ready item or, once that has left, of an earlier one
	tail   int64 // highest count or, if same is 0, more than that
	same   int64 // items with that count; as with rows
	latest int64 // time of the newest of these, in microseconds
}

// uncounted is twice as much as there can be. It stands for items that were not all read.
const uncounted = 1 << 40

// turnReads is a turn being read.
type turnReads struct {
	most        int // of the last items that are read
	ready, held kv.Future[[]kv.KeyValue]
	first       kv.Future[[]kv.KeyValue] // that is ready
	length      kv.Future[[]byte]        // how many are ready
}

// empty goes by the rows, not by the counter, which programs that do not know groups leave wrong.
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

	ready, err := reads.ready.Get()
	if err != nil {
		return err
	}

	held, err := reads.held.Get()
	if err != nil {
		return err
	}

	first, err := reads.first.Get()
	if err != nil {
		return err
	}

	// The tail is the last items of both, as many as share a count.
	read := turn{turnOf: t.turnOf, weight: t.weight, loaded: true}
	for _, pair := range slices.Concat(ready, held) {
		id, err := l.ParseGroupItem(pair.Key)
		if err != nil {
			return err
		}
		read.extendTo(&id)
	}

	// Rows beyond those that were read may belong to the tail as well.
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

	if read.ready, err = ReadCounter(reads.length); err != nil {
		return err
	}

	*t = read
	return nil
}

// extendTo includes an item in the tail.
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

	// front may fall behind when the first item leaves.
	if delta > 0 && (t.ready == 0 || id.Count < t.front) {
		t.front = id.Count
	}
	t.ready += delta
}
