package fdbpq

import (
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
)

// MaxNext is the most elements of Report.Next.
const MaxNext = 256

// Successors are what acknowledgements push: see Report.Next. They are added as dead letters are,
// so that no limit of a queue makes a job run again that is done.

// checkNext returns an error if the operation can never push its successors.
func (op *Op) checkNext(l *codec.Layout) error {
	successors := op.Report.Next
	switch {
	case len(successors) == 0:
		return nil
	case op.Kind != OpAck:
		return badOp("successors: only an acknowledgement has them")
	case len(successors) > MaxNext:
		return badOp("%d successors: want at most %d", len(successors), MaxNext)
	}

	for n := range successors {
		if err := successors[n].checkSuccessor(l); err != nil {
			return badOp("successor %d: %w", n, err) // badOp, so that too large is as bad
		}
	}
	return nil
}

// checkSuccessor returns an error if acknowledgements of a queue cannot make this push.
func (op *Op) checkSuccessor(of *codec.Layout) error {
	m := &op.Message
	switch {
	case op.Kind != OpPush:
		return badOp("it is of kind %d: want an OpPush", op.Kind)
	case m.MsgID != "" || m.Unique != "":
		return badOp("it has a message id or a unique key: want none, " +
			"because the lease makes the push happen once")
	case op.Weight != 0:
		return badOp("it has the weight %d: want none", op.Weight)
	case !of.PushesTo(op.Queue.Layout()):
		return badOp("its queue is of another kind or Keyspace: want the same")
	}
	return op.checkPush(nil)
}

// tokenBytes is about how many bytes of a transaction an operation with a token adds.
func (op *Op) tokenBytes(*codec.Layout) int {
	r := op.report()
	n := len(r.Result) + 2*len(r.ContentType)
	for i := range r.Next {
		next := &r.Next[i]
		n += state.RestoreOverhead + next.Queue.Layout().PushSize(&next.Message, next.delays())
	}
	return n
}

// priorityIn returns the priority that a push has in a queue: always 0 in a FIFO queue.
func (op *Op) priorityIn(l *codec.Layout) int64 {
	if l.Fifo {
		return 0
	}
	return op.Priority
}

// beginNext starts to read what the successors of an acknowledgement take.
func (q *queueSettlements) beginNext(op *Op) {
	successors := op.Successors()
	for i := range successors {
		next := &successors[i]
		if l := next.Queue.Layout(); q.l.PushesTo(l) {
			q.outgoing.To(l, next.priorityIn(l))
		}
	}
}

// loadNext waits for what beginNext has started, and makes sure that the successors of a chain can
// be pushed. The error is for the chain, or one of the store.
func (q *queueSettlements) loadNext(chain []int) error {
	size := 0
	for _, i := range chain {
		op := &q.ops[i]
		successors := op.Successors()
		if len(successors) == 0 {
			continue
		}
		settings, err := q.ledger.Settings()
		if err != nil {
			return err
		}

		for n := range successors {
			name := successors[n].Queue.Layout().Name()
			if !slices.Contains(settings.Next, name) {
				return badOp("successor %d: the setting next of the queue %q does not name the "+
					"queue %q: add it there", n, q.l.Name(), name)
			}
			if err := q.loadSuccessor(&successors[n]); err != nil {
				return err
			}
		}
		size += op.tokenBytes(nil)
	}

	if size > MaxMessageSize {
		return badOp("the successors take %d bytes in a transaction: want at most %d: "+
			"push fewer, or smaller ones", size, MaxMessageSize)
	}
	return nil
}

// loadSuccessor waits for the next count and the settings of the queue of a successor.
func (q *queueSettlements) loadSuccessor(next *Op) error {
	l := next.Queue.Layout()
	priority := next.priorityIn(l)
	to := q.outgoing.To(l, priority)
	if err := to.LoadNext(priority); err != nil {
		return err
	}
	_, err := to.Ledger.ReadableSettings()
	return err
}

// pushNext pushes the successors of a chain that loadNext has loaded, and whose leases have ended.
func (q *queueSettlements) pushNext(chain []int) error {
	for _, i := range chain {
		successors := q.ops[i].Successors()
		for n := range successors {
			next := &successors[n]
			l := next.Queue.Layout()
			priority := next.priorityIn(l)
			to := q.outgoing.To(l, priority)

			settings, err := to.Ledger.ReadableSettings()
			if err != nil {
				return err
			}
			m := next.Message
			m.Expires = next.expires(q.now, settings)
			to.Push(priority, &m, q.now, next.heldUntil(q.now))
			to.Ledger.Removed.Next++
		}
	}
	return nil
}
