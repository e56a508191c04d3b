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

// Turns finds the counts of pushed items that have a group, in one queue and transaction.
//
// Items of equal priority are served in the order of their counts. So groups take turns if each
// item gets the next count after the one before it in its group, and a group that comes new begins
// behind the count that is being served. This is start-time fair queueing, with that count as the
// virtual time. In a group with weight w, w items share a count, and their times order them.
//
// Nothing is read with conflict. Two pushes of one group at the same time may get the same count;
// they are in either order, as any two pushes are. Later pushes see both.
type Turns struct {
	g       *Ledger
	wanted  []*turn
	virtual map[int64]*virtualTime // by priority
}

// turnsAtOnce is of how many groups the turns are read at once: FoundationDB's client takes memory
// for each read.
const turnsAtOnce = 256

// virtualTime is the count that is being served at a priority. The first ready item alone does not
// say: it may have come back, or belong to a group that is passed over. A group that comes new
// would then be served alone until it has caught up. So pops record how far they have served.
type virtualTime struct {
	first  kv.Future[[]kv.KeyValue] // ready item
	served kv.Future[[]byte]        // what pops have recorded
	count  int64                    // set by finishRead
}

// Want has the turn of a group read, for an item with a weight.
func (t *Turns) Want(g *Ledger, hash codec.GroupHash, priority int64, weight int) {
	of := g.turnOf(hash, priority)
	if of.weight == 0 {
		t.g, t.wanted = g, append(t.wanted, of)
	}
	of.weight = max(of.weight, weight)
}

// BeginReads starts to read the turns that are wanted, without conflict. If there are too many to
// read at once, it waits for all but the last: a blind transaction cannot read them after its first
// write.
func (t *Turns) BeginReads() {
	var before []*turn
	for some := range slices.Chunk(t.wanted, turnsAtOnce) {
		for _, of := range before {
			_ = of.finishRead(t.g.L) // Load returns the error
		}
		for _, of := range some {
			of.beginRead(t.g.Tx.Snapshot(), t.g.L)
			t.beginVirtual(of.priority)
		}
		before = some
	}
}

// beginVirtual starts to read the virtual time at a priority, unless that has begun.
func (t *Turns) beginVirtual(priority int64) {
	if t.virtual[priority] != nil {
		return
	}
	if t.virtual == nil {
		t.virtual = map[int64]*virtualTime{}
	}
	r := t.g.Tx.Snapshot()
	t.virtual[priority] = &virtualTime{
		first:  r.GetRange(t.g.L.PriorityRange(priority), kv.RangeOptions{Limit: 1}),
		served: r.Get(t.g.L.TurnKey(priority)),
	}
}

// Load waits for what BeginReads started. next has the next counts without groups, by priority.
// corrupt gets an error for each priority where something cannot be read. The error is one of the
// store.
func (t *Turns) Load(next map[int64]int64, corrupt map[int64]error) error {
	for _, of := range t.wanted {
		virtual := t.virtual[of.priority]
		err := cmp.Or(of.finishRead(t.g.L), virtual.finishRead(t.g.L, next[of.priority]))

		// The next transaction collects weights anew.
		of.weight, of.reads = 0, nil
		if errors.Is(err, codec.ErrCorrupt) {
			corrupt[of.priority] = err
		} else if err != nil {
			return err
		}
	}
	return nil
}

// finishRead finds out the count. next is the next count without groups.
func (v *virtualTime) finishRead(l *codec.Layout, next int64) error {
	first, firstErr := v.first.Get()
	served, servedErr := v.served.Get()
	if err := cmp.Or(firstErr, servedErr); err != nil {
		return err
	}

	if len(first) == 0 { // then the next count is served next
		v.count = next
		return nil
	}

	// A count of which an item was served is closed. If new groups could still join it, and came as
	// fast as they are served, the rest would wait indefinitely.
	id, err := l.ParseItem(first[0].Key)
	v.count = max(id.Count, codec.Following(codec.ParseCount(served, math.MinInt64)))
	return err
}

// Next returns the count of the next item of a group, and the time for its id. next is the count
// that it would get without a group.
func (t *Turns) Next(
	hash codec.GroupHash, priority int64, weight int, next int64, now time.Time,
) (count int64, at time.Time) {
	of := t.g.turnOf(hash, priority)
	if !of.empty() && of.tail >= next { // a program that does not know groups took the items there
		return next, now
	}

	// Pushes at several places at once may share counts. So the group has as many turns as its
	// items fill, which may be fewer than the counts up to its tail.
	start := t.virtual[priority].count
	if of.ready > 0 {
		if turns := of.ready / int64(weight); of.front <= math.MaxInt64-turns {
			start = max(start, of.front+turns)
		}
	}

	if of.empty() || of.tail < start {
		return start, now
	}

	if full := of.same == 0 || of.same >= int64(weight); full || of.latest >= codec.LastTime-1 {
		return codec.Following(of.tail), now
	}

	// The item shares the turn at the tail, and comes last in it.
	if after := time.UnixMicro(of.latest + 1); after.After(now) {
		return of.tail, after
	}
	return of.tail, now
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
//
// The rows are read without conflict, so transactions that run at the same time may overwrite or
// remove them. That is safe: a row only decides where a group that comes new begins, so a wrong one
// costs some fairness. The order within a group goes by its tail.
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
