package proof

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"

	"github.com/pqbridge/pqbridge/fdbpq"
)

const (
	// maxItems limits the different items of a queue in one history.
	maxItems = 64 * words
	words    = 8
	// MaxOpen limits the pops of unknown outcome of a queue in one history. Each of
	// them can be at any place in the order.
	MaxOpen = 16
)

// state is the state of a queue. Items are numbered in the order of their ids.
type state struct {
	present [words]uint64   // a bit for each item
	held    [MaxOpen]uint16 // by open pop: number of the item it took, plus 1
	over    bool            // all operations with a known outcome are done
}

func (s *state) has(i int) bool { return s.present[i/64]>>(i%64)&1 != 0 }
func (s *state) flip(i int)     { s.present[i/64] ^= 1 << (i % 64) }

// first returns the first item, -1 if there is none.
func (s *state) first() int {
	for i, w := range s.present {
		if w != 0 {
			return 64*i + bits.TrailingZeros64(w)
		}
	}
	return -1
}

// last returns the last item, -1 if there is none.
func (s *state) last() int {
	for i, w := range slices.Backward(s.present[:]) {
		if w != 0 {
			return 64*i + 63 - bits.LeadingZeros64(w)
		}
	}
	return -1
}

func (s *state) count() int {
	n := 0
	for _, w := range s.present {
		n += bits.OnesCount64(w)
	}
	return n
}

func (s *state) hash() uint64 {
	h := uint64(14695981039346656037)
	mix := func(x uint64) { h = (h ^ x) * 1099511628211; h ^= h >> 29 }
	for _, w := range s.present {
		mix(w)
	}
	for _, x := range s.held {
		mix(uint64(x))
	}
	if s.over {
		mix(1)
	}
	return h
}

// step is an operation of the model. Its result is part of it.
type step struct {
	kind  stepKind
	item  int // the item pushed, popped or seen; -1 for none
	call  int64
	n     int64 // result of a len
	slack int64 // items that it may count although nobody ever saw them
	slot  int   // of an open pop
	text  string
}

type stepKind uint8

const (
	stepPush stepKind = iota
	stepPopMin
	stepPopMax
	stepPeekMin
	stepPeekMax
	stepLen
	stepTakeMin // an open pop takes an item, if there is one
	stepTakeMax
	stepGiveBack // its item is put back
	stepRestore  // an item that one of them took is pushed again
	stepOver     // no operation with a known outcome comes later
)

var stepKinds = map[Kind]stepKind{
	Push: stepPush, PopMin: stepPopMin, PopMax: stepPopMax, PeekMin: stepPeekMin, PeekMax: stepPeekMax, Len: stepLen,
}

// queueModel is the sequential model of one queue.
type queueModel struct {
	ids      []fdbpq.ID // of the items, in order
	values   []string   // of the items; equal for items that were stored again
	acked    []int64    // when the push of each item was acknowledged
	popped   []bool     // whether anybody got the item
	oneByOne bool
	ordered  bool // no item comes back, so the order of pushes can be checked

	// simple: an open pop takes an item that nobody got, or nothing. That is less than
	// what may happen, and nearly always what did happen. An order found this way is
	// valid, and it is found much faster.
	simple bool
}

// apply does a step. It reports whether the step can have had its result.
func (m *queueModel) apply(s state, p *step) (ok bool, after state) {
	switch p.kind {
	case stepPush:
		if s.has(p.item) || !m.inOrder(&s, p) {
			return false, s
		}
		s.flip(p.item)
	case stepPopMin, stepPopMax, stepPeekMin, stepPeekMax:
		end := s.first()
		if p.kind == stepPopMax || p.kind == stepPeekMax {
			end = s.last()
		}
		if end != p.item {
			return false, s
		}
		if end >= 0 && (p.kind == stepPopMin || p.kind == stepPopMax) {
			s.flip(end)
		}
	case stepLen:
		n := int64(s.count())
		return n <= p.n && p.n <= n+p.slack, s
	case stepTakeMin, stepTakeMax:
		end := s.first()
		if p.kind == stepTakeMax {
			end = s.last()
		}
		if m.simple && !s.over && (end < 0 || m.popped[end]) {
			return false, s
		}
		if end >= 0 && !s.over {
			s.flip(end)
			s.held[p.slot] = uint16(end + 1)
		}
	case stepOver:
		s.over = true
	case stepGiveBack:
		if held := s.held[p.slot]; held > 0 {
			s.flip(int(held - 1))
			s.held[p.slot] = 0
		}
	case stepRestore:
		slot := slices.IndexFunc(s.held[:], func(h uint16) bool { return h > 0 && m.values[h-1] == m.values[p.item] })
		if slot < 0 {
			return false, s
		}
		s.held[slot] = 0
		s.flip(p.item)
	}
	return true, s
}

// inOrder reports whether the pushed item comes after all those of its priority that it
// must follow.
func (m *queueModel) inOrder(s *state, p *step) bool {
	if !m.ordered {
		return true
	}
	for later := p.item + 1; later < len(m.ids) && m.ids[later].Priority == m.ids[p.item].Priority; later++ {
		if s.has(later) && (m.oneByOne || m.acked[later] < p.call) {
			return false
		}
	}
	return true
}

func compareIDs(a, b fdbpq.ID) int {
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Count, b.Count), bytes.Compare(a.Random[:], b.Random[:]))
}

// newModel numbers the items.
func newModel(a *account, oneByOne bool) (*queueModel, map[fdbpq.ID]int, error) {
	m := &queueModel{oneByOne: oneByOne, ordered: oneByOne || a.open == 0}
	values := map[fdbpq.ID]string{}
	for value, ids := range a.ids {
		for _, id := range ids {
			values[id] = value
			m.ids = append(m.ids, id)
		}
	}
	if len(m.ids) > maxItems || a.open > MaxOpen {
		return nil, nil, fmt.Errorf("%w: %d items and %d pops of unknown outcome: the model has room for %d and %d",
			ErrUndecided, len(m.ids), a.open, maxItems, MaxOpen)
	}
	slices.SortFunc(m.ids, compareIDs)
	numbers := make(map[fdbpq.ID]int, len(m.ids))
	for i, id := range m.ids {
		numbers[id] = i
		value := values[id]
		m.values = append(m.values, value)
		acked := int64(math.MaxInt64)
		if push := a.pushes[value]; push.Outcome == Done && push.ID == id.String() {
			acked = push.Return
		}
		m.acked = append(m.acked, acked)
		m.popped = append(m.popped, a.got[id])
	}
	return m, numbers, nil
}

// steps translates the operations of a queue, for a simple model or for the full one.
func steps(a *account, ops []*Operation, numbers map[fdbpq.ID]int, simple bool) []porcupine.Operation {
	var list []porcupine.Operation
	unseen := a.unseen(ops)
	slot, last := 0, int64(0)
	for _, op := range ops {
		p := &step{kind: stepKinds[op.Kind], item: -1, call: op.Call, text: describe(op)}
		end := op.Return
		if op.open() {
			end = math.MaxInt64
		} else {
			last = max(last, end)
		}
		add := func(p *step) {
			list = append(list, porcupine.Operation{ClientId: op.Client, Input: p, Call: op.Call, Return: end})
		}
		ids := a.ids[op.Value]
		switch {
		case op.Outcome == Refused, op.open() && (op.Kind.peeks() || op.Kind == Len), op.Kind == Push && len(ids) == 0:
			continue
		case op.Kind.pops() && op.open():
			p.kind, p.slot = stepTakeMin, slot
			if op.Kind == PopMax {
				p.kind = stepTakeMax
			}
			slot++
			if simple {
				break
			}
			add(p)
			p = &step{kind: stepGiveBack, slot: p.slot, text: "put back what " + p.text + " took"}
		case op.Kind == Len:
			p.n = op.Len
			for _, call := range unseen {
				if call < op.Return && p.slack < int64(a.open) {
					p.slack++
				}
			}
		case op.Kind == Push:
			p.item = numbers[ids[0]]
			for _, id := range ids[1:] {
				list = append(list, porcupine.Operation{
					ClientId: op.Client, Call: op.Call, Return: math.MaxInt64,
					Input: &step{kind: stepRestore, item: numbers[id], text: "push again what a lost pop took: " + op.Value},
				})
			}
		case op.Outcome == Done:
			id, _ := fdbpq.ParseID(op.ID) // was parsed before
			p.item = numbers[id]
		}
		add(p)
	}
	if simple {
		list = append(list, porcupine.Operation{Input: &step{kind: stepOver}, Call: last + 1, Return: last + 2})
	}
	return list
}

// unseen returns the times since when there may have been items whose ids no client was
// told: those of pushes without an answer, and those that one pop pushed again and
// another took. Each must have been taken by an open pop, so there were at most as many
// as open pops.
func (a *account) unseen(ops []*Operation) []int64 {
	var calls []int64
	missing := a.missing()
	for _, op := range ops {
		again := a.open > 1 && (len(a.ids[op.Value]) > 1 || slices.Contains(missing, op.Value))
		if op.Kind == Push && (op.open() || again) {
			calls = append(calls, op.Call)
		}
	}
	return calls
}

func describe(op *Operation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", op.Kind)
	if op.Kind == Push {
		fmt.Fprintf(&b, "(%d, %s)", op.Priority, op.Value)
	}
	switch {
	case op.Outcome != Done:
		fmt.Fprintf(&b, " → %s", op.Outcome)
	case op.Kind == Len:
		fmt.Fprintf(&b, " → %d", op.Len)
	case op.Kind != Push:
		fmt.Fprintf(&b, " → %s", op.Value)
	}
	return b.String()
}

// porcupine returns the model in the form that porcupine wants.
func (m *queueModel) porcupine() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return state{} },
		Step: func(s, input, _ any) (bool, any) {
			return m.apply(s.(state), input.(*step))
		},
		Equal:             func(a, b any) bool { return a.(state) == b.(state) },
		Hash:              func(s any) uint64 { x := s.(state); return x.hash() },
		DescribeOperation: func(input, _ any) string { return input.(*step).text },
		DescribeState:     func(s any) string { return m.describeState(s.(state)) },
	}
}

func (m *queueModel) describeState(s state) string {
	var there []string
	for i, value := range m.values {
		if s.has(i) {
			there = append(there, fmt.Sprintf("%d:%s", m.ids[i].Priority, value))
		}
	}
	return "[" + strings.Join(there, " ") + "]"
}
