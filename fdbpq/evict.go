package fdbpq

import (
	"bytes"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
)

// victimBytes is about the most bytes of items that a transaction reads to evict some, unless there
// is one that has more.
const victimBytes = 16 << 20

// victims is the items that a queue with DiscardOld may evict, in the order in which they go: from
// the back, in a FIFO queue from the front. It has those that are ready or delayed, and none that
// other programs pushed, which do not count either.
type victims struct {
	g       *state.Ledger
	browser state.Browser
	page    int       // items of the last page
	order   []*victim // this transaction's own, and the others as far as they are loaded
	loaded  []byte    // the place up to which these are; nil before the first
	ended   bool      // all are loaded
	own     map[ID]bool
	read    int // bytes
}

// victim is an item that may be evicted.
type victim struct {
	item  *codec.Record
	place []byte     // see Layout.Place
	load  state.Load // what goes with it
}

func newVictims(g *state.Ledger) victims {
	end := Back
	if g.L.Fifo {
		end = Front
	}
	return victims{g: g, own: map[ID]bool{}, browser: state.Browser{L: g.L, End: end}}
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

// load reads the next items of the store. The transaction conflicts with whoever changes one up to
// there.
func (v *victims) load() error {
	v.page = min(4*max(v.page, 1), state.MaxSweepPage)
	items, part, err := v.browser.ReadPage(v.g.Tx, v.loaded, v.page)
	if err != nil {
		return err
	}
	v.loaded, v.ended = part.Place, part.Ended

	rests := make([]state.Stored, len(items))
	for i := range items {
		rests[i] = state.BeginItem(v.g.L, v.g.Tx.Snapshot(), &items[i].ID, state.Beginning)
		v.g.BeginSize(&items[i].ID)
	}
	for i := range items {
		s := &items[i]
		v.read += s.Bytes
		if s.Err != nil {
			return s.Err
		}
		if !codec.Ours(&s.ID) || v.own[s.ID] || s.State == Leased {
			continue
		}

		h := s.Record
		if s.State == Ready {
			if h.Lasting, err = rests[i].Lasting(); err != nil {
				return err
			}
		}
		size := 0
		if v.g.CountsBytes() {
			if size, err = v.g.SizeOf(&h); err != nil {
				return err
			}
		}
		v.insert(&h, size)
	}
	return nil
}
