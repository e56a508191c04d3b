package fdbpq

import (
	"bytes"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// victimBytes is about the most bytes of items that a transaction reads to evict some, unless there
// is one that has more.
const victimBytes = 16 << 20

// victims is the items that a queue with DiscardOld may evict, in the order in which they go: from
// the back, in a FIFO queue from the front. It has those that are ready or delayed, and none that
// other programs pushed, which do not count either. The zero value has none.
type victims struct {
	g           *state.Ledger // nil before prepare
	ready, held victimWalk
	stored      []*victim // read, and not gone
	pushed      []*victim // by this transaction, and not gone
	own         map[ID]bool
	read        int // bytes
}

// victim is an item that may be evicted.
type victim struct {
	item  *codec.Record
	place []byte     // see Layout.Place
	load  state.Load // what goes with it
	own   bool       // this transaction pushed it
}

// victimPlan is the first items to go.
type victimPlan struct {
	stored, pushed int // how many of either
}

func (p *victimPlan) any() bool { return p.stored+p.pushed > 0 }

// include adds the item that next has returned.
func (p *victimPlan) include(v *victim) {
	if v.own {
		p.pushed++
	} else {
		p.stored++
	}
}

// prepare prepares the victims for next. It does nothing the second time.
func (v *victims) prepare(g *state.Ledger) {
	if v.g == nil {
		v.g = g
		v.ready, v.held = victimWalk{g: g, rest: g.L.ItemRange()}, victimWalk{g: g, rest: g.L.KindRange(codec.KindHeld)}
	}
}

// before reports whether the item at a place goes before that at another.
func (v *victims) before(a, b []byte) bool { return (bytes.Compare(a, b) > 0) != v.g.L.Fifo }

// notePushed adds an item of this transaction's own, which later pushes may evict. The time is
// until when it is delayed.
func (v *victims) notePushed(g *state.Ledger, id ID, m Message, until time.Time) {
	h := &codec.Record{ID: id, State: Ready, History: codec.History{Lasting: codec.LastingOf(&m)}}
	if !until.IsZero() {
		h = codec.NewDelayed(&id, &m, until, nil)
	}
	h.Message = &m
	v.prepare(g)
	v.insert(h)
}

// insert adds an item of this transaction's own at its place.
func (v *victims) insert(h *codec.Record) {
	g := v.g
	own := &victim{item: h, place: g.L.Place(g.L.ItemKey(&h.ID)), load: state.Load{Items: 1}, own: true}
	if g.CountsBytes() {
		own.load.Bytes = int64(h.Message.Size())
	}

	at, _ := slices.BinarySearchFunc(v.pushed, own, func(a, b *victim) int {
		if v.before(a.place, b.place) {
			return -1
		}
		return 1
	})
	v.pushed = slices.Insert(v.pushed, at, own)

	if v.own == nil {
		v.own = map[ID]bool{}
	}
	v.own[h.ID] = true
}

// next returns the next item to go after those of the plan, nil if there is none. The error is
// ErrCorrupt or one of the store.
func (v *victims) next(after *victimPlan) (*victim, error) {
	if after.stored == len(v.stored) {
		more, err := v.load()
		if err != nil {
			return nil, err
		}
		if more != nil {
			v.stored = append(v.stored, more)
		}
	}

	var next *victim
	if after.stored < len(v.stored) {
		next = v.stored[after.stored]
	}
	if after.pushed < len(v.pushed) && (next == nil || v.before(v.pushed[after.pushed].place, next.place)) {
		next = v.pushed[after.pushed]
	}
	return next, nil
}

// evict removes the items of the plan. The error is one of the store.
func (v *victims) evict(p *victimPlan) error {
	for _, gone := range slices.Concat(v.stored[:p.stored], v.pushed[:p.pushed]) {
		v.g.Discard(gone.item)
	}
	v.stored, v.pushed = v.stored[p.stored:], v.pushed[p.pushed:]
	return v.g.Err()
}

// load reads the next item, nil if there is none.
func (v *victims) load() (*victim, error) {
	for {
		first, err := v.ready.first()
		if err != nil {
			return nil, err
		}
		second, err := v.held.first()
		if err != nil {
			return nil, err
		}

		walk, pair := &v.ready, first
		if first == nil || second != nil && v.before(v.g.L.Place(second.Key), v.g.L.Place(first.Key)) {
			walk, pair = &v.held, second
		}
		if pair == nil {
			return nil, nil
		}

		h, err := v.parse(pair, walk == &v.ready, walk.rests[0])
		if err != nil {
			return nil, err
		}
		walk.skip()
		v.read += len(pair.Value)
		if h == nil {
			continue
		}

		found := &victim{item: h, place: v.g.L.Place(pair.Key), load: state.Load{Items: 1}}
		if v.g.CountsBytes() {
			size, err := v.g.SizeOf(h)
			if err != nil {
				return nil, err
			}
			found.load.Bytes = int64(size)
		}
		return found, nil
	}
}

// parse returns the item of a pair, nil if it must not be evicted.
func (v *victims) parse(pair *kv.KeyValue, ready bool, rest state.Stored) (*codec.Record, error) {
	id, err := v.g.L.ParseItem(pair.Key)
	if err != nil || !codec.Ours(&id) || v.own[id] {
		return nil, err
	}

	if !ready {
		h, err := codec.ParseRecord(&id, pair.Value)
		if err != nil || h.State == Leased {
			return nil, err
		}
		return h, nil
	}

	h := &codec.Record{ID: id, State: Ready, Value: pair.Value}
	if h.Lasting, err = rest.Lasting(); err != nil {
		return nil, err
	}
	return h, nil
}

// victimWalk walks the items of a kind, in pages.
type victimWalk struct {
	g     *state.Ledger
	rest  kv.Range
	size  int // of the last page
	ended bool
	pairs []kv.KeyValue
	rests []state.Stored // what else belongs to pairs, being read
}

// first returns the next item, nil after the last. It conflicts with whoever changes one up to
// there.
func (w *victimWalk) first() (*kv.KeyValue, error) {
	if len(w.pairs) > 0 {
		return &w.pairs[0], nil
	}
	if w.ended {
		return nil, nil
	}

	w.size = min(4*max(w.size, 1), state.MaxSweepPage)
	back := !w.g.L.Fifo
	o := kv.RangeOptions{Limit: w.size, Bytes: state.SweepBytes, Reverse: back}
	pairs, err := w.g.Tx.GetRange(w.rest, o).Get()
	if err != nil {
		return nil, err
	}
	if w.ended = !o.Full(pairs); len(pairs) == 0 {
		return nil, nil
	}

	if last := pairs[len(pairs)-1].Key; back {
		w.rest.End = last
	} else {
		w.rest.Begin = kv.SingleKey(last).End
	}

	w.pairs, w.rests = pairs, state.BeginItems(w.g.L, w.g.Tx.Snapshot(), pairs)
	for _, pair := range pairs {
		if id, err := w.g.L.ParseItem(pair.Key); err == nil {
			w.g.BeginSize(&id)
		}
	}
	return &w.pairs[0], nil
}

// skip goes on to the next item.
func (w *victimWalk) skip() { w.pairs, w.rests = w.pairs[1:], w.rests[1:] }
