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
// other programs pushed, which do not count either.
type victims struct {
	g           *state.Ledger
	ready, held victimWalk
	order       []*victim // this transaction's own, and the others as far as they are loaded
	loaded      []byte    // the place of the last of these; nil before the first
	ended       bool      // all are loaded
	own         map[ID]bool
	read        int // bytes
}

// victim is an item that may be evicted.
type victim struct {
	item  *codec.Record
	place []byte     // see Layout.Place
	load  state.Load // what goes with it
}

func newVictims(g *state.Ledger) victims {
	return victims{
		g: g, own: map[ID]bool{},
		ready: victimWalk{g: g, rest: g.L.ItemRange()}, held: victimWalk{g: g, rest: g.L.KindRange(codec.KindHeld)},
	}
}

// before reports whether the item at a place goes before that at another.
func (v *victims) before(a, b []byte) bool { return (bytes.Compare(a, b) > 0) != v.g.L.Fifo }

// notePushed adds an item of this transaction's own, which later pushes may evict. The time is
// until when it is delayed.
func (v *victims) notePushed(id ID, m Message, until time.Time) {
	h := &codec.Record{ID: id, State: Ready, History: codec.History{Lasting: codec.LastingOf(&m)}}
	if !until.IsZero() {
		h = codec.NewDelayed(&id, &m, until, nil)
	}
	h.Message = &m
	v.own[id] = true
	v.insert(h, m.Size())
}

// insert adds an item at its place.
func (v *victims) insert(h *codec.Record, size int) {
	one := &victim{item: h, place: v.g.L.Place(v.g.L.ItemKey(&h.ID)), load: state.Load{Items: 1}}
	if v.g.CountsBytes() {
		one.load.Bytes = int64(size)
	}
	at, _ := slices.BinarySearchFunc(v.order, one, func(a, b *victim) int {
		if v.before(a.place, b.place) {
			return -1
		}
		return 1
	})
	v.order = slices.Insert(v.order, at, one)
}

// next returns the item to go after the first n, nil if there is none. The error is ErrCorrupt or
// one of the store.
func (v *victims) next(n int) (*victim, error) {
	for !v.ended && (n >= len(v.order) || v.loaded == nil || v.before(v.loaded, v.order[n].place)) {
		if err := v.load(); err != nil {
			return nil, err
		}
	}
	if n >= len(v.order) {
		return nil, nil
	}
	return v.order[n], nil
}

// evict removes the first n items. The error is one of the store.
func (v *victims) evict(n int) error {
	for _, gone := range v.order[:n] {
		v.g.Discard(gone.item)
	}
	v.order = v.order[n:]
	return v.g.Err()
}

// load reads the next item of the store that may be evicted.
func (v *victims) load() error {
	first, err := v.ready.first()
	if err != nil {
		return err
	}
	second, err := v.held.first()
	if err != nil {
		return err
	}

	walk, pair := &v.ready, first
	if first == nil || second != nil && v.before(v.g.L.Place(second.Key), v.g.L.Place(first.Key)) {
		walk, pair = &v.held, second
	}
	if pair == nil {
		v.ended = true
		return nil
	}

	h, err := v.parse(pair, walk == &v.ready, walk.rests[0])
	if err != nil {
		return err
	}
	walk.skip()
	v.loaded = v.g.L.Place(pair.Key)
	v.read += len(pair.Value)
	if h == nil {
		return nil
	}

	size := 0
	if v.g.CountsBytes() {
		if size, err = v.g.SizeOf(h); err != nil {
			return err
		}
	}
	v.insert(h, size)
	return nil
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
