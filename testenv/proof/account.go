package proof

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// account tracks what became of the items of one queue.
type account struct {
	queue    string
	pushes   map[string]*Operation // by value
	ids      map[string][]fdbpq.ID // all that clients were told, by value, oldest first
	popped   map[string]bool       // by value
	got      map[fdbpq.ID]bool     // popped, by id
	open     int                   // pops of unknown outcome
	takers   int                   // those of them that may have taken an item for good
	problems []error
}

func (a *account) problem(format string, args ...any) {
	a.problems = append(a.problems, fmt.Errorf("queue %s: "+format, append([]any{a.queue}, args...)...))
}

// newAccount reads the operations of one queue.
func newAccount(queue string, ops []*Operation, mortal bool) *account {
	a := &account{
		queue:  queue,
		pushes: map[string]*Operation{},
		ids:    map[string][]fdbpq.ID{},
		popped: map[string]bool{},
		got:    map[fdbpq.ID]bool{},
	}
	for _, op := range ops {
		switch {
		case op.Kind == Push:
			a.pushes[op.Value] = op
			if op.Outcome == Done {
				a.see(op)
			}
		case op.Kind.pops() && op.open():
			a.open++
			if op.Outcome == Lost || mortal {
				a.takers++
			}
		}
	}
	for _, op := range ops {
		if op.Outcome == Done && (op.Kind.pops() || op.Kind.peeks()) {
			a.out(op)
		}
	}
	a.checkPushes()
	return a
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

// out records an item that was popped or seen.
func (a *account) out(op *Operation) {
	push := a.pushes[op.Value]
	switch {
	case push == nil:
		a.problem("invented: %s returned %q, which nobody pushed", op.Kind, op.Value)
		return
	case push.Outcome == Refused:
		a.problem("refused, but done: %s returned %q, whose push was answered %q", op.Kind, op.Value, push.Text)
	}
	a.see(op)
	if op.Kind.pops() {
		if a.popped[op.Value] {
			a.problem("popped twice: %q", op.Value)
		}
		a.popped[op.Value] = true
	}
}

// see records the id of an item.
func (a *account) see(op *Operation) {
	id, err := fdbpq.ParseID(op.ID)
	if err != nil {
		a.problem("%s of %q: %w", op.Kind, op.Value, err)
		return
	}
	if want := a.pushes[op.Value].Priority; id.Priority != want {
		a.problem("%q has priority %d, was pushed with %d", op.Value, id.Priority, want)
	}
	if op.Kind.pops() {
		a.got[id] = true
	}
	if !slices.Contains(a.ids[op.Value], id) {
		a.ids[op.Value] = append(a.ids[op.Value], id)
	}
}

// missing returns the values that were seen, or whose push was acknowledged, but that
// nobody popped.
func (a *account) missing() []string {
	var missing []string
	for value := range a.ids {
		if !a.popped[value] {
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
// and value, with what clients saw. Only pushes and pops of unknown outcome can leave
// anything; see also Settled.
func (h *History) CheckLeft(left map[string][]string) error {
	var problems []error
	names, ops := h.byQueue()
	for _, name := range names {
		a := newAccount(name, ops[name], h.Mortal)
		for _, value := range left[name] {
			push := a.pushes[value]
			switch {
			case push == nil || push.Outcome == Refused:
				a.problem("left: %q, which nobody pushed", value)
			case a.popped[value]:
				a.problem("popped and left: %q", value)
			case push.Outcome == Done && a.open == 0:
				a.problem("left: %q, after the queue was said to be empty", value)
			}
			a.popped[value] = true
		}
		a.checkMissing(a.takers)
		problems = append(problems, a.problems...)
	}
	return errors.Join(problems...)
}

// Settled reports whether all operations have a known outcome, so that nothing can be
// left.
func (h *History) Settled() bool {
	return !slices.ContainsFunc(h.Operations, func(op Operation) bool {
		return op.open() && (op.Kind == Push || op.Kind.pops())
	})
}
