package state

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Turns finds the places of pushed items that have a group, in one queue and transaction.
//
// Items of equal priority are served in the order of their counts. So groups take turns if each
// item gets the next count after the one before it in its group, and a group that comes new begins
// behind the count that is being served. This is start-time fair queueing, with that count as the
// virtual time.
//
// In a group with weight w, w items share a count, and are numbered from 1 to w. Numbers order the
// items of a count, whatever their groups, so they are part of the virtual time: a group that comes
// new while others are served the n-th items of their turns still has the numbers after n, up to
// its weight. It never has more than w items in a turn, so every turn ends.
//
// Nothing is read with conflict. Two pushes of one group in transactions at the same time may get
// the same place; they are in either order, as any two pushes are, and the group has one item more
// in that turn. Bridges forward such pushes to one of them, whose transactions follow each other.
type Turns struct {
	g       *Ledger
	wanted  []*turn
	virtual map[int64]*virtualTime // by priority
}

// turnsAtOnce is of how many groups the turns are read at once: FoundationDB's client takes memory
// for each read.
const turnsAtOnce = 256

// virtualTime is the place being served at a priority. The first ready item alone does not say: it
// may have come back, or belong to a group that is passed over. A group that comes new would then
// be served alone until it has caught up. So pops record how far they have served.
type virtualTime struct {
	ready kv.Future[[]kv.KeyValue] // the first ready item
	row   kv.Future[[]byte]        // what pops have recorded

	// Set by finishRead.
	first  int64          // count of the first ready item
	served codec.TurnItem // the last that was served
}

// Want has the turn of a group read.
func (t *Turns) Want(g *Ledger, hash codec.GroupHash, priority int64) {
	if of := g.turnOf(hash, priority); !of.wanted {
		of.wanted, of.had = true, !of.empty()
		t.g, t.wanted = g, append(t.wanted, of)
	}
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
		ready: r.GetRange(t.g.L.PriorityRange(codec.KindItem, priority), kv.RangeOptions{Limit: 1}),
		row:   r.Get(t.g.L.TurnKey(priority)),
	}
}

// Load waits for what BeginReads started. next has the next counts without groups, by priority.
// corrupt gets an error for each priority where something cannot be read. The error is one of the
// store.
func (t *Turns) Load(next map[int64]int64, corrupt map[int64]error) error {
	for _, of := range t.wanted {
		virtual := t.virtual[of.priority]
		err := cmp.Or(of.finishRead(t.g.L), virtual.finishRead(t.g.L, next[of.priority]))

		of.wanted, of.readReady, of.readHeld = false, nil, nil // the next transaction begins anew
		if errors.Is(err, codec.ErrCorrupt) {
			corrupt[of.priority] = err
		} else if err != nil {
			return err
		}
	}
	return nil
}

// finishRead waits for the reads. next is the next count without groups.
func (v *virtualTime) finishRead(l *codec.Layout, next int64) error {
	ready, readyErr := v.ready.Get()
	row, rowErr := v.row.Get()
	if err := cmp.Or(readyErr, rowErr); err != nil {
		return err
	}

	if len(ready) == 0 { // then the next count is served next
		v.first, v.served = next, codec.ParseTurnItem(nil)
		return nil
	}

	id, err := l.ParseItem(ready[0].Key)
	v.first, v.served = id.Count, codec.ParseTurnItem(row)
	return err
}

// begin returns the first place that a group of a weight may have. Places up to the last that was
// served are closed. If new groups could still join them, and came as fast as they are served, the
// rest would wait indefinitely. A turn with a count that lies further back is over.
func (v *virtualTime) begin(weight int) codec.TurnItem {
	if v.first > codec.Following(v.served.Count) {
		return codec.TurnItem{Count: v.first, Number: 1}
	}
	return v.served.Next(weight)
}

// Next returns the place of the next item of a group. next is the count that it would get without a
// group.
func (t *Turns) Next(
	hash codec.GroupHash, priority int64, weight int, next int64,
) codec.TurnItem {
	// At the end of int64, times order the items. A program that does not know groups may have
	// taken the items at the tail.
	of := t.g.turnOf(hash, priority)
	if next == math.MaxInt64 || of.goesOn() && of.last.Count >= next {
		return codec.TurnItem{Count: next, Number: 1}
	}

	start := t.virtual[priority].begin(weight)
	if !of.goesOn() {
		return start
	}

	return slices.MaxFunc([]codec.TurnItem{start, of.last.Next(weight)}, codec.TurnItem.Compare)
}

// Served records, for Turns, how far the pops of a transaction serve groups from the front.
type Served struct {
	g     *Ledger
	reads map[int64]*servedRead // by priority
}

type servedRead struct {
	ready, row kv.Future[[]byte] // how many items are ready, and what is recorded
	last       codec.TurnItem    // that was served
}

// Begin starts to read the record, without conflict, the first time that it is called for an item
// with a group at this priority.
func (s *Served) Begin(g *Ledger, id *codec.ID) {
	if codec.GroupIn(id) <= codec.NoGroup || s.reads[id.Priority] != nil {
		return
	}
	if s.reads == nil {
		s.g, s.reads = g, map[int64]*servedRead{}
	}
	r := g.Tx.Snapshot()
	ready, row := r.Get(g.L.CounterKey(id.Priority)), r.Get(g.L.TurnKey(id.Priority))
	s.reads[id.Priority] = &servedRead{ready, row, codec.ParseTurnItem(nil)}
}

// Note records that an item was taken.
func (s *Served) Note(id *codec.ID) {
	if read := s.reads[id.Priority]; read != nil && codec.GroupIn(id) > codec.NoGroup {
		if item := codec.TurnItemOf(id); item.Compare(read.last) > 0 {
			read.last = item
		}
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
		case read.last.Compare(codec.ParseTurnItem(row)) > 0:
			s.g.Tx.Set(key, read.last.Encode())
		}
	}

	return nil
}
