package proof_test

import (
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
)

// toNobody sends a request without a receiver. Its items must come back if nothing breaks; else the
// books take them for lost, because nobody knows when the request was handled.
func (w *teller) toNobody() {
	op := w.take(w.workload.random.IntN(4) > 0)
	if slices.Contains(w.unique, op.Queue) || slices.Contains(w.mortal, op.Queue) {
		return // another item may get the key meanwhile, and an item may die
	}

	nc := w.line.nc
	m := w.encodePop(&op, w.workload.random.IntN(2) == 0)

	if op.JetStream {
		m = encodePull(&pending{op: op})
	}

	m.Reply = nc.NewInbox()
	op.Client, op.Call, op.Outcome = w.number, time.Since(w.bank.zero).Nanoseconds(), books.Gone
	gone, err := &nats.Subscription{}, error(nil)

	if w.sent++; op.JetStream && w.sent%2 == 0 { // somebody is there for a moment
		gone, err = nc.SubscribeSync(m.Reply)
		defer func() { _ = gone.Unsubscribe() }() // the connection may be closed
	}

	if err = errors.Join(err, nc.PublishMsg(m)); err != nil {
		op.Outcome = books.Refused
	}

	if op.Outcome == books.Gone && len(w.faults) > 0 {
		op.Outcome = books.Lost
	}

	op.Return = time.Since(w.bank.zero).Nanoseconds()
	w.end(&op, books.Intent{})
}

// calmSystems are systems in which nothing breaks, so every item must be accounted for, even if
// nobody was there to receive it.
func calmSystems() []system {
	return []system{
		{"mem-calm", calmly(func(r *rig) {
			// Any of the hundreds of reads in a batch may fail it, and it is tried until it
			// succeeds.
			startBridges(r, map[faultkv.Fault]float64{
				faultkv.Delay:    0.1,
				faultkv.TooOld:   0.001,
				faultkv.Conflict: 0.05,
			})
		}), 1},
		{"embedded-calm", calmly(startKill), 1},
	}
}

// calmly starts a system in which nothing breaks, and which answers each request, however slow the
// machine is.
func calmly(start func(*rig)) func(*rig) {
	return func(r *rig) {
		r.patient = true
		start(r)
		r.faults = nil
	}
}
