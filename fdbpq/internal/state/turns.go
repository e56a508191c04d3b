package state

import (
	"errors"
	"math"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Turns finds the counts of pushed items that have a group, in one queue and transaction. Items of
// equal priority are served in the order of their counts. So groups take turns if each item of a
// group gets the next count after the one before it, beginning with the count that is being served:
// this is start-time fair queueing, with that count as the virtual time. Of a group with weight w,
// w items share a count, and their times order them.
//
// Nothing is read with conflict. Two pushes of one group at the same time may get the same count, and
// are in either order, as any two pushes are. Pushes that follow see both.
type Turns struct {
	l       *codec.Layout
	r       kv.Reader
	virtual map[int64]*virtualTime // by priority
	groups  map[turnOf]*turn
}

type turnOf struct {
	hash     codec.GroupHash
	priority int64
}

// virtualTime is the count that is being served at a priority.
type virtualTime struct {
	first  kv.Future[[]kv.KeyValue] // ready item
	served kv.Future[[]byte]        // the row of the priority
	count  int64                    // once known
}

// turn is how far the items of a group reach at a priority.
type turn struct {
	weight int
	lasts  [2]kv.Future[[]kv.KeyValue] // the last of those that are ready, and of those that are held
	first  kv.Future[[]kv.KeyValue]    // that is ready
	ready  kv.Future[[]byte]           // how many are

	front, length int64 // count of the first ready one, and how many are ready
	tail          int64 // highest count
	same          int   // how many have it; 0 if there are none
	latest        int64 // time of these, in microseconds
}

// Want has the turn of a group read, for an item with a weight.
func (t *Turns) Want(hash codec.GroupHash, priority int64, weight int) {
	of := turnOf{hash, priority}
	one := t.groups[of]
	if one == nil {
		one = &turn{}
		if t.groups == nil {
			t.groups, t.virtual = map[turnOf]*turn{}, map[int64]*virtualTime{}
		}
		t.groups[of] = one
	}
	one.weight = max(one.weight, weight)
}

// BeginReads starts to read the turns that are wanted, without conflict.
func (t *Turns) BeginReads(l *codec.Layout, snapshot kv.Reader) {
	t.l, t.r = l, snapshot
	first := kv.RangeOptions{Limit: 1}
	for of, one := range t.groups {
		last := kv.RangeOptions{Limit: one.weight, Reverse: true}
		ready := l.GroupRange(codec.KindGroupReady, of.hash, of.priority)
		one.lasts = [2]kv.Future[[]kv.KeyValue]{
			snapshot.GetRange(ready, last),
			snapshot.GetRange(l.GroupRange(codec.KindGroupHeld, of.hash, of.priority), last),
		}
		one.first = snapshot.GetRange(ready, first)
		one.ready = snapshot.Get(l.GroupReadyKey(of.hash, of.priority))

		if t.virtual[of.priority] == nil {
			t.virtual[of.priority] = &virtualTime{
				first:  snapshot.GetRange(l.PriorityRange(of.priority), first),
				served: snapshot.Get(l.TurnKey(of.priority)),
			}
		}
	}
}

// Load waits for what BeginReads started. next has the next counts without groups, and corrupt gets
// an error for each priority where something cannot be read. The error is one of the store.
func (t *Turns) Load(next map[int64]int64, corrupt map[int64]error) error {
	note := func(priority int64, err error) error {
		if errors.Is(err, codec.ErrCorrupt) {
			corrupt[priority] = err
		}
		return codec.UnlessCorrupt(err)
	}
	for priority, v := range t.virtual {
		if err := note(priority, v.load(t.l, next[priority])); err != nil {
			return err
		}
	}
	for of, one := range t.groups {
		if err := note(of.priority, one.load(t.l)); err != nil {
			return err
		}
		one.endBefore(next[of.priority])
	}
	return nil
}

// load finds out which count is being served. The first ready item alone does not say: it may have
// come back, or be of a group that is passed over. Then a group that comes new would be served alone
// until it has caught up. If nothing is ready, the next count is served next.
func (v *virtualTime) load(l *codec.Layout, next int64) error {
	first, err := v.first.Get()
	if err != nil {
		return err
	}
	served, err := v.served.Get()
	if err != nil {
		return err
	}
	if len(first) == 0 {
		v.count = next
		return nil
	}

	id, err := l.ParseItem(first[0].Key)
	if err != nil {
		return err
	}
	v.count = id.Count
	if count, found := codec.ParseTurn(served); found {
		v.count = max(v.count, count)
	}
	return nil
}

func (one *turn) load(l *codec.Layout) error {
	for _, last := range one.lasts {
		pairs, err := last.Get()
		if err != nil {
			return err
		}
		for _, pair := range pairs {
			id, err := l.ParseGroupItem(pair.Key)
			if err != nil {
				return err
			}
			one.reach(&id)
		}
	}

	first, err := one.first.Get()
	if err != nil || len(first) == 0 {
		return err
	}
	id, err := l.ParseGroupItem(first[0].Key)
	if err != nil {
		return err
	}
	one.front = id.Count
	one.length, err = ReadCounter(one.ready)
	return err
}

// reach includes an item in the tail.
func (one *turn) reach(id *codec.ID) {
	if one.same > 0 && id.Count < one.tail {
		return
	}
	if one.same == 0 || id.Count > one.tail {
		one.tail, one.same, one.latest = id.Count, 0, math.MinInt64
	}
	one.same++
	one.latest = max(one.latest, codec.PushedAt(id).UnixMicro())
}

// endBefore corrects a tail that items in the queue cannot have: all of them come before next. Its keys
// are of items that a program took which does not know groups, and counts have begun anew since.
func (one *turn) endBefore(next int64) {
	if one.same > 0 && one.tail >= next {
		one.tail, one.same, one.length = next-1, math.MaxInt32, 0
	}
}

// Next returns the count of the next item of a group, and the time that its id is to have.
func (t *Turns) Next(hash codec.GroupHash, priority int64, weight int, now time.Time) (count int64, at time.Time) {
	one := t.groups[turnOf{hash, priority}]
	start := t.virtual[priority].count
	if one.length > 0 {
		// What has been pushed at several places at once may share counts. So the group has not as many
		// turns as there are counts up to its tail, but as many as its items fill.
		if turns := one.length / int64(weight); one.front <= math.MaxInt64-turns {
			start = max(start, one.front+turns)
		}
	}

	switch after := time.UnixMicro(one.latest + 1); {
	case one.same == 0 || one.tail < start:
		return start, now
	case one.same < weight && one.latest < codec.LastTime-1:
		if after.After(now) {
			return one.tail, after
		}
		return one.tail, now
	default:
		return codec.Following(one.tail), now
	}
}

// Pushed records the item that has got the count.
func (t *Turns) Pushed(id *codec.ID, ready bool) {
	one := t.groups[turnOf{codec.GroupIn(id), id.Priority}]
	one.reach(id)
	if !ready {
		return
	}
	if one.length == 0 {
		one.front = id.Count
	}
	one.length++
}

// Served records which counts the pops of a transaction serve from the front, for Turns.
type Served struct {
	g     *Ledger
	reads map[int64]*servedRead // by priority
}

type servedRead struct {
	ready, row kv.Future[[]byte] // how many items are ready, and what is recorded
	raise      bool
	count      int64 // highest
}

// Begin starts to read what is recorded, without conflict, the first time it is called for an item
// with a group at this priority.
func (s *Served) Begin(g *Ledger, id *codec.ID) {
	if codec.GroupIn(id) <= codec.NoGroup || s.reads[id.Priority] != nil {
		return
	}
	if s.reads == nil {
		s.g, s.reads = g, map[int64]*servedRead{}
	}
	r := g.Tx.Snapshot()
	s.reads[id.Priority] = &servedRead{ready: r.Get(g.L.CounterKey(id.Priority)), row: r.Get(g.L.TurnKey(id.Priority))}
}

// Note records that an item was taken, perhaps for the first time.
func (s *Served) Note(id *codec.ID, first bool) {
	read := s.reads[id.Priority]
	if read == nil || !first || codec.GroupIn(id) <= codec.NoGroup {
		return
	}
	if !read.raise || id.Count > read.count {
		read.raise, read.count = true, id.Count
	}
}

// Write writes what has changed, before the ledger's Flush. Nothing is left where no item is. The
// error is one of the store.
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

		count, found := codec.ParseTurn(row)
		switch key := s.g.L.TurnKey(priority); {
		case ready+s.g.deltas[priority] <= 0:
			if row != nil {
				s.g.Tx.Clear(key)
			}
		case read.raise && (!found || count < read.count):
			s.g.Tx.Set(key, codec.EncodeTurn(read.count))
		}
	}
	return nil
}
