package fdbpq

import (
	"slices"

	"github.com/pqbridge/pqbridge/subjects/trail"
)

// Successors are what acknowledgements push: see Report.Next. They are added as dead letters are,
// so that no limit of a queue makes a job run again that is done.

// beginNext starts to read what the successors of an acknowledgement take.
func (q *queueSettlements) beginNext(s *settlement) {
	successors := s.Successors()
	for i := range successors {
		next := &successors[i]
		if l := next.Queue.Layout(); q.l.PushesTo(l) {
			to := q.outgoing.To(l, next.priorityIn(l))
			if joiner := next.Message.Joiner; joiner != nil {
				to.Ledger.BeginJoiner(joiner)
			}
		}
	}
}

// loadNext waits for what beginNext has started, and makes sure that the successors of a chain can
// be pushed. The error is for the chain, or one of the store.
func (q *queueSettlements) loadNext(chain []settlement) error {
	size := 0
	for k := range chain {
		successors := chain[k].Successors()
		if len(successors) == 0 {
			continue
		}
		settings, err := q.ledger.Settings()
		if err != nil {
			return err
		}

		for n := range successors {
			if of := successors[n].Parent; of < 0 || of >= len(chain) {
				return badOp("successor %d: its parent is acknowledgement %d of %d", n, of,
					len(chain))
			}
			name := successors[n].Queue.Layout().Name()
			if !slices.Contains(settings.Next, name) {
				return badOp("successor %d: the setting next of the queue %q does not name the "+
					"queue %q: add it there", n, q.l.Name(), name)
			}
			if err := q.loadSuccessor(successors, n); err != nil {
				return err
			}
		}
		size += chain[k].tokenBytes(nil)
	}

	if size > MaxMessageSize {
		return badOp("the successors take %d bytes in a transaction: want at most %d: "+
			"push fewer, or smaller ones", size, MaxMessageSize)
	}
	return nil
}

// loadSuccessor waits for the next count and the settings of the queue of a successor.
func (q *queueSettlements) loadSuccessor(successors []Op, n int) error {
	next := &successors[n]
	l := next.Queue.Layout()
	priority := next.priorityIn(l)
	to := q.outgoing.To(l, priority)
	if err := to.LoadNext(priority); err != nil {
		return err
	}
	settings, err := to.Ledger.ReadableSettings()
	joiner := joinerOf(successors, nil, n)
	if err != nil || joiner == nil {
		return err
	}
	if err := checkNamed(l, joiner, settings); err != nil {
		return badOp("successor %d: %w", n, err)
	}
	return nil
}

// pushNext pushes the successors of a chain that loadNext has loaded, and whose leases have ended.
func (q *queueSettlements) pushNext(chain []settlement) error {
	for k := range chain {
		successors := chain[k].Successors()
		ids := make([]ID, 0, len(successors))
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
			m.Expires, m.Joiner = next.expires(q.now, settings), joinerOf(successors, ids, n)
			if m.Joiner != nil {
				waits, err := mayJoin(&to.Ledger, m.Joiner)
				if err != nil {
					return err
				}
				if !waits { // the lease has ended, so it is pushed all the same
					m.Joiner = nil
				}
			}
			parent, keepsTrail := &chain[next.Parent], q.ledger.Trail() > 0
			if keepsTrail {
				of := trail.Job{Queue: q.l.Name(), ID: parent.job.String()}
				m.SetHeader(trail.HeaderParent, []string{of.String()})
			}
			id := to.Push(priority, &m, q.now, next.heldUntil(q.now))
			ids = append(ids, id)
			if keepsTrail {
				pushed := trail.Job{Queue: l.Name(), ID: id.String()}
				parent.pushed = append(parent.pushed, pushed)
			}
			to.Ledger.SideEffects.Next++
		}
	}
	return nil
}
