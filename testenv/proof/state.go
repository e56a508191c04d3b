package proof

import "slices"

// status says where an item is. A new one needs its transitions below, and a word in
// reachable.
type status uint8

const (
	away status = iota // not pushed yet, gone, or taken by a pop of unknown outcome
	ready
	leased
	delayed
)

// itemState is the state of one item.
type itemState struct {
	status status
	fence  uint16 // a token holds if it has this fence
	hold   uint16 // says when the item comes back: an index into queueModel.holds
}

// held reports whether the item comes back when it is due.
func (i itemState) held() bool { return i.status == leased || i.status == delayed }

// holds reports whether a token with the fence is good.
func (i itemState) holds(fence uint16) bool { return i.status != away && i.fence == fence }

// token is one that an operation uses.
type token struct {
	item  int
	fence uint16
	lost  bool // the answer says so
}

// holdsAll reports whether all tokens are good.
func (s *state) holdsAll(tokens []token) bool {
	isLost := func(t token) bool { return !s.items[t.item].holds(t.fence) }
	return !slices.ContainsFunc(tokens, isLost)
}

// state is the state of a queue. Items are numbered in the order of their ids.
type state struct {
	items []itemState // shared with earlier states: see set

	// taken has what pops of unknown outcome may have taken: the number of the item, plus 1.
	taken [MaxOpen]uint16

	over bool // all operations with a known outcome are done
}

func (s *state) set(i int, to itemState) {
	s.items = slices.Clone(s.items)
	s.items[i] = to
}

// The transitions of an item, each from the states that the model has made sure of.

func (s *state) push(i int)                      { s.set(i, itemState{ready, 0, 0}) }
func (s *state) delay(i int, hold uint16)        { s.set(i, itemState{delayed, 0, hold}) }
func (s *state) take(i int)                      { s.set(i, itemState{away, s.items[i].fence, 0}) }
func (s *state) comeBack(i int)                  { s.set(i, itemState{ready, s.items[i].fence, 0}) }
func (s *state) lease(i int, fence, hold uint16) { s.set(i, itemState{leased, fence, hold}) }
func (s *state) extend(i int, hold uint16)       { s.lease(i, s.items[i].fence, hold) }

func (s *state) nak(i int, delay bool, hold uint16) {
	to := itemState{ready, s.items[i].fence + 1, 0}
	if delay {
		to.status, to.hold = delayed, hold
	}
	s.set(i, to)
}

func (s *state) equal(o *state) bool {
	return s.taken == o.taken && s.over == o.over && slices.Equal(s.items, o.items)
}

func (s *state) hash() uint64 {
	h := uint64(14695981039346656037)
	mix := func(x uint64) { h = (h ^ x) * 1099511628211; h ^= h >> 29 }
	for _, i := range s.items {
		mix(uint64(i.status) | uint64(i.fence)<<8 | uint64(i.hold)<<24)
	}

	for _, x := range s.taken {
		mix(uint64(x))
	}

	if s.over {
		mix(1)
	}

	return h
}
