package proof

import (
	"math"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
)

// step is an operation of the model. Its result is part of it.
type step struct {
	kind stepKind
	call int64
	end  int64 // when it was answered
	back bool  // at which end of the queue
	text string

	item    int // pushed; -1 for none. With stepServe, acknowledged before
	tokens  []token
	use     books.Kind // of the tokens
	delayed bool       // Nak or stepPush has a delay
	hold    uint16     // of Nak, Extend, stepPush and stepMayLease

	served []served // in order
	asked  int      // how many items
	cut    bool     // the next one is too large, see isCut
	left   int64    // of MaxBytes
	peek   bool

	n     int64 // result of a len
	slack int64 // items that it may count although nobody ever saw them
	slot  int   // of what a pop of unknown outcome took
}

// served is one item of a result.
type served struct {
	item  int
	fence uint16 // 0 if it is not leased
	hold  uint16
}

type stepKind uint8

const (
	stepPush stepKind = iota
	stepServe
	stepLen
	stepSettle
	stepStale
	stepMaySettle // a use of a token with unknown outcome counts, if the token holds
	stepMayTake   // an open pop takes an item, if there is one
	stepMayLease  // an open lease does
	stepGiveBack  // the item of an open pop is put back
	stepRestore   // an item that one of them took is pushed again
	stepOver      // no operation with a known outcome comes later
)

// translation turns the operations of a queue into steps.
type translation struct {
	a      *account
	m      *queueModel
	unseen []int64
	slots  int
	last   int64 // when the last operation of known outcome was answered
	list   []porcupine.Operation
}

// steps translates the operations of a queue, for a simple model or for the full one.
func steps(a *account, m *queueModel) []porcupine.Operation {
	t := &translation{a: a, m: m, unseen: a.unseen()}
	m.holds = m.holds[:0]
	for _, op := range a.ops {
		if !op.Open() {
			t.last = max(t.last, op.Return)
		}
		t.translate(op)
	}

	if m.simple {
		over := &step{kind: stepOver, item: -1}
		t.list = append(t.list,
			porcupine.Operation{Input: over, Call: t.last + 1, Return: t.last + 2})
	}

	return t.list
}

// add adds a step that takes place between the request and the answer, or at any time after
// the request if that is math.MaxInt64.
func (t *translation) add(op *books.Operation, end int64, p step) {
	p.call, p.end, p.back = op.Call, end, op.Kind.Back()
	if p.text == "" {
		p.text = op.String()
	}
	t.list = append(t.list,
		porcupine.Operation{ClientId: op.Client, Input: &p, Call: op.Call, Return: end})
}

func (t *translation) translate(op *books.Operation) {
	switch {
	case op.Outcome == books.Refused:
	case op.Kind == books.Push:
		t.push(op)
	case op.Kind == books.Len && op.Outcome == books.Done:
		t.add(op, op.Return, step{kind: stepLen, item: -1, n: op.Len, slack: t.slack(op)})
	case op.Kind.Settles() && op.Outcome == books.Stale:
		t.add(op, op.Return, step{kind: stepStale, item: -1, tokens: t.tokens(op)})
	case op.Kind.Settles() && op.Open() && len(op.Items) == 0:
		t.maySettle(op)
		t.mayTake(op)
	case op.Kind == books.Ack || op.Kind == books.Nak || op.Kind == books.Extend:
		t.add(op, op.Return, t.settle(op, stepSettle, op.Return))
	case op.Spread:
		t.pull(op)
	case op.Kind.Serves() && !op.Open():
		t.serve(op, op.Asked())
	case op.Kind.Pops() || op.Kind.Leases():
		if len(op.Items) > 0 {
			t.serve(op, len(op.Items))
		}
		t.mayTake(op)
	}
}

// number returns the number of an item, whose id was parsed before.
func (t *translation) number(id string) int {
	parsed, _ := fdbpq.ParseID(id)
	return t.m.numbers[parsed]
}

// tokens returns the tokens that an operation uses.
func (t *translation) tokens(op *books.Operation) (list []token) {
	for _, part := range op.Parts() {
		isLost := part.Outcome == books.Stale
		list = append(list, token{t.number(part.ID), uint16(part.Fence), isLost})
	}
	return list
}

// push adds the push of an item that anybody saw.
func (t *translation) push(op *books.Operation) {
	ids := t.a.ids[op.Value]
	if len(ids) == 0 {
		return
	}

	end := op.Return
	if op.Open() {
		end = math.MaxInt64
	}

	p := step{kind: stepPush, item: t.m.numbers[ids[0]], delayed: op.Delay > 0}
	if p.delayed {
		p.hold = t.delayHold(op.Call+op.Delay, later(end, op.Delay))
	}

	t.add(op, end, p)
	for _, id := range ids[1:] {
		t.add(op, math.MaxInt64, step{kind: stepRestore, item: t.m.numbers[id],
			text: "push again what a lost pop took: " + op.Value})
	}
}

// serve adds an operation that returned items.
func (t *translation) serve(op *books.Operation, asked int) {
	p := step{kind: stepServe, item: -1, asked: asked, peek: op.Kind.Peeks()}
	p.cut, p.left = op.IsCut(), op.LeftOfMaxBytes()

	// One transaction does both, but other operations in it may come in between.
	if op.Kind.Nexts() {
		p.item = t.number(op.ID)
		t.add(op, op.Return, step{kind: stepSettle, item: -1, tokens: t.tokens(op),
			use: books.Ack, text: "the ack of " + op.String()})
	}

	for _, item := range op.Got() {
		got := served{item: t.number(item.ID)}
		if op.Kind.Leases() {
			got.fence, got.hold = uint16(item.Fence), t.leaseHold(item)
		}
		p.served = append(p.served, got)
	}

	t.add(op, op.Return, p)
}

// settle returns the step of an operation with a token.
func (t *translation) settle(op *books.Operation, kind stepKind, answered int64) step {
	p := step{kind: kind, item: -1, tokens: t.tokens(op), use: op.Kind}
	switch op.Kind {
	case books.Nak:
		p.delayed = op.Delay > 0 || kind == stepMaySettle
		p.hold = t.delayHold(op.Call+op.Delay, later(answered, op.Delay))
	case books.Extend:
		if kind == stepMaySettle {
			p.hold = t.delayHold(op.Call+op.Wait, math.MaxInt64)
			break
		}
		if op.Until == 0 {
			p.hold = t.delayHold(op.Call+op.Wait, op.Return+op.Wait)
			break
		}

		p.hold = t.leaseHold(books.Item{ID: op.ID, Fence: op.Fence, Until: op.Until})
	}

	return p
}

// maySettle adds what an operation with a token may have done, unless what happened to the item
// shows that it did nothing. An Extend of unknown outcome also makes the end of the lease before it
// uncertain: see account.extended.
func (t *translation) maySettle(op *books.Operation) {
	cannotCount := func(part *books.Operation) bool { return !t.a.mayCount(part) }
	if slices.ContainsFunc(op.Parts(), cannotCount) {
		return
	}

	p := t.settle(op, stepMaySettle, math.MaxInt64)
	if op.Kind.Nexts() {
		p.use = books.Ack
	}

	t.add(op, math.MaxInt64, p)
}

// mayTake adds what a pop or lease of unknown outcome may have done.
func (t *translation) mayTake(op *books.Operation) {
	for range op.Untold() {
		if op.Kind.Leases() {
			// A lease that nobody receives ends at once.
			hold := t.delayHold(op.Call, math.MaxInt64)
			t.add(op, math.MaxInt64, step{kind: stepMayLease, item: -1, hold: hold})
			continue
		}

		t.add(op, math.MaxInt64, step{kind: stepMayTake, item: -1, slot: t.slots})
		if !t.m.simple {
			t.add(op, math.MaxInt64, step{kind: stepGiveBack, item: -1, slot: t.slots,
				text: "put back what " + op.String() + " took"})
		}

		t.slots++
	}
}

// later adds to a time that may be "never".
func later(at, by int64) int64 {
	if at == math.MaxInt64 {
		return at
	}
	return at + by
}

// leaseHold returns when a leased item comes back.
func (t *translation) leaseHold(item books.Item) uint16 {
	h := hold{item.Until - t.a.tolerance, item.Until + t.a.tolerance}
	id, _ := fdbpq.ParseID(item.ID)
	if t.a.extended[lease{id, item.Fence}] {
		h.by = math.MaxInt64
	}
	return t.addHold(h)
}

// delayHold returns when an item comes back that one bridge keeps until some time between the
// given ones by the clock of the history, and that another may serve.
func (t *translation) delayHold(from, by int64) uint16 {
	return t.addHold(hold{from - 2*t.a.tolerance, later(by, 2*t.a.tolerance)})
}

// addHold adds an entry to the holds of the model. A pop or lease of unknown outcome may have
// taken the item as soon as it was back.
func (t *translation) addHold(h hold) uint16 {
	if !t.m.simple && t.m.openFrom <= h.by {
		h.by = math.MaxInt64
	}
	t.m.holds = append(t.m.holds, h)
	return uint16(len(t.m.holds) - 1)
}

// slack returns how many items a len may count that nobody ever saw.
func (t *translation) slack(op *books.Operation) int64 {
	slack := 0
	for _, call := range t.unseen {
		if call < op.Return && slack < t.a.open {
			slack++
		}
	}

	// An item may have expired before anybody saw it.
	for value, push := range t.a.pushes {
		if push.TTL > 0 && push.Open() && len(t.a.ids[value]) == 0 && push.Call < op.Return {
			slack++
		}
	}

	return int64(slack)
}

// unseen returns the times since when there may have been items whose ids no client was told: items
// of pushes without an answer, successors, and items that one pop pushed again and another took. An
// open pop must have taken each of them, so there were at most as many as open pops.
func (a *account) unseen() []int64 {
	var calls []int64
	missing := a.missing()
	for _, op := range a.ops {
		again := a.open > 1 && (len(a.ids[op.Value]) > 1 || slices.Contains(missing, op.Value))
		unseen := op.Outcome == books.Done && len(a.ids[op.Value]) == 0
		if op.Kind == books.Push && (op.Open() || unseen || again) {
			calls = append(calls, op.Call)
		}
	}

	return calls
}

// pull adds a pull that may have got its items in several transactions.
func (t *translation) pull(op *books.Operation) {
	one := step{kind: stepServe, item: -1, asked: 1}
	for _, item := range op.Got() {
		got := one
		got.served = []served{{t.number(item.ID), uint16(item.Fence), t.leaseHold(item)}}
		t.add(op, op.Return, got)
	}

	if op.Open() {
		t.mayTake(op)
	}

	few := op.Outcome == books.Empty || op.Outcome == books.Done && len(op.Items) < op.Asked()
	if few && op.Expires == 0 && !op.Cut {
		t.add(op, op.Return, one)
	}
}
