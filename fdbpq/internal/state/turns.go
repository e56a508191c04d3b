package state

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Turns finds the counts of pushed items that have a group, in one queue and transaction. Items of
// equal priority are served in the order of their counts. So groups take turns if each item of a
// group gets the next count after the one before it, beginning behind the count that is being served:
// this is start-time fair queueing, with that count as the virtual time. Of a group with weight w,
// w items share a count, and their times order them.
//
// Nothing is read with conflict. Two pushes of one group at the same time may get the same count, and
// are in either order, as any two pushes are. Pushes that follow see both.
type Turns struct {
	g       *Ledger
	wanted  []*turn
	virtual map[int64]*virtualTime // by priority
}

// turnsAtOnce is of how many groups the turns are read at once, because FoundationDB's client takes
// memory for each read.
const turnsAtOnce = 256

// uncounted is twice as much as there can be. It stands for items that were not all read.
const uncounted = 1 << 40

// virtualTime is the count that is being served at a priority. The first ready item alone does not say:
// it may have come back, or be of a group that is passed over. Then a group that comes new would be
// served alone until it has caught up. So pops record how far they have served.
type virtualTime struct {
	first  kv.Future[[]kv.KeyValue] // ready item
	served kv.Future[[]byte]        // what is recorded
	count  int64                    // once known
}

// turns returns the turns that are known. Without facts they are only from this transaction.
func (g *Ledger) turns() *map[turnOf]*turn {
	if g.facts != nil {
		return &g.facts.turns
	}
	return &g.own
}

// turnOf returns the turn of a group at a priority, which may have to be read.
func (g *Ledger) turnOf(hash codec.GroupHash, priority int64) *turn {
	turns, of := g.turns(), turnOf{hash, priority}
	if *turns == nil {
		*turns = map[turnOf]*turn{}
	}
	one := (*turns)[of]
	if one == nil {
		one = &turn{turnOf: of}
		(*turns)[of] = one
		if g.facts != nil {
			g.facts.known.turns++
		}
	}
	return one
}

// Want has the turn of a group read, for an item with a weight.
func (t *Turns) Want(g *Ledger, hash codec.GroupHash, priority int64, weight int) {
	one := g.turnOf(hash, priority)
	if one.weight == 0 {
		t.g, t.wanted = g, append(t.wanted, one)
	}
	one.weight = max(one.weight, weight)
}

// BeginReads starts to read the turns that are wanted, without conflict. If they are too many, it waits
// for all but the last, because the transaction may be blind.
func (t *Turns) BeginReads() {
	var before []*turn
	for some := range slices.Chunk(t.wanted, turnsAtOnce) {
		for _, one := range before {
			_ = one.load(t.g.L) // Load returns the error
		}
		t.begin(some)
		before = some
	}
}

func (t *Turns) begin(some []*turn) {
	for _, one := range some {
		one.begin(t.g)
		if t.virtual[one.priority] != nil {
			continue
		}
		if t.virtual == nil {
			t.virtual = map[int64]*virtualTime{}
		}
		r := t.g.Tx.Snapshot()
		t.virtual[one.priority] = &virtualTime{
			first:  r.GetRange(t.g.L.PriorityRange(one.priority), kv.RangeOptions{Limit: 1}),
			served: r.Get(t.g.L.TurnKey(one.priority)),
		}
	}
}

// Load waits for what BeginReads started. next has the next counts without groups, and corrupt gets an
// error for each priority where something cannot be read. The error is one of the store.
func (t *Turns) Load(next map[int64]int64, corrupt map[int64]error) error {
	for _, one := range t.wanted {
		err := cmp.Or(one.load(t.g.L), t.virtual[one.priority].load(t.g.L, next[one.priority]))
		if one.weight, one.reads = 0, nil; errors.Is(err, codec.ErrCorrupt) {
			corrupt[one.priority] = err
		} else if err != nil {
			return err
		}
	}
	return nil
}

// load finds out the count. If nothing is ready, the next count is served next.
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
	// Whatever has begun is closed: if what comes new could still join it, others that come as fast as
	// they are served would keep the rest waiting indefinitely.
	v.count = max(id.Count, codec.Following(codec.ParseCount(served, math.MinInt64)))
	return err
}

// Next returns the count of the next item of a group, and the time that its id is to have. next is
// the count that it would have without a group.
func (t *Turns) Next(hash codec.GroupHash, priority int64, weight int, next int64, now time.Time) (count int64, at time.Time) {
	one := t.g.turnOf(hash, priority)
	if !one.empty() && one.tail >= next { // of items that a program took which does not know groups
		return next, now
	}

	start := t.virtual[priority].count
	if one.ready > 0 {
		// What has been pushed at several places at once may share counts. So the group has not as many
		// turns as there are counts up to its tail, but as many as its items fill.
		if turns := one.ready / int64(weight); one.front <= math.MaxInt64-turns {
			start = max(start, one.front+turns)
		}
	}

	switch after := time.UnixMicro(one.latest + 1); {
	case one.empty() || one.tail < start:
		return start, now
	case 0 < one.same && one.same < int64(weight) && one.latest < codec.LastTime-1:
		if after.After(now) {
			return one.tail, after
		}
		return one.tail, now
	default:
		return codec.Following(one.tail), now
	}
}

// empty does not go by the counter: programs that do not know groups leave that wrong.
func (t *turn) empty() bool { return t.rows == 0 }

// known reports whether the turn need not be read.
func (t *turn) known() bool { return t.loaded && (t.empty() || 0 < t.same && t.same < uncounted/2) }

// begin starts to read the turn, unless it is known or being read.
func (t *turn) begin(g *Ledger) {
	if t.known() || t.reads != nil {
		return
	}
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

// load waits for what begin started.
func (t *turn) load(l *codec.Layout) error {
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

	read := turn{turnOf: t.turnOf, weight: t.weight, loaded: true}
	for _, pair := range slices.Concat(ready, held) {
		id, err := l.ParseGroupItem(pair.Key)
		if err != nil {
			return err
		}
		read.reach(&id)
	}
	if read.same >= int64(reads.most) {
		read.same = uncounted
	}
	if read.rows = int64(len(ready) + len(held)); len(ready) == reads.most || len(held) == reads.most {
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

// reach includes an item in the tail.
func (t *turn) reach(id *codec.ID) {
	switch {
	case t.same == 0 && (t.empty() || id.Count >= t.tail), id.Count > t.tail:
		t.tail, t.same, t.latest = id.Count, 0, math.MinInt64
	case id.Count < t.tail:
		return
	}
	t.same++
	t.latest = max(t.latest, codec.PushedAt(id).UnixMicro())
}

// note records that a key in the index of the group is written or removed.
func (t *turn) note(l *codec.Layout, kind string, id *codec.ID, delta int64) {
	if t.load(l) != nil || !t.loaded {
		return
	}

	if delta > 0 {
		t.reach(id)
	} else if id.Count == t.tail && t.same > 0 {
		t.same--
	}
	t.rows += delta
	if kind == codec.KindGroupHeld {
		return
	}
	if delta > 0 && (t.ready == 0 || id.Count < t.front) {
		t.front = id.Count
	}
	t.ready += delta
}

// Served records which counts the pops of a transaction serve from the front, for Turns.
type Served struct {
	g     *Ledger
	reads map[int64]*servedRead // by priority
}

type servedRead struct {
	ready, row kv.Future[[]byte] // how many items are ready, and what is recorded
	count      int64             // highest that was served
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
	s.reads[id.Priority] = &servedRead{r.Get(g.L.CounterKey(id.Priority)), r.Get(g.L.TurnKey(id.Priority)), math.MinInt64}
}

// Note records that an item was taken.
func (s *Served) Note(id *codec.ID) {
	if read := s.reads[id.Priority]; read != nil && codec.GroupIn(id) > codec.NoGroup {
		read.count = max(read.count, id.Count)
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

		switch key := s.g.L.TurnKey(priority); {
		case ready+s.g.deltas[priority] <= 0:
			if row != nil {
				s.g.Tx.Clear(key)
			}
		case read.count > codec.ParseCount(row, math.MinInt64):
			s.g.Tx.Set(key, codec.EncodeCount(read.count))
		}
	}
	return nil
}
