package fdbpq

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
)

// runSettlements reads and settles the items of a few operations at a time.
func (t *txn) runSettlements(settlements []*queueSettlements) error {
	for {
		var queues []*queueSettlements // that have a span to run
		left := t.returned.AtOnce()
		for _, q := range settlements {
			if left > 0 && q.to < len(q.indexes) {
				left -= q.nextSpan(left)
				queues = append(queues, q)
			}
		}
		if len(queues) == 0 {
			return nil
		}
		if err := runSpans(queues); err != nil {
			return err
		}
	}
}

// runSpans runs the operations of the spans of some queues.
func runSpans(queues []*queueSettlements) error {
	if err := state.Each(queues, (*queueSettlements).beginReads); err != nil {
		return err
	}
	// A token may be of an item that is ready again, because its lease has run out.
	for _, q := range queues {
		q.readReady(q.from, q.to)
	}
	if err := state.Each(queues, (*queueSettlements).beginKeeps); err != nil {
		return err
	}
	if err := state.Each(queues, (*queueSettlements).beginBurials); err != nil {
		return err
	}
	return state.Each(queues, (*queueSettlements).runSpan)
}

// nextSpan chooses the operations of the next span, up to about limit, and returns how many. It
// never splits a chain.
func (q *queueSettlements) nextSpan(limit int) (n int) {
	q.from = q.to
	for q.to < len(q.indexes) && q.to-q.from < limit {
		q.to++
		for q.to < len(q.indexes) && tied(q.ops, q.indexes[q.to]) {
			q.to++
		}
	}
	return q.to - q.from
}

// runSpan runs the operations of the span, whose reads have begun.
func (q *queueSettlements) runSpan() error {
	if q.done == nil {
		q.done = make(map[ID]int, len(q.indexes))
	}

	n := q.from
	for chain := range chains(q.ops, q.indexes[q.from:q.to]) {
		if err := q.runChain(n, chain); err != nil {
			return err
		}
		n += len(chain)
	}

	clear(q.reads[q.from:q.to]) // they hold values
	clear(q.burials[q.from:q.to])
	clear(q.keeps.items)
	q.keeps.bytes = 0
	return nil
}

// runChain runs operations that are done together or not at all; the first has the place n. A chain
// of several has only acknowledgements.
func (q *queueSettlements) runChain(n int, chain []int) error {
	err := q.findChain(n, chain)
	if err == nil {
		err = q.loadNext(chain)
	}
	if err != nil {
		return q.failOps(err, chain...)
	}

	ended := 0
	for k, i := range chain {
		err := q.settle(n+k, q.found[k])
		if err = q.failOps(err, i); err != nil {
			return err
		}
		if q.results[i].ended {
			ended++
		}
	}
	if err := q.pushNext(chain); err != nil {
		return err
	}

	// The OpLeases that follow take the places of the leases that have ended.
	for i := chain[len(chain)-1] + 1; ended > 0 && i < len(q.ops); i++ {
		if q.ops[i].Kind != OpLease || !q.ops[i].Follows {
			break
		}
		q.results[i].place = true
		ended--
	}
	return nil
}

// settle ends or extends the lease of an item whose token holds, for the operation at place n. The
// error is ErrCorrupt, ErrNoRoom or one of the store; then nothing has changed.
func (q *queueSettlements) settle(n int, h *codec.Record) error {
	i := q.indexes[n]
	op, result := &q.ops[i], &q.results[i]
	if op.Kind == OpAck {
		return q.ack(n, h)
	}

	settings := &Settings{}
	if op.Kind == OpTerm || op.Kind == OpNak && !op.Uncounted {
		var err error
		if settings, err = q.ledger.Settings(); err != nil {
			return err
		}
	}
	if op.endsItem(h, settings, q.now) {
		b := q.burials[n]
		if b == nil {
			b = q.outgoing.BeginBurial(&q.ledger, &h.ID, settings)
		}
		return q.bury(i, h, b)
	}

	if !q.moving.fits(len(h.Value)) {
		return state.ErrNoRoom
	}
	q.ledger.DetachAnywhere(h)
	if op.Kind == OpNak {
		result.NextDue = q.giveBack(op, h, settings)
	} else {
		q.extend(op, h, result)
	}
	return nil
}

// ack removes an item, and keeps its job if the push or the settings say so.
func (q *queueSettlements) ack(n int, h *codec.Record) (err error) {
	op, result := q.opAt(n), &q.results[q.indexes[n]]
	if result.Freed, err = q.ledger.LimitsLeased(); err != nil {
		return err
	}
	finished, err := q.finished(n, h)
	if err != nil {
		return err
	}

	q.ledger.DetachAnywhere(h)
	q.ledger.Delete(h)
	if finished != nil {
		q.ledger.Finish(finished)
	}
	result.NotKept = finished == nil && op.report().Result != nil
	result.ValueDropped = finished != nil && finished.NoValue
	result.wait, result.holder, result.ended = h.Wait, h.Holder, h.State == Leased
	return nil
}

// extend leases a detached item to its holder for a further time.
func (q *queueSettlements) extend(op *Op, h *codec.Record, result *Result) {
	if op.Lease > 0 {
		h.Wait = op.Lease
	}
	if progress := op.report().Progress; len(progress) > 0 {
		h.SetProgress(progress)
	}

	// If the lease had run out, this grants a new one, so transactions that check how many items of
	// the group are leased must conflict with it.
	if hash := codec.GroupIn(&h.ID); h.State != Leased && hash > codec.NoGroup {
		q.ledger.ConflictLeasing(hash, false)
	}
	h.State, h.Due = Leased, q.now.Add(h.Wait)
	q.ledger.Hold(h)
	result.wait = h.Wait
	result.Lease = Lease{Token: op.Token, Until: codec.Micros(h.Due), Deliveries: h.Deliveries}
}
