package fdbpq

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// pushLimits is what limits the pushes of one queue.
type pushLimits struct {
	*queueTxn
	settings *Settings           // nil if there is no limit
	counters []kv.Future[[]byte] // of the items in all states, and of their bytes
	have     state.Load

	victims *victims // nil without DiscardOld
}

// beginLoad starts to read how much there is in the queue. The pushes conflict with any change of
// that.
func (p *pushLimits) beginLoad(settings *Settings) error {
	p.settings = settings
	if settings.Discard == DiscardOld {
		p.victims = newVictims(&p.ledger)
	}

	// The same transaction may have begun to count the bytes, or fired schedules of the queue.
	if err := cmp.Or(p.ledger.Flush(), p.outgoing.Flush()); err != nil {
		return err
	}
	p.counters = p.ledger.BeginLoad()
	return nil
}

// countLoad waits for what beginLoad started. If the queue has no room for all its pushes, its due
// items come back first, because that may remove some.
func (p *pushLimits) countLoad(pushes []int) error {
	for i, counter := range p.counters {
		n, err := state.ReadCounter(counter)
		if err != nil {
			return err
		}
		if i <= len(codec.HeldStates) {
			p.have.Items += n
		} else {
			p.have.Bytes = n
		}
	}

	wanted := p.have.Plus(p.loadOfPushes(pushes))
	if wanted.Exceeds(p.settings) == nil || p.due.Handled {
		return nil
	}

	if err := p.moving.bringBack([]*due.Due{&p.due}); err != nil {
		return err
	}
	p.have = p.have.Plus(p.ledger.Unwritten()) // the counters were read before
	return nil
}

// loadOfPushes is what the pushes at the given indexes add to the queue.
func (p *pushLimits) loadOfPushes(pushes []int) (n state.Load) {
	n.Items = int64(len(pushes))
	if p.settings.MaxBytes > 0 {
		for _, i := range pushes {
			m := p.messageOf(i, p.settings)
			n.Bytes += int64(m.Size())
		}
	}
	return n
}

// checkFits returns an ErrMessageTooLarge if not even an empty queue has room for all that a chain
// of pushes adds. If one of them is too large alone, the error has its number in the chain.
func (p *pushLimits) checkFits(chain, added []int, all state.Load) error {
	full := all.Exceeds(p.settings)
	if full == nil {
		return nil
	}

	for _, i := range added {
		one := p.loadOfPushes([]int{i})
		if one.Exceeds(p.settings) == nil {
			continue
		}

		const text = "%w: it has %d bytes as an item, and max_bytes of the queue is %d"
		err := fmt.Errorf(text, ErrMessageTooLarge, one.Bytes, p.settings.MaxBytes)
		if len(chain) > 1 {
			err = fmt.Errorf("item %d: %w", slices.Index(chain, i), err)
		}
		return err
	}

	if errors.Is(full, ErrFullBytes) {
		const text = "%w: %d items have %d bytes, and max_bytes of the queue is %d: push fewer"
		return fmt.Errorf(text, ErrMessageTooLarge, all.Items, all.Bytes, p.settings.MaxBytes)
	}
	const text = "%w: %d items, and max_items of the queue is %d: push fewer"
	return fmt.Errorf(text, ErrMessageTooLarge, all.Items, p.settings.MaxItems)
}

// makeRoom counts what a chain of pushes adds, which is all but its duplicates, and evicts what has
// to go for it. The error says why that is not possible, or it is ErrCorrupt or one of the store,
// and then nothing has changed.
func (p *pushLimits) makeRoom(chain, added []int) error {
	more := p.loadOfPushes(added)
	all := p.have.Plus(more)
	full := all.Exceeds(p.settings)
	if full == nil {
		p.have = all
		return nil
	}
	if err := p.checkFits(chain, added, more); err != nil {
		return err
	}

	refused := p.describe(full, more)
	if p.due.Behind() { // items may leave the queue next
		return notYet(refused)
	}
	if p.victims == nil {
		return refused
	}
	return p.evict(added, more, refused)
}

// evict removes items until the queue has room for a chain of pushes, which adds more. If it cannot
// have room, it returns refused, completed.
func (p *pushLimits) evict(chain []int, more state.Load, refused error) error {
	// A push evicts nothing that would be served before it.
	last := p.ops[chain[0]].Priority
	for _, i := range chain {
		last = max(last, p.ops[i].Priority)
	}

	before := p.moving
	all := p.have.Plus(more)
	v := p.victims
	for planned := 0; ; {
		next, err := v.next(planned)
		switch {
		case err != nil:
			return err
		case next == nil || !p.l.Fifo && next.item.ID.Priority <= last:
			p.moving = before
			const text = "%w: too few items may be discarded for it: leased ones stay, " +
				"and in a priority queue those that are served before it"
			return fmt.Errorf(text, refused)
		case v.readBytes > victimBytes && planned > 0,
			!p.moving.fits(p.removedBytes(next.item)):
			return p.tooMany(refused, planned, all.Minus(more), before.moves == 0)
		}

		planned++
		if all = all.Minus(next.load); all.Exceeds(p.settings) == nil {
			p.have = all
			return v.evict(planned)
		}
	}
}

// removedBytes is about how many bytes of a transaction it takes to remove an item.
func (p *pushLimits) removedBytes(h *codec.Record) int {
	const keys = 16 // written, or in conflict ranges
	return keys*len(p.l.ItemKey(&h.ID)) + p.l.IndexSizeOf(&h.ID) + p.ledger.ForgetSize(h)
}

// tooMany is for a chain of pushes for which more would have to go than the transaction has room
// for. If that is because the limits are exceeded already, it evicts what it can, and left is what
// the queue has then.
func (p *pushLimits) tooMany(why error, planned int, left state.Load, alone bool) error {
	switch {
	case planned > 0 && p.have.Exceeds(p.settings) != nil:
		p.have = left
		return cmp.Or(p.victims.evict(planned), notYet(why))
	case !alone:
		return notYet(why) // the next transaction may have room
	}
	const text = "%w: more would have to be discarded than a transaction has room for"
	return fmt.Errorf(text, why)
}

// describe completes the error of pushes that take a queue beyond a limit.
func (p *pushLimits) describe(full error, more state.Load) error {
	if errors.Is(full, ErrFullBytes) {
		const text = "%w: its items have %d bytes, including leased and delayed ones: " +
			"no room for %d more, because max_bytes is %d"
		return fmt.Errorf(text, full, p.have.Bytes, more.Bytes, p.settings.MaxBytes)
	}
	const text = "%w: it has %d items, including leased and delayed ones, and max_items is %d"
	err := fmt.Errorf(text, full, p.have.Items, p.settings.MaxItems)
	if more.Items > 1 {
		err = fmt.Errorf("%w: no room for %d more", err, more.Items)
	}
	return err
}

// victimBytes is about the most bytes of items that a transaction reads to evict some, unless there
// is one that has more.
const victimBytes = 16 << 20

// victims is the items that a queue with DiscardOld may evict, in the order in which they go: from
// the back, in a FIFO queue from the front. They are ready or delayed. Items that other programs
// pushed are not among them, because they do not count either.
type victims struct {
	g         *state.Ledger
	browser   state.Browser
	page      int         // items of the last page
	order     []*victim   // those this transaction added, and those of the store that are loaded
	loaded    []byte      // the place up to which the store is loaded; nil before the first page
	ended     bool        // all are loaded
	gone      []*victim   // evicted for the last chain of pushes
	own       map[ID]bool // added by this transaction
	readBytes int
}

// victim is an item that may be evicted.
type victim struct {
	item  *codec.Record
	place []byte     // see Layout.Place
	load  state.Load // what goes with it
}

func newVictims(g *state.Ledger) *victims {
	end := Back
	if g.L.Fifo {
		end = Front
	}
	return &victims{g: g, own: map[ID]bool{}, browser: state.Browser{L: g.L, End: end}}
}

// before reports whether the item at a place goes before that at another.
func (v *victims) before(a, b []byte) bool { return (bytes.Compare(a, b) > 0) != v.g.L.Fifo }

// notePushed adds an item that this transaction has added, which later pushes may evict. The time
// is until when it is delayed.
func (v *victims) notePushed(id ID, m Message, until time.Time) {
	h := &codec.Record{ID: id, State: Ready, History: codec.History{Lasting: codec.LastingOf(&m)}}
	if !until.IsZero() {
		h = codec.NewDelayed(&id, &m, until, nil)
	}
	h.Message = &m
	v.own[id] = true
	if m.Join > 0 {
		return
	}
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
	v.gone, v.order = append(v.gone, v.order[:n]...), v.order[n:]
	return v.g.Err()
}

// load reads the next items of the store. The transaction conflicts with any change up to there.
func (v *victims) load() error {
	const maxPage = 512 // items
	v.page = min(4*max(v.page, 1), maxPage)
	items, page, err := v.browser.ReadPage(v.g.Tx, v.loaded, v.page)
	if err != nil {
		return err
	}
	v.loaded, v.ended = page.Place, page.Ended

	rests, pasts := make([]state.ItemRead, len(items)), make([]kv.Future[[]byte], len(items))
	trail := v.g.Trail() > 0
	for i := range items {
		if pasts[i] = kv.Ready[[]byte](nil, nil); trail && items[i].State == Ready {
			pasts[i] = state.ReadHistory(v.g.L, v.g.Tx, &items[i].ID)
		}
		rests[i] = state.BeginItem(v.g.L, v.g.Tx.Snapshot(), &items[i].ID, state.Beginning)
		v.g.ReuseMeta(&rests[i])
	}
	for i := range items {
		s := &items[i]
		v.readBytes += s.Bytes
		if s.Err != nil {
			return s.Err
		}
		if !codec.Ours(&s.ID) || v.own[s.ID] || s.State == Leased {
			continue
		}

		h := s.Record
		if s.State == Ready {
			past, err := pasts[i].Get()
			if err != nil {
				return err
			}
			h.History = state.RecordOf(&h.ID, past).History
			if h.Lasting, err = rests[i].Lasting(); err != nil {
				return err
			}
		}
		if codec.Must(&s.ID) {
			if err := rests[i].ReadHeaders(v.g.Tx.Snapshot(), v.g.L); err != nil {
				return err
			}
			if rests[i].Err != nil {
				return rests[i].Err
			}
			if rests[i].Item.Join > 0 { // it waits
				continue
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
