package fdbpq

import (
	"fmt"
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
)

// checkJoins returns why a chain of pushes cannot be pushed because of its members, or an error of
// the store. What was pushed before in the transaction counts.
func (q *queuePushes) checkJoins(chain []int, settings *Settings) error {
	for n, i := range chain {
		err := q.checkJoin(chain[:n], i, settings)
		if err != nil && len(chain) > 1 {
			err = fmt.Errorf("item %d: %w", n, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkJoin returns why a push cannot be a member of its joiner, or an error of the store. before
// is the pushes of its chain that come before it. A duplicate is not a member of anything.
func (q *queuePushes) checkJoin(before []int, i int, settings *Settings) error {
	op := &q.ops[i]
	joiner, of := op.Message.Joiner, i-op.MemberOf
	switch {
	case joiner == nil && op.MemberOf == 0 || q.dedup.First(&op.Message) != nil:
		return nil
	case op.MemberOf > len(before) || op.MemberOf > 0 && q.ops[of].Message.Join == 0:
		return errNoJoiner
	case op.MemberOf > 0:
		first := q.dedup.First(&q.ops[of].Message)
		if first == nil { // it will wait
			return nil
		}
		joiner = &Joiner{Queue: q.l.Name(), ID: *first}
	}

	if err := checkNamed(q.l, joiner, settings); err != nil {
		return err
	}
	waits, err := mayJoin(&q.ledger, joiner)
	if err == nil && !waits {
		err = fmt.Errorf("%w: the job %s in the queue %q", ErrJoined, joiner.ID, joiner.Queue)
	}
	return err
}

// checkNamed returns an error unless members in a queue with the settings may have the joiner.
func checkNamed(l *codec.Layout, joiner *Joiner, settings *Settings) error {
	if joiner.Queue == l.Name() || slices.Contains(settings.Next, joiner.Queue) {
		return nil
	}
	return badOp("a joiner in the queue %q, which the setting next of the queue %q does not "+
		"name: add it there", joiner.Queue, l.Name())
}

// mayJoin reports whether a joiner waits for further members. The error is one of the store.
func mayJoin(g *state.Ledger, joiner *Joiner) (bool, error) {
	if g.L.Fifo && joiner.ID.Priority != 0 { // its key would be that of another job
		return false, nil
	}
	return g.Waits(joiner)
}

// joinerOf returns the joiner of a successor, nil if it has none. One that is a successor too has
// its id only if it was pushed: then it has a place in ids.
func joinerOf(successors []Op, ids []ID, n int) *Joiner {
	next := &successors[n]
	if next.MemberOf == 0 {
		return next.Message.Joiner
	}
	of := n - next.MemberOf
	joiner := &Joiner{Queue: successors[of].Queue.Layout().Name()}
	if of < len(ids) {
		joiner.ID = ids[of]
	}
	return joiner
}
