package state

import (
	"math"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// virtualTime is the count that is being served at a priority, as the open transaction sees it. The
// first ready item alone does not say: it may have come back, or be of a group that is passed over.
// Then a group that comes new would be served alone until it has caught up. So pops record the
// highest count that they have served.
type virtualTime struct {
	first  kv.Future[int64] // count of the first ready item, or noneReady; nil if that is not known
	left   bool             // that item has left, and first is to be read again
	served kv.Future[int64] // what is recorded, or noneServed; nil if that is not known
}

// These stand for no item, and for no record.
const (
	noneReady  = math.MaxInt64
	noneServed = math.MinInt64
)

// begin starts to read what is not known, without conflict.
func (v *virtualTime) begin(g *Ledger, priority int64) {
	v.beginServed(g, priority)
	if v.first != nil && !v.left {
		return
	}
	v.left = false
	first := g.Tx.Snapshot().GetRange(g.L.PriorityRange(priority), kv.RangeOptions{Limit: 1})
	v.first = later[int64](func() (int64, error) {
		pairs, err := first.Get()
		if err != nil || len(pairs) == 0 {
			return noneReady, err
		}
		id, err := g.L.ParseItem(pairs[0].Key)
		return id.Count, err
	})
}

func (v *virtualTime) beginServed(g *Ledger, priority int64) {
	if v.served != nil {
		return
	}
	row := g.Tx.Snapshot().Get(g.L.TurnKey(priority))
	v.served = later[int64](func() (int64, error) {
		value, err := row.Get()
		if count, found := codec.ParseTurn(value); found {
			return count, err
		}
		return noneServed, err
	})
}

// load waits for what begin started.
func (v *virtualTime) load() error {
	first, err := v.first.Get()
	if err != nil {
		v.first = nil
		return err
	}
	served, err := v.served.Get()
	v.first, v.served = kv.Ready(first, nil), kv.Ready(served, err)
	return err
}

// now returns the count, after load. If nothing is ready, the next count is served next.
func (v *virtualTime) now(next int64) int64 {
	first, _ := v.first.Get()
	served, _ := v.served.Get()
	if first == noneReady {
		return next
	}
	return max(first, served)
}

// note records that an item has come to ("i"), or gone.
func (v *virtualTime) note(id *codec.ID, delta int64) {
	if v.first == nil || v.left {
		return
	}
	switch first, err := v.first.Get(); {
	case err != nil: // load reports it
	case delta < 0 && id.Count <= first:
		v.left = true
	case delta > 0 && id.Count < first:
		v.first = kv.Ready(id.Count, nil)
	}
}

// Served records which counts the pops of a transaction serve from the front, for Turns.
type Served struct {
	g     *Ledger
	reads map[int64]*servedRead // by priority
}

type servedRead struct {
	ready kv.Future[[]byte] // how many items are ready
	count int64             // highest that was served, or noneServed
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
	s.reads[id.Priority] = &servedRead{g.Tx.Snapshot().Get(g.L.CounterKey(id.Priority)), noneServed}
	g.virtualTime(id.Priority).beginServed(g, id.Priority)
}

// Note records that an item was taken, perhaps for the first time.
func (s *Served) Note(id *codec.ID, first bool) {
	if read := s.reads[id.Priority]; read != nil && first && codec.GroupIn(id) > codec.NoGroup {
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
		v := s.g.virtualTime(priority)
		served, err := v.served.Get()
		if err != nil {
			return err
		}
		v.served = kv.Ready(served, nil)

		if ready+s.g.deltas[priority] > 0 {
			read.count = max(read.count, served)
		} else {
			read.count = noneServed
		}
		if read.count != served {
			s.g.setServed(priority, read.count)
		}
	}
	return nil
}

// setServed records the highest count that was served at a priority.
func (g *Ledger) setServed(priority, count int64) {
	g.virtualTime(priority).served = kv.Ready(count, nil)
	if key := g.L.TurnKey(priority); count == noneServed {
		g.Tx.Clear(key)
	} else {
		g.Tx.Set(key, codec.EncodeTurn(count))
	}
}

// ClearServed removes what the pops have recorded at a priority.
func (g *Ledger) ClearServed(priority int64) { g.setServed(priority, noneServed) }
