package fdbpq

import (
	"errors"
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
)

// queueSettlements is the operations with tokens of one queue. They run before the pops, which can
// take the items that they give back. They are read and run in spans, one after the other, which
// bounds the values in memory.
type queueSettlements struct {
	part
	reads   []state.Lookup  // by place: an index into part.indexes
	burials []*due.Burial   // by place; nil unless the item will probably be buried
	found   []*codec.Record // of one chain

	keeps keeping

	from, to int        // the places of the span
	done     map[ID]int // items that were found, by the last place, counted from 1
}

// checkToken returns an error if the delay, the length of the lease or the report are out of
// bounds.
func (op *Op) checkToken(l *codec.Layout) error {
	if op.Report != nil {
		if err := op.checkReport(l); err != nil {
			return err
		}
	}
	if (op.Delay < 0 || op.Delay > MaxDelay) && op.Delay != Backoff {
		return badOp("a delay of %v: want 0 to %v", op.Delay, MaxDelay)
	}
	if op.RetryDelay < 0 || op.RetryDelay > MaxDelay {
		return badOp("a retry delay of %v: want 0 to %v", op.RetryDelay, MaxDelay)
	}
	if op.RetryDelay > 0 && (op.Delay != Backoff || op.Uncounted) {
		return badOp("a retry delay of %v with a delay, or uncounted: want Backoff as the delay",
			op.RetryDelay)
	}
	return codec.CheckLease(op.Lease)
}

// runSettlements reads and settles the items of a few operations at a time.
func (t *txOps) runSettlements() error {
	for {
		var queues []*queueSettlements // that have a span to run
		left := t.returned.AtOnce()
		for _, q := range t.settlements {
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

// beginReads starts to read the items that the tokens of the span name. The error is one of the
// store.
func (q *queueSettlements) beginReads() error {
	if q.reads == nil {
		q.reads = make([]state.Lookup, len(q.indexes))
		q.burials = make([]*due.Burial, len(q.indexes))
	}

	// A span exceeds AtOnce only if its last chain does. Such a chain is read in parts, and the
	// values of one part are dropped before the next is read.
	atOnce := q.returned.AtOnce()
	for from := q.from; from < q.to; from += atOnce {
		to := min(from+atOnce, q.to)
		for n := from; n < to; n++ {
			op := q.opAt(n)
			q.reads[n] = q.lookUp(op)
			if codec.Moved(&op.Token.ID) && op.Kind != OpExtend && !q.keeps.by(op) {
				q.ledger.BeginDelete(&op.Token.ID)
			}
			if op.Kind == OpTerm || op.Kind == OpAck || op.Kind == OpNak && !op.Uncounted {
				q.ledger.BeginSettings() // which decide what becomes of the item
			}
			q.beginOrder(op)
			q.beginNext(op)
		}
		if to == q.to {
			break
		}

		// Acknowledgements need no values, unless they keep their jobs.
		q.readReady(from, to)
		for n := from; n < to; n++ {
			op := q.opAt(n)
			if op.Kind != OpAck { // it comes before the chain, and needs the value
				continue
			}
			if held, err := q.holdsValue(n); held || err != nil {
				if err != nil {
					return err
				}
				continue
			}
			if err := q.reads[n].Shrink(q.l, &op.Token.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// opAt returns the operation at a place.
func (q *queueSettlements) opAt(n int) *Op { return &q.ops[q.indexes[n]] }

// readReady is Lookup.LookUpReady for some places.
func (q *queueSettlements) readReady(from, to int) {
	for n := from; n < to; n++ {
		q.reads[n].LookUpReady(q.tx, q.l, &q.opAt(n).Token.ID)
	}
}

// lookUp starts to read the item of an operation where it is while it is held. An acknowledgement
// needs no value, unless it is known to keep the job.
func (q *queueSettlements) lookUp(op *Op) state.Lookup {
	if op.Kind == OpAck {
		read := q.ledger.LookUpLeased(&op.Token.ID)
		if message, known := read.Known(); !known || message != nil || !q.keeps.by(op) {
			return read
		}
	}
	return q.ledger.LookUpHeld(&op.Token.ID)
}

// beginBurials starts to read, in one round trip, what the burials of the span need, and the sizes
// of the items if the queue counts bytes.
func (q *queueSettlements) beginBurials() error {
	if !q.ledger.SettingsBegun() { // no operation can be the end of an item
		return nil
	}
	settings, err := q.ledger.Settings()
	if err != nil {
		return codec.UnlessCorrupt(err) // the operations that need them fail
	}

	for n := q.from; n < q.to; n++ {
		op := q.opAt(n)
		if settings.MaxBytes > 0 && op.Kind != OpExtend && q.keeps.items[n] == nil {
			q.ledger.BeginDelete(&op.Token.ID)
		}
		if op.Kind == OpAck || op.Kind != OpTerm && settings.MaxDeliver == 0 {
			continue
		}

		h, err := q.reads[n].Find(q.l, &op.Token)
		if err != nil && codec.UnlessCorrupt(err) != nil {
			return err
		}
		if h != nil && op.endsItem(h, settings, q.now) {
			q.burials[n] = q.outgoing.BeginBurial(&q.ledger, &h.ID, settings)
		}
	}
	return nil
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

// findChain finds the items of a chain and puts them into q.found. The error says why the chain
// fails, or is one of the store.
func (q *queueSettlements) findChain(n int, chain []int) (failed error) {
	q.found = q.found[:0]
	var lost []int
	for k := range chain {
		h, err := q.find(n, n+k)
		switch {
		case err != nil && codec.UnlessCorrupt(err) != nil && !errors.Is(err, ErrOp):
			return err
		case err != nil && failed == nil && len(chain) > 1:
			failed = fmt.Errorf("lease %d: %w", k, err)
		case err != nil && failed == nil:
			failed = err
		case h == nil:
			lost = append(lost, k)
		}
		q.found = append(q.found, h)
	}

	if failed != nil || lost == nil {
		return failed
	}
	return q.lostLeases(chain, lost)
}

// find returns the item of the operation at place n, in a chain that begins at place first: nil if
// its token does not hold. The error is for the operation, ErrCorrupt, or one of the store.
func (q *queueSettlements) find(first, n int) (*codec.Record, error) {
	i := q.indexes[n]
	if err := q.results[i].Err; err != nil {
		return nil, err
	}

	op, read := &q.ops[i], &q.reads[n]
	id := &op.Token.ID
	switch before := q.done[*id]; {
	case before > first: // another one of the chain ends the lease
		return nil, nil
	case before > 0: // this transaction may have moved the item, so the read is stale
		*read = q.lookUp(op)
		read.LookUpReady(q.tx, q.l, id)
	}

	h, err := read.Find(q.l, &op.Token)
	if h != nil {
		q.done[*id] = n + 1
	}
	return h, err
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
