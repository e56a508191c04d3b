package proof

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
)

// account is what the model has to know of the operations of one queue. Books judge them.
type account struct {
	queue    string
	ops      []*books.Operation
	sent     int                         // ops that are requests; the rest are pushes of successors
	pushes   map[string]*books.Operation // by value
	ids      map[string][]fdbpq.ID       // all that clients were told, by value, oldest first
	values   map[fdbpq.ID]string         // the other way round
	settled  map[string]*books.Operation // by value: what popped or acknowledged the item
	maybe    map[string]bool             // by value: an acknowledgement of unknown outcome
	gone     map[fdbpq.ID]bool           // settled, by id
	leases   map[fdbpq.ID]fences
	naks     map[lease]bool // that ended a lease
	mayNak   bool           // there is one of unknown outcome
	extended map[lease]bool // by operations of unknown outcome

	open       int   // items that pops of unknown outcome may have taken
	openLeases int   // items that leases of unknown outcome may have taken
	openFrom   int64 // when the first of these pops and leases was sent
	last       int64 // when the last operation was answered
	tolerance  int64 // between a time by the clock of a bridge and the history's
	maxLeased  int   // of each group; 0 is no limit
	problems   []error
}

// lease names a lease of an item.
type lease struct {
	id    fdbpq.ID
	fence int64
}

func (a *account) problem(format string, args ...any) {
	a.problems = append(a.problems, fmt.Errorf(format, args...))
}

// newAccount reads the operations of one queue. Successors are pushed to it by acknowledgements.
func (h *History) newAccount(queue string, ops, successors []*books.Operation) *account {
	a := &account{
		queue: queue, ops: slices.Concat(ops, successors), sent: len(ops),
		pushes: map[string]*books.Operation{}, ids: map[string][]fdbpq.ID{},
		values:  map[fdbpq.ID]string{},
		settled: map[string]*books.Operation{}, maybe: map[string]bool{},
		gone: map[fdbpq.ID]bool{}, leases: map[fdbpq.ID]fences{}, naks: map[lease]bool{},
		extended: map[lease]bool{},
		openFrom: math.MaxInt64, maxLeased: h.MaxLeased[queue],
		tolerance: h.Skew + books.ClockSlack,
	}

	for _, op := range a.ops {
		a.last = max(a.last, op.Return)
		if op.Kind == books.Push {
			a.pushes[op.Value] = op
			if op.Outcome == books.Done && op.ID != "" {
				a.see(op, books.Item{Value: op.Value, ID: op.ID})
			}
		}
		if n := op.Untold(); n > 0 {
			a.openFrom = min(a.openFrom, op.Call)
			if op.Kind.Leases() {
				a.openLeases += n
			} else {
				a.open += n
			}
		}
	}

	for _, op := range a.ops {
		for _, item := range op.Got() {
			a.out(op, item)
		}
		if op.Kind.Settles() {
			for _, part := range op.Parts() {
				a.use(part)
			}
		}
	}

	for _, ids := range a.ids {
		slices.SortFunc(ids, func(x, y fdbpq.ID) int {
			return slices.Compare(x.Random[:], y.Random[:])
		})
	}

	for _, known := range a.leases {
		slices.Sort(known)
	}

	return a
}

// successors returns the pushes that an acknowledgement makes. No client is told the ids of these
// items.
func successors(op *books.Operation) (pushes []*books.Operation) {
	for _, next := range op.Next {
		push := &books.Operation{
			Client: op.Client, Queue: next.Queue, Kind: books.Push, Value: next.Value,
			Size: next.Size, Outcome: op.Outcome, Call: op.Call, Return: op.Return,
		}
		switch {
		case op.Counts(), len(op.Items) > 0:
			push.Outcome = books.Done
		case op.Outcome == books.Stale:
			push.Outcome = books.Refused
		}
		pushes = append(pushes, push)
	}
	return pushes
}

// expiry returns when the item of a push expires, by the clock of the history. One bridge counts
// from the push on, and another one may serve the item. Unless simple, what a pop of unknown
// outcome took may come back too late, and where groups have a limit, nobody knows which item it
// took.
func (a *account) expiry(push *books.Operation, simple bool) hold {
	if push.TTL == 0 {
		never := hold{math.MaxInt64, math.MaxInt64}
		if !simple && a.maxLeased > 0 && push.Group != "" {
			never.from = a.openFrom
		}
		return never
	}

	answered := push.Return
	if push.Open() {
		answered = math.MaxInt64
	}

	h := hold{push.Call + push.TTL - 2*a.tolerance, later(later(answered, push.TTL), 2*a.tolerance)}
	if !simple {
		h.from = min(h.from, a.openFrom)
	}

	return h
}

// certain reports whether nothing in the queue depends on operations of unknown outcome, but
// pushes.
func (a *account) certain() bool {
	return a.open+a.openLeases+len(a.maybe)+len(a.extended) == 0 && !a.mayNak
}

// out records an item that was popped, leased or seen.
func (a *account) out(op *books.Operation, item books.Item) {
	push := a.pushes[item.Value]
	if push == nil {
		return // The books know of it.
	}
	if item.Size != push.Size {
		a.problem("%s returned %q of %d bytes, want %d", op.Kind, item.Value, item.Size, push.Size)
	}

	switch id := a.see(op, item); {
	case op.Kind.Pops():
		a.settled[item.Value], a.gone[id] = op, true
	case op.Kind.Leases():
		a.leases[id] = append(a.leases[id], uint16(item.Fence))
	}
}

// see records the id of an item.
func (a *account) see(op *books.Operation, item books.Item) fdbpq.ID {
	id, err := fdbpq.ParseID(item.ID)
	if err != nil {
		a.problem("%s of %q: %w", op.Kind, item.Value, err)
	} else if want := a.pushes[item.Value].Priority; id.Priority != want {
		a.problem("%q has priority %d, was pushed with %d", item.Value, id.Priority, want)
	}
	switch value, known := a.values[id]; {
	case !known:
		a.ids[item.Value] = append(a.ids[item.Value], id)
		a.values[id] = item.Value
	case value != item.Value:
		a.problem("%q and %q have one id", value, item.Value)
	}

	return id
}

// use records what an operation with a token did, or may have done.
func (a *account) use(op *books.Operation) {
	id, err := fdbpq.ParseID(op.ID)
	if err != nil {
		a.problem("%s: its token names no item: %v", op, err)
	}

	l := lease{id, op.Fence}
	switch {
	case op.Kind.Acks() && op.Counts():
		a.settled[op.Value], a.gone[id] = op, true
	case op.Kind.Acks() && op.Open():
		a.maybe[op.Value] = true
	case op.Kind == books.Nak && op.Counts():
		a.naks[l] = true
	case op.Kind == books.Nak && op.Open():
		a.mayNak = true
	case op.Kind == books.Extend && op.Open():
		a.extended[l] = true
	}
}

// mayCount reports whether an operation of unknown outcome with a token may have counted:
// whether nothing shows that the token still held later, or that somebody else had the item.
func (a *account) mayCount(op *books.Operation) bool {
	id, _ := fdbpq.ParseID(op.ID)
	end := a.settled[op.Value]
	if op.Kind.Acks() {
		known := a.leases[id]
		return end == nil && (len(known) == 0 || int64(known[len(known)-1]) <= op.Fence)
	}
	if op.Kind != books.Nak {
		return true
	}

	_, next := slices.BinarySearch(a.leases[id], uint16(op.Fence+1))
	acked := end != nil && end.Kind.Acks() && end.ID == op.ID && end.Fence == op.Fence
	return !next && !acked && !a.naks[lease{id, op.Fence}]
}

// missing returns the values that were seen, or whose push was acknowledged, but that
// nobody popped or may have acknowledged, and that have not expired.
func (a *account) missing() []string {
	var missing []string
	for value, push := range a.pushes {
		seen := len(a.ids[value]) > 0 || push.Outcome == books.Done && !books.IsTraced(a.queue)
		expires := push.TTL > 0 && a.expiry(push, true).from <= a.last
		if seen && !expires && a.settled[value] == nil && !a.maybe[value] {
			missing = append(missing, value)
		}
	}

	slices.Sort(missing)
	return missing
}

// audit enters the operations of a queue in books, as they were sent and answered, and then the
// items left by a time. It returns all that is wrong, but for the order of items.
func (h *History) audit(a *account, left []books.Item, at int64, final bool) error {
	b := books.Named(h.Skew)
	type event struct {
		at    int64
		enter func()
	}
	var events []event
	entered := a.ops
	if books.IsTraced(a.queue) { // the books know what acknowledgements push there
		entered = a.ops[:a.sent]
	}
	for _, op := range entered {
		entry, intent := *op, books.Intent{}
		if final && !h.Mortal && op.Kind.Pops() && op.Outcome == books.Unknown {
			entry.Outcome = books.Gone // The bridge that answered so has put the items back by now.
		}
		events = append(events, event{op.Call, func() { intent = b.Begin(&entry) }},
			event{op.Return, func() { b.End(&entry, intent) }})
	}
	slices.SortStableFunc(events, func(x, y event) int { return cmp.Compare(x.at, y.at) })
	for _, e := range events {
		e.enter()
	}
	for _, item := range left {
		b.Left(a.queue, item.Value, item.ID)
	}
	_, err := b.Close(at / 1_000_000)
	return errors.Join(append(a.problems, err)...)
}

// accounts returns the account of each queue, by name.
func (h *History) accounts() iter.Seq[*account] {
	queues := map[string][2][]*books.Operation{} // requests, and pushes of successors
	add := func(kind int, op *books.Operation) {
		lists := queues[op.Queue]
		lists[kind] = append(lists[kind], op)
		queues[op.Queue] = lists
	}
	for i := range h.Operations {
		add(0, &h.Operations[i])
		for _, push := range successors(&h.Operations[i]) {
			add(1, push)
		}
	}

	return func(yield func(*account) bool) {
		for _, name := range slices.Sorted(maps.Keys(queues)) {
			if !yield(h.newAccount(name, queues[name][0], queues[name][1])) {
				return
			}
		}
	}
}

// auditOf is the audit of a history that has just ended. Leases of unknown outcome may hold items
// even now, if a request was handled long after its client gave it up.
func (h *History) auditOf(a *account) error {
	var held []books.Item
	missing := a.missing()
	for _, value := range missing[:min(len(missing), a.openLeases)] {
		item := books.Item{Value: value}
		if ids := a.ids[value]; len(ids) > 0 { // else a successor, whose place nobody knows
			item.ID = ids[0].String()
		}
		held = append(held, item)
	}
	return h.audit(a, held, a.last, false)
}

// CheckLeft compares the items found in the queues after everything had ended, by queue, with what
// clients saw. Only operations of unknown outcome can leave anything; see also Settled.
func (h *History) CheckLeft(left map[string][]books.Item) error {
	var problems []error
	for a := range h.accounts() {
		for _, item := range left[a.queue] {
			push := a.pushes[item.Value]
			if push != nil && push.Outcome == books.Done && a.certain() {
				a.problem("left: %q, after the queue was said to be empty", item.Value)
			}
		}
		if err := h.audit(a, left[a.queue], math.MaxInt32*1_000_000, true); err != nil {
			problems = append(problems, fmt.Errorf("queue %s: %w", a.queue, err))
		}
	}

	return errors.Join(problems...)
}

// Settled reports whether all operations have a known outcome, so that nothing can be left.
func (h *History) Settled() bool {
	return !slices.ContainsFunc(h.Operations, func(op books.Operation) bool {
		return op.Open() && (op.Kind == books.Push || op.Kind.Takes() || op.Kind.Settles())
	})
}
