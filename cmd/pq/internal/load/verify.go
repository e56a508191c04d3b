package load

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/client"
)

// event is one request as its client saw it. Times count from the start of the
// load.
type event struct {
	number, priority int64
	sent, replied    time.Duration
	unknown          bool // the request may or may not have been carried out
}

// events are the requests of a load that changed the queue or may have.
type events struct {
	pushes, pops []event
	lostPops     int64 // pops of unknown outcome: each may have taken an item
}

// add adds a request of items that succeeded, or may have.
func (e *events) add(name string, items []event, sent, replied time.Duration, err error) {
	unknown := errors.Is(err, client.ErrUnknownOutcome)
	if err != nil && !unknown {
		return
	}

	if unknown && name == opPop {
		e.lostPops++
		return
	}

	for _, item := range items {
		item.sent, item.replied, item.unknown = sent, replied, unknown
		if name == opPush {
			e.pushes = append(e.pushes, item)
		} else {
			e.pops = append(e.pops, item)
		}
	}
}

// Verify is the result of checking a load.
type Verify struct {
	Pushed int64 `json:"pushed"` // acknowledged
	Popped int64 `json:"popped"`
	// Lost items were acknowledged and never popped, beyond what pops of
	// unknown outcome explain.
	Lost int64 `json:"lost"`
	// Duplicates were popped more than once.
	Duplicates int64 `json:"duplicates"`
	// Unexpected items were popped but never pushed.
	Unexpected int64 `json:"unexpected"`
	// OutOfOrder pops returned an item although an earlier one was in the queue
	// all the time.
	OutOfOrder int64 `json:"out_of_order"`
	// Unknown is the number of requests whose outcome is unknown.
	Unknown int64 `json:"unknown"`
}

// OK reports whether the service kept its promises.
func (v *Verify) OK() bool {
	return v.Lost == 0 && v.Duplicates == 0 && v.Unexpected == 0 && v.OutOfOrder == 0
}

// verify compares what was popped with what was pushed.
func (e *events) verify() *Verify {
	v := &Verify{Popped: int64(len(e.pops)), Unknown: e.lostPops}
	pushes := make(map[int64]*event, len(e.pushes))
	for i := range e.pushes {
		p := &e.pushes[i]
		pushes[p.number] = p
		if p.unknown {
			v.Unknown++
		} else {
			v.Pushed++
		}
	}

	items := make([]served, 0, len(e.pops))
	seen := make(map[int64]bool, len(e.pops))
	for _, pop := range e.pops {
		push := pushes[pop.number]
		switch {
		case push == nil:
			v.Unexpected++
		case seen[pop.number]:
			v.Duplicates++
		default:
			items = append(items, served{push: *push, pop: pop})
		}
		seen[pop.number] = true
	}

	for _, push := range e.pushes {
		if !push.unknown && !seen[push.number] {
			v.Lost++
		}
	}

	v.Lost = max(0, v.Lost-e.lostPops)
	v.OutOfOrder = outOfOrder(items)
	return v
}

// served is an item that was pushed and popped.
type served struct{ push, pop event }

// outOfOrder counts the pops that took an item y although an item x that comes
// before y was in the queue during the whole pop. x comes before y if its priority
// is smaller, or equal and x was acknowledged before the push of y was sent.
//
// It goes through the pops in the order of their replies. At that time x is
// certainly in the queue if its own pop is sent later.
func outOfOrder(items []served) (n int64) {
	var arrivals []served // certainly in the queue from their reply on
	for _, item := range items {
		if !item.push.unknown {
			arrivals = append(arrivals, item)
		}
	}

	slices.SortFunc(arrivals,
		func(a, b served) int { return cmp.Compare(a.push.replied, b.push.replied) })
	slices.SortFunc(items,
		func(a, b served) int { return cmp.Compare(a.pop.replied, b.pop.replied) })

	waiting := map[int64][]served{} // by priority, oldest first
	for _, y := range items {
		now := y.pop.replied
		for len(arrivals) > 0 && arrivals[0].push.replied < now {
			x := arrivals[0]
			arrivals = arrivals[1:]
			waiting[x.push.priority] = append(waiting[x.push.priority], x)
		}

		for priority, xs := range waiting {
			for len(xs) > 0 && xs[0].pop.sent <= now {
				xs = xs[1:] // may have left the queue
			}
			waiting[priority] = xs
			if len(xs) == 0 || priority > y.push.priority {
				continue
			}

			before := y.pop.sent
			if priority == y.push.priority {
				before = min(before, y.push.sent)
			}
			if xs[0].push.replied < before {
				n++
				break
			}
		}
	}

	return n
}
