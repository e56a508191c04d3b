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

// turns returns the turns that are known. Without facts they are only of this transaction.
func (g *Ledger) turns() *map[turnOf]*turn {
	if g.facts != nil {
		return &g.facts.turns
	}
	return &g.own
}

// turnOf returns the turn of a group at a priority. It may have to be read.
func (g *Ledger) turnOf(hash codec.GroupHash, priority int64) *turn {
	turns, of := g.turns(), turnOf{hash, priority}
	if *turns == nil {
		*turns = map[turnOf]*turn{}
	}

	t := (*turns)[of]
	if t == nil {
		t = &turn{turnOf: of}
		(*turns)[of] = t
		if g.facts != nil {
			g.facts.known.turns++
		}
	}

	return t
}

// empty goes by the rows, not by the counter, which programs that do not know groups leave wrong.
func (t *turn) empty() bool { return t.rows == 0 }

// isKnown reports whether the turn need not be read.
func (t *turn) isKnown() bool {
	return t.loaded && (t.empty() || 0 < t.same && t.same < uncounted/2)
}

// beginRead starts to read the turn, unless it is known or being read.
func (t *turn) beginRead(g *Ledger) {
	if t.isKnown() || t.reads != nil {
		return
	}

	// Up to weight items share a count, so the last weight rows show the whole tail.
	r, last := g.Tx.Snapshot(), kv.RangeOptions{Limit: t.weight, Reverse: true}
	ready := g.L.GroupRange(codec.KindGroupReady, t.hash, t.priority)
	t.reads = &turnReads{
		most:   t.weight,
		ready:  r.GetRange(ready, last),
		held:   r.GetRange(g.L.GroupRange(codec.KindGroupHeld, t.hash, t.priority), last),
		first:  r.GetRange(ready, kv.RangeOptions{Limit: 1}),
		length: r.Get(g.L.GroupReadyKey(t.hash, t.priority)),
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

// Served records, for Turns, up to which counts the pops of a transaction serve groups from the
// front.
type Served struct {
	g     *Ledger
	reads map[int64]*servedRead // by priority
}

type servedRead struct {
	ready, row kv.Future[[]byte] // how many items are ready, and which count is recorded
	count      int64             // highest that was served
}

// Begin starts to read what is recorded, without conflict, the first time that it is called for an
// item with a group at this priority.
func (s *Served) Begin(g *Ledger, id *codec.ID) {
	if codec.GroupIn(id) <= codec.NoGroup || s.reads[id.Priority] != nil {
		return
	}
	if s.reads == nil {
		s.g, s.reads = g, map[int64]*servedRead{}
	}
	r := g.Tx.Snapshot()
	ready, row := r.Get(g.L.CounterKey(id.Priority)), r.Get(g.L.TurnKey(id.Priority))
	s.reads[id.Priority] = &servedRead{ready, row, math.MinInt64}
}

// Note records that an item was taken.
func (s *Served) Note(id *codec.ID) {
	if read := s.reads[id.Priority]; read != nil && codec.GroupIn(id) > codec.NoGroup {
		read.count = max(read.count, id.Count)
	}
}

// Write writes what has changed, before the ledger's Flush. The error is one of the store.
func (s *Served) Write() error {
	for priority, read := range s.reads {
		ready, err := ReadCounter(read.ready)
		if codec.UnlessCorrupt(err) != nil {
			return err
		}

		row, err := read.row.Get()
		if err != nil {
			return err
		}

		switch key := s.g.L.TurnKey(priority); {
		case ready+s.g.readyAt[priority] <= 0: // a priority without items leaves nothing behind
			if row != nil {
				s.g.Tx.Clear(key)
			}
		case read.count > codec.ParseCount(row, math.MinInt64):
			s.g.Tx.Set(key, codec.EncodeCount(read.count))
		}
	}

	return nil
}
