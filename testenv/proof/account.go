package proof

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// account tracks what became of the items of one queue.
type account struct {
	queue    string
	pushes   map[string]*Operation // by value
	ids      map[string][]fdbpq.ID // all that clients were told, by value, oldest first
	settled  map[string]*Operation // by value: what popped or acknowledged the item
	maybe    map[string]bool       // by value: an acknowledgement of unknown outcome
	gone     map[fdbpq.ID]bool     // settled, by id
	leases   map[fdbpq.ID][]delivery
	naks     map[lease]*Operation   // that ended a lease
	mayNaks  map[lease][]*Operation // that may have
	extended map[lease]bool         // by operations of unknown outcome

	open       int   // items that pops of unknown outcome may have taken
	takers     int   // those of them that may be gone for good
	openLeases int   // items that leases of unknown outcome may have taken
	openFences int   // fences that they may have used
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

// delivery is a leased item that a client got.
type delivery struct {
	op   *Operation
	item Item
}

// clockSlack is how exact times are if clocks do not differ: leases end at a full
// microsecond, and the machine may adjust its clock.
const clockSlack = 10_000_000

func (a *account) problem(format string, args ...any) {
	a.problems = append(a.problems, fmt.Errorf("queue %s: "+format, append([]any{a.queue}, args...)...))
}

// newAccount reads the operations of one queue.
func (h *History) newAccount(queue string, ops []*Operation) *account {
	a := &account{
		queue:    queue,
		pushes:   map[string]*Operation{},
		ids:      map[string][]fdbpq.ID{},
		settled:  map[string]*Operation{},
		maybe:    map[string]bool{},
		gone:     map[fdbpq.ID]bool{},
		leases:   map[fdbpq.ID][]delivery{},
		naks:     map[lease]*Operation{},
		mayNaks:  map[lease][]*Operation{},
		extended: map[lease]bool{},

		openFrom:  math.MaxInt64,
		tolerance: h.Skew + clockSlack,
		maxLeased: h.MaxLeased[queue],
	}
	for _, op := range ops {
		a.last = max(a.last, op.Return)
		if op.Kind == Push {
			a.pushes[op.Value] = op
			if op.Outcome == Done {
				a.see(op, Item{Value: op.Value, ID: op.ID})
			}
		}
		a.addOpen(op, h.Mortal)
	}
	for _, op := range ops {
		if op.gaveUp() {
			a.problem("gave up early: %s after %v, and was to wait for %v", describe(op), time.Duration(op.Return-op.Call), time.Duration(op.Expires))
		}
		if wrong := op.wrongSize(); wrong != "" {
			a.problem("%s: %s", wrong, describe(op))
		}
		for _, item := range op.items() {
			a.out(op, item)
		}
		if op.Kind.settles() {
			for _, part := range op.parts() {
				a.use(part)
			}
		}
	}
	a.checkPushes()
	a.checkSettled(ops)
	a.checkDeliveries()
	return a
}

// addOpen counts what the operation may have taken without anybody getting it.
func (a *account) addOpen(op *Operation, mortal bool) {
	n := op.Untold()
	switch {
	case n == 0:
		return
	case op.Kind.leases():
		a.openLeases += n
		a.openFences += op.untoldFences()
	default:
		a.open += n
		if op.Outcome == Lost || mortal {
			a.takers += n
		}
	}
	a.openFrom = min(a.openFrom, op.Call)
}

// expiry returns when the item of a push expires, by the clock of the history. One bridge reckons from
// the push on, and another one may serve the item. Unless simple, what a pop of unknown outcome took
// may come back too late; and where groups have a limit, nobody knows which item it took.
func (a *account) expiry(push *Operation, simple bool) hold {
	if push.TTL == 0 {
		never := hold{math.MaxInt64, math.MaxInt64}
		if !simple && a.maxLeased > 0 && push.Group != "" {
			never.from = a.openFrom
		}
		return never
	}
	answered := push.Return
	if push.open() {
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
	return a.open+a.openLeases+len(a.maybe)+len(a.mayNaks)+len(a.extended) == 0
}

// checkPushes checks that items were stored once, and again only by pops whose reply
// could not be sent.
func (a *account) checkPushes() {
	again := 0
	for value, ids := range a.ids {
		slices.SortFunc(ids, func(x, y fdbpq.ID) int { return bytes.Compare(x.Random[:], y.Random[:]) })
		again += len(ids) - 1
		push := a.pushes[value]
		if push.Outcome == Done && push.ID != ids[0].String() {
			a.problem("stored twice: %q is %s, its push was answered %s", value, ids[0], push.ID)
		}
		if len(ids) > 1 && a.open == 0 {
			a.problem("stored twice: %q is %s", value, ids)
		}
	}
	if again > a.open {
		a.problem("stored again: %d items, and only %d pops can have done that", again, a.open)
	}
}

// checkMissing adds a problem if more items are missing than the given number of pops
// can have taken.
func (a *account) checkMissing(pops int) {
	if missing := a.missing(); len(missing) > pops {
		a.problem("lost: %q: acknowledged and not there any more, and only %d pops can have taken one", missing, pops)
	}
}

// out records an item that was popped, leased or seen.
func (a *account) out(op *Operation, item Item) {
	push := a.pushes[item.Value]
	switch {
	case push == nil:
		a.problem("invented: %s returned %q, which nobody pushed", op.Kind, item.Value)
		return
	case push.Outcome == Refused:
		a.problem("refused, but done: %s returned %q, whose push was answered %q", op.Kind, item.Value, push.Text)
	}
	if item.Size != push.Size {
		a.problem("%s returned %q with %d bytes, pushed with %d", op.Kind, item.Value, item.Size, push.Size)
	}
	id, ok := a.see(op, item)
	switch {
	case !ok:
	case op.Kind.pops():
		a.settle(op, item.Value, id)
	case op.Kind.leases():
		a.leases[id] = append(a.leases[id], delivery{op, item})
		a.checkUntil(op, item.Value, item.Until)
	}
}

// settle records that an operation removed an item.
func (a *account) settle(op *Operation, value string, id fdbpq.ID) {
	if before := a.settled[value]; before != nil {
		a.problem("settled twice: %q, by %s and %s", value, describe(before), describe(op))
	}
	a.settled[value] = op
	a.gone[id] = true
}

// see records the id of an item.
func (a *account) see(op *Operation, item Item) (id fdbpq.ID, ok bool) {
	id, err := fdbpq.ParseID(item.ID)
	if err != nil {
		a.problem("%s of %q: %w", op.Kind, item.Value, err)
		return id, false
	}
	if want := a.pushes[item.Value].Priority; id.Priority != want {
		a.problem("%q has priority %d, was pushed with %d", item.Value, id.Priority, want)
	}
	if !slices.Contains(a.ids[item.Value], id) {
		a.ids[item.Value] = append(a.ids[item.Value], id)
	}
	return id, true
}

// missing returns the values that were seen, or whose push was acknowledged, but that
// nobody popped or may have acknowledged, and that have not expired.
func (a *account) missing() []string {
	var missing []string
	for value := range a.ids {
		if push := a.pushes[value]; push.TTL > 0 && a.expiry(push, true).from <= a.last {
			continue
		}
		if a.settled[value] == nil && !a.maybe[value] {
			missing = append(missing, value)
		}
	}
	slices.Sort(missing)
	return missing
}

// byQueue returns the operations of each queue.
func (h *History) byQueue() (names []string, ops map[string][]*Operation) {
	ops = map[string][]*Operation{}
	for i := range h.Operations {
		op := &h.Operations[i]
		ops[op.Queue] = append(ops[op.Queue], op)
	}
	return slices.Sorted(maps.Keys(ops)), ops
}

// CheckLeft compares what was found in the queues after everything had ended, by queue
// and value, with what clients saw. Only operations of unknown outcome can leave
// anything; see also Settled.
func (h *History) CheckLeft(left map[string][]string) error {
	var problems []error
	names, ops := h.byQueue()
	for _, name := range names {
		a := h.newAccount(name, ops[name])
		a.last = math.MaxInt64
		there := map[string]bool{}
		for _, value := range left[name] {
			push := a.pushes[value]
			switch {
			case push == nil || push.Outcome == Refused:
				a.problem("left: %q, which nobody pushed", value)
			case a.settled[value] != nil:
				a.problem("settled and left: %q", value)
			case there[value]:
				a.problem("left twice: %q", value)
			case push.Outcome == Done && a.certain():
				a.problem("left: %q, after the queue was said to be empty", value)
			}
			there[value] = true
		}
		if missing := slices.DeleteFunc(a.missing(), func(v string) bool { return there[v] }); len(missing) > a.takers {
			a.problem("lost: %q: acknowledged and not there any more, and only %d pops can have taken one", missing, a.takers)
		}
		problems = append(problems, a.problems...)
	}
	return errors.Join(problems...)
}

// Settled reports whether all operations have a known outcome, so that nothing can be
// left.
func (h *History) Settled() bool {
	return !slices.ContainsFunc(h.Operations, func(op Operation) bool {
		return op.open() && (op.Kind == Push || op.Kind.pops() || op.Kind.leases() || op.Kind.settles())
	})
}
