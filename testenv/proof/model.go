package proof

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unsafe"

	"github.com/anishathalye/porcupine"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
)

const (
	// maxItems limits the different items of a queue in one history.
	maxItems = 512
	// MaxOpen limits the items that pops and leases of unknown outcome may have taken from
	// a queue in one history. Each of them can be at any place in the order.
	MaxOpen = 32
)

// queueModel is the sequential model of one queue.
type queueModel struct {
	ids      []fdbpq.ID       // of the items, in order
	numbers  map[fdbpq.ID]int // of the items: their places in ids
	values   []string         // of the items; equal for items that were stored again
	sizes    []int64          // of the values
	groups   []string         // of the items, "" for none
	acked    []int64          // when the push of each item was acknowledged
	settled  []bool           // whether anybody got, or acknowledged, the item
	next     []fences         // of the leases that clients know of
	holds    []hold           // when held items come back
	expiry   []hold           // when items expire: maybe gone from from on, certainly after by
	oneByOne bool
	ordered  bool // no item comes back from a pop, so the order of pushes can be checked

	// simple: an open pop takes an item that nobody got, or nothing, and the like. That is
	// less than what may happen, and nearly always what did happen. An order found this way
	// is valid, and it is found much faster.
	simple bool
	// maxLeased limits the leases of each group; 0 is no limit.
	maxLeased int
	// openFrom is when the first pop or lease of unknown outcome was sent.
	openFrom int64
	// room is how many bytes further states may take; below 0 nothing is possible any more.
	room int
}

// hold says when a held item comes back. No request gets it before from, and every request sent
// after by does.
type hold struct{ from, by int64 }

// fences are the fences of an item's leases, in order.
type fences []uint16

// after returns the next fence after the given one, 0 if there is none.
func (f fences) after(fence uint16) uint16 {
	i, found := slices.BinarySearch(f, fence)
	if found {
		i++
	}
	if i == len(f) {
		return 0
	}
	return f[i]
}

// apply does a step. It reports whether the step can have had its result.
func (m *queueModel) apply(s state, p *step) (ok bool, after state) {
	switch p.kind {
	case stepPush:
		ok = s.items[p.item].status == away && m.inOrder(&s, p)
		if s.push(p.item); p.delayed {
			s.delay(p.item, p.hold)
		}
	case stepServe:
		ok = m.serve(&s, p)
	case stepLen:
		ok = m.count(&s, p)
	case stepSettle:
		ok = m.settle(&s, p)
	case stepStale:
		ok = m.stale(&s, p)
	case stepMaySettle:
		switch {
		case s.holdsAll(p.tokens) && !s.over:
			ok = m.settle(&s, p)
		default:
			// In the simple model it waits until it can do something, or until all is over.
			ok = !m.simple || s.over
		}
	case stepMayTake, stepMayLease:
		ok = m.mayTake(&s, p)
	case stepOver:
		ok, s.over = true, true
	case stepGiveBack:
		if ok = true; s.taken[p.slot] > 0 {
			s.comeBack(int(s.taken[p.slot] - 1))
			s.taken[p.slot] = 0
		}
	case stepRestore:
		ok = m.restore(&s, p.item)
	}

	return ok, s
}

// restore pushes again what an open pop took.
func (m *queueModel) restore(s *state, item int) bool {
	same := func(i int) bool { return i != item && m.values[i] == m.values[item] }
	slot := slices.IndexFunc(s.taken[:], func(h uint16) bool { return h > 0 && same(int(h-1)) })
	if slot >= 0 {
		s.taken[slot] = 0
		s.push(item)
		return true
	}

	// The pop may have taken the item when it was back, or had expired: see mayTake.
	for i := range m.ids {
		expires := m.expiry[i].from != math.MaxInt64
		mayBeTaken := s.items[i].held() || expires && s.items[i].status == ready
		if !m.simple && same(i) && mayBeTaken && s.items[item].status == away {
			s.take(i)
			s.push(item)
			return true
		}
	}

	return false
}

// mustBeThere reports whether an item is served to all requests that are sent and answered at these
// times.
func (m *queueModel) mustBeThere(item int, i itemState, sent, answered int64) bool {
	isBack := i.status == ready || i.held() && m.holds[i.hold].by < sent
	return isBack && answered < m.expiry[item].from
}

// mayBeThere reports whether an item can be served to a request sent and answered at these times.
func (m *queueModel) mayBeThere(item int, i itemState, sent, answered int64) bool {
	mayBeBack := i.status == ready || i.held() && m.holds[i.hold].from <= answered
	return mayBeBack && sent <= m.expiry[item].by
}

// mayHaveExpired reports whether the item of a token may have been removed because it had expired.
func (m *queueModel) mayHaveExpired(i itemState, item int, p *step) bool {
	return m.expiry[item].from <= p.end && (i.status != leased || m.holds[i.hold].from <= p.end)
}

// order returns the index of the n-th item from an end.
func (m *queueModel) order(n int, back bool) int {
	if back {
		return len(m.ids) - 1 - n
	}
	return n
}

// isNext reports whether the item, -1 for none, can be what a request at one end gets. If
// other items may or may not be there, it shows that they are not.
func (m *queueModel) isNext(s *state, p *step, want int) bool {
	for n := range m.ids {
		i := m.order(n, p.back)
		if i == want {
			return m.mayServe(s, p, i)
		}
		if m.mustServe(s, p, i, p.end) {
			return false
		}
	}

	return want < 0
}

// serve serves the items of a pop, peek or lease, all in one transaction. With +NXT, the
// acknowledgement comes first.
func (m *queueModel) serve(s *state, p *step) bool {
	if p.item >= 0 && s.items[p.item].status != away {
		return false
	}

	for _, got := range p.served {
		if !m.isNext(s, p, got.item) {
			return false
		}

		switch {
		case got.fence > 0:
			if got.fence <= s.items[got.item].fence {
				return false
			}
			s.lease(got.item, got.fence, got.hold)
		case p.peek:
			s.comeBack(got.item)
		default:
			s.take(got.item)
		}
	}

	if p.cut {
		return m.isCut(s, p)
	}

	return len(p.served) == p.asked || m.isNext(s, p, -1)
}

// settle does what tokens that hold are used for, which several of them only acknowledge.
func (m *queueModel) settle(s *state, p *step) bool {
	if !s.holdsAll(p.tokens) {
		return false
	}

	for _, t := range p.tokens {
		switch p.use {
		case books.Nak:
			s.nak(t.item, p.delayed, p.hold)
		case books.Extend:
			s.extend(t.item, p.hold)
		default:
			s.take(t.item)
		}
	}

	return true
}

// stale reports whether those tokens are lost that are said to be, and the others hold.
func (m *queueModel) stale(s *state, p *step) bool {
	for _, t := range p.tokens {
		i := s.items[t.item]
		lost := !i.holds(t.fence)
		mayBeGone := m.mayHaveExpired(i, t.item, p) || !m.simple && m.openFrom <= p.end
		if lost != t.lost && !(t.lost && mayBeGone) {
			return false
		}
	}

	return true
}

// count reports whether the result of a len can be right.
func (m *queueModel) count(s *state, p *step) bool {
	least, most := int64(0), p.slack
	for item, i := range s.items {
		if m.mustBeThere(item, i, p.call, p.end) {
			least++
		}
		if m.mayBeThere(item, i, p.call, p.end) {
			most++
		}
	}

	return least <= p.n && p.n <= most
}

// mayTake lets a pop or lease of unknown outcome take an item.
func (m *queueModel) mayTake(s *state, p *step) bool {
	if s.over {
		return true
	}

	end := -1
	for n := range m.ids {
		if i := m.order(n, p.back); m.mustServe(s, p, i, p.call) {
			end = i
			break
		}
	}

	if m.simple && (end < 0 || !m.wanted(s, p, end)) {
		return false
	}
	if end >= 0 && p.kind == stepMayLease {
		s.lease(end, s.items[end].fence+1, p.hold)
	} else if end >= 0 {
		s.take(end)
		s.taken[p.slot] = uint16(end + 1)
	}

	return true
}

// wanted reports whether clients saw what a pop or lease of unknown outcome would do to the
// item: nobody got it, or a lease has no owner.
func (m *queueModel) wanted(s *state, p *step, item int) bool {
	if p.kind == stepMayTake {
		return !m.settled[item]
	}
	next := m.next[item].after(s.items[item].fence)
	return next == 0 || next > s.items[item].fence+1
}

// inOrder reports whether the pushed item comes after every item of its priority that it must
// follow: all of them, or with a group only the items of its group.
func (m *queueModel) inOrder(s *state, p *step) bool {
	if !m.ordered {
		return true
	}

	for later := p.item + 1; later < len(m.ids); later++ {
		if m.ids[later].Priority != m.ids[p.item].Priority {
			break
		}
		if group := m.groups[p.item]; group != "" && group != m.groups[later] {
			continue
		}

		// The later item may be gone, and the counts begin again.
		i := s.items[later]
		if p.end >= m.expiry[later].from {
			continue
		}
		if (i.status == ready || m.simple && i.held()) && (m.oneByOne || m.acked[later] < p.call) {
			return false
		}
	}

	return true
}

// newModel numbers the items.
func newModel(a *account, oneByOne, simple bool) (*queueModel, error) {
	m := &queueModel{oneByOne: oneByOne, ordered: oneByOne || a.open == 0, simple: simple}
	m.openFrom, m.maxLeased = a.openFrom, a.maxLeased
	m.ids = slices.Collect(maps.Keys(a.values))

	if open := a.open + a.openLeases; len(m.ids) > maxItems || open > MaxOpen {
		return nil, fmt.Errorf("%w: %d items, and %d that pops and leases of unknown outcome "+
			"may have taken: the model has room for %d and %d",
			ErrUndecided, len(m.ids), open, maxItems, MaxOpen)
	}

	slices.SortFunc(m.ids, func(a, b fdbpq.ID) int { return a.Compare(&b) })
	m.numbers = make(map[fdbpq.ID]int, len(m.ids))
	for i, id := range m.ids {
		m.numbers[id] = i
		value := a.values[id]
		m.values = append(m.values, value)
		m.sizes = append(m.sizes, a.pushes[value].Size)
		m.groups = append(m.groups, a.pushes[value].Group)
		acked := int64(math.MaxInt64)
		if push := a.pushes[value]; push.Outcome == books.Done && push.ID == id.String() {
			acked = push.Return
		}

		m.acked = append(m.acked, acked)
		m.settled = append(m.settled, a.gone[id])
		m.expiry = append(m.expiry, a.expiry(a.pushes[value], simple))
		m.next = append(m.next, a.leases[id])
	}

	return m, nil
}

// porcupine returns the model in the form that porcupine wants, for a number of steps. Porcupine
// keeps the states that it comes to, each with a bit for each step.
func (m *queueModel) porcupine(steps, room int) porcupine.Model {
	m.room = room
	size := int(unsafe.Sizeof(state{})) + len(m.ids)*int(unsafe.Sizeof(itemState{})) + steps/8 + 128
	return porcupine.Model{
		Init: func() any { return state{items: make([]itemState, len(m.ids))} },
		Step: func(s, input, _ any) (bool, any) {
			ok, after := m.apply(s.(state), input.(*step))
			if ok {
				m.room -= size
			}
			return ok && m.room >= 0, after
		},
		Equal: func(a, b any) bool {
			x, y := a.(state), b.(state)
			return x.equal(&y)
		},
		Hash:              func(s any) uint64 { x := s.(state); return x.hash() },
		DescribeOperation: func(input, _ any) string { return input.(*step).text },
		DescribeState:     func(s any) string { return m.describeState(s.(state)) },
	}
}

func (m *queueModel) describeState(s state) string {
	var there []string
	for n, i := range s.items {
		if i.status != away {
			status := [...]string{ready: "ready", leased: "leased", delayed: "delayed"}[i.status]
			there = append(there, fmt.Sprintf("%d:%s %s fence %d",
				m.ids[n].Priority, m.values[n], status, i.fence))
		}
	}

	return "[" + strings.Join(there, ", ") + "]"
}
