package proof_test

import (
	"slices"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
)

// Some pops and leases of an account run have no receiver. While nothing is broken, their items
// must come back. If anything is, or was just before or after, the books take them for lost.
const (
	calmBefore = time.Second
	calmAfter  = 3 * time.Second
)

// calm knows whether faults are being made.
type calm struct {
	mu    sync.Mutex
	count int       // of beginnings and ends of faults
	ended time.Time // the last one
}

// note records the beginning or the end of a fault.
func (c *calm) note() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count++
	c.ended = time.Now()
}

// now returns a number that changes with each beginning and end of a fault, and whether there
// was none of these for a while.
func (c *calm) now() (count int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count, c.count%2 == 0 && time.Since(c.ended) > calmBefore
}

// unheard is a request without a receiver.
type unheard struct {
	op    books.Operation
	count int // of calm
	ok    bool
	until time.Time
}

// toNobody sends a request without a receiver.
func (w *teller) toNobody() {
	op := w.take(w.workload.random.IntN(4) > 0)
	if slices.Contains(w.unique, op.Queue) || slices.Contains(w.mortal, op.Queue) {
		return // another item may get the key meanwhile, and an item may die
	}
	count, ok := w.calm.now()
	if op.JetStream {
		w.pullForNobody(&op)
	} else {
		w.sendToNobody(&op, w.workload.random.IntN(2) == 0)
	}
	w.unheard = append(w.unheard, unheard{op, count, ok, time.Now().Add(calmAfter + time.Duration(op.Expires))})
}

// settleUnheard enters the requests that have had time to end, or all.
func (w *teller) settleUnheard(all bool) {
	for len(w.unheard) > 0 {
		u := &w.unheard[0]
		inTime := time.Now().After(u.until)
		if !inTime && !all {
			return
		}
		if count, _ := w.calm.now(); u.op.Outcome == books.Gone && len(w.faults) > 0 && (count != u.count || !u.ok || !inTime) {
			u.op.Outcome = books.Lost
		}
		u.op.Return = time.Since(w.bank.zero).Nanoseconds()
		w.end(&u.op, books.Intent{})
		w.unheard = w.unheard[1:]
	}
}

// calmSystems are systems in which nothing breaks, so every item must be accounted for, even
// those that nobody was there to receive.
func calmSystems() []system {
	return []system{
		{"mem-calm", calmly(func(r *rig) {
			// A batch has hundreds of reads, each of which may fail it, and is tried until it succeeds.
			startBridges(r, map[faultkv.Fault]float64{faultkv.Delay: 0.1, faultkv.TooOld: 0.001, faultkv.Conflict: 0.05})
		}), 1},
		{"embedded-calm", calmly(startKill), 1},
	}
}

// calmly starts a system in which nothing breaks, and which answers each request, however slow the machine is.
func calmly(start func(*rig)) func(*rig) {
	return func(r *rig) {
		r.patient = true
		start(r)
		r.faults = nil
	}
}
