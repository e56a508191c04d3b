package fdbpq

import (
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// queueSource is the operations on the source of one queue. What they change is checked before the
// pushes that follow, and written after, if those were done.
type queueSource struct {
	*queueTxn
	indexes []int // into txn.ops
	stored  kv.Future[[]byte]
	changed int // index of the OpSetSource, -1 if there is none
}

// sources is those of all queues.
type sources []*queueSource

// begin starts to read the states: with conflict, because a change depends on them.
func (s sources) begin() {
	for _, q := range s {
		r := q.snapshot
		if q.tx != nil {
			r = q.tx
		}
		q.stored = r.Get(q.l.SourceKey())
	}
}

// check sets the results, as if all that follows could be done. In a transaction it comes after what
// changes settings, and with them the states.
func (s sources) check() error {
	if len(s) > 0 && s[0].tx != nil {
		s.begin()
	}
	return each(s, (*queueSource).check)
}

func (q *queueSource) check() error {
	state, err := q.stored.Get()
	if err != nil {
		return err
	}

	q.changed = -1
	for _, i := range q.indexes {
		r := &q.results[i]
		switch {
		case q.ops[i].Kind == OpSource || q.tx == nil:
		case q.changed >= 0:
			r.Err = fmt.Errorf("%w: the source changes once in a transaction", ErrNoRoom)
		case state == nil:
			r.Err = ErrNoSource
		default:
			if err := q.change(i, state); err != nil {
				return err
			}
		}
		if q.ops[i].Kind == OpSource {
			r.Source = state
		}
		if q.leads(i) && r.Err != nil {
			q.results[i+1].Err = r.Err
		}
	}
	return nil
}

// change runs an OpSetSource, but for writing the state. The error is one of the store.
func (q *queueSource) change(i int, state []byte) (err error) {
	r := &q.results[i]
	if r.Source, r.Err = q.ops[i].Change(state); r.Err != nil {
		return nil
	}

	if len(q.ops[i].Dead) > 0 { // their queue may be corrupt, and then nothing is to be pushed here
		settings, err := q.ledger.ReadableSettings()
		if err == nil {
			err = q.dead.Target(q.l.DeadLetters(settings.DeadLetter), 0).LoadNext(0)
		}
		if err = q.failOps(err, i); err != nil || r.Err != nil {
			return err
		}
	}
	q.changed = i
	return nil
}

// leads reports whether pushes follow the operation.
func (q *queueSource) leads(i int) bool {
	return i+1 < len(q.ops) && q.ops[i+1].Kind == OpPush && q.ops[i+1].Follows && q.ops[i].Kind == OpSetSource
}

// write writes what has changed, unless the pushes that follow have failed.
func (s sources) write() error { return each(s, (*queueSource).write) }

func (q *queueSource) write() error {
	i := q.changed
	if i < 0 {
		return nil
	}
	r := &q.results[i]
	if q.leads(i) && q.results[i+1].Err != nil {
		r.Source, r.Err = nil, q.results[i+1].Err
		return nil
	}

	settings, err := q.ledger.ReadableSettings()
	if err != nil {
		return err
	}
	for _, m := range q.ops[i].Dead {
		if err := q.dead.BuryNew(q.l, settings, m); err != nil {
			return err
		}
	}
	q.ledger.SetSource(r.Source)
	return nil
}
