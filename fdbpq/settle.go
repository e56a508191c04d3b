package fdbpq

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/due"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
)

// queueSettlements is the operations with tokens of one queue. Spans of them are read and run after
// each other. They run before the pops, so that what they end is settled, and what they give back
// can be popped.
type queueSettlements struct {
	*queueTxn
	indexes []int // into txn.ops
	reads   []state.Lookup
	burials []*due.Burial // by place in indexes; nil unless the item seems to die

	from, to int             // places in indexes: the span
	done     map[ID]int      // items that were found, by the last place in indexes, counted from 1
	found    []*codec.Record // of one group
}

// settlements is those of all queues.
type settlements []*queueSettlements

// run reads and settles the items of a few operations at a time.
func (s settlements) run() error {
	for len(s) > 0 {
		var queues settlements // with operations that are next
		left := s[0].returned.AtOnce()
		for _, q := range s {
			if left > 0 && q.to < len(q.indexes) {
				left -= q.nextSpan(left)
				queues = append(queues, q)
			}
		}
		if len(queues) == 0 {
			return nil
		}
		if err := queues.runSpans(); err != nil {
			return err
		}
	}
	return nil
}

// runSpans runs the operations of the spans.
func (s settlements) runSpans() error {
	if err := each(s, (*queueSettlements).beginReads); err != nil {
		return err
	}
	// A token may be of an item that is ready again, because its lease has run out.
	for _, q := range s {
		q.readReady(q.from, q.to)
	}
	if err := each(s, (*queueSettlements).beginBurials); err != nil {
		return err
	}
	return each(s, (*queueSettlements).runSpan)
}

// endsItem reports whether the operation ends not only a lease, but sends the item to its
// dead-letter queue.
func (op *Op) endsItem(h *codec.Record, s *Settings, now time.Time) bool {
	return op.Kind == OpTerm || op.Kind == OpNak && !op.Uncounted && s.Exhausted(h.Deliveries) && !h.Expired(now)
}

// settle moves an item whose token holds. p is nil unless begun for it. If there is an error,
// nothing has changed; it is ErrCorrupt or one of the store.
func (q *queueSettlements) settle(i int, h *codec.Record, p *due.Burial) error {
	op, result := &q.ops[i], &q.results[i]
	settings := &Settings{}
	if op.Kind == OpTerm || op.Kind == OpNak && !op.Uncounted {
		var err error
		if settings, err = q.ledger.Settings(); err != nil {
			return err
		}
	}
	if op.endsItem(h, settings, q.now) {
		if p == nil {
			p = q.dead.BeginBurial(&q.ledger, &h.ID, settings)
		}
		return q.bury(i, h, p)
	}

	if op.Kind == OpAck {
		return q.ack(h, result)
	}
	if !q.moving.fits(len(h.Value)) {
		result.Err = state.ErrNoRoom
		return nil
	}
	q.ledger.DetachAnywhere(h)
	if op.Kind == OpNak {
		result.NextDue = q.giveBack(op, h, settings)
	} else {
		q.extend(op, h, result)
	}
	return nil
}

// ack removes an item.
func (q *queueSettlements) ack(h *codec.Record, result *Result) (err error) {
	if result.Freed, err = q.ledger.LimitsLeased(); err != nil {
		return err
	}
	q.ledger.DetachAnywhere(h)
	q.ledger.Delete(h)
	result.wait, result.holder, result.ended = h.Wait, h.Holder, h.State == Leased
	return nil
}

// extend leases a detached item to its holder for a further time.
func (q *queueSettlements) extend(op *Op, h *codec.Record, result *Result) {
	if op.Lease > 0 {
		h.Wait = op.Lease
	}
	if hash := codec.GroupIn(&h.ID); h.State != Leased && hash > codec.NoGroup {
		q.ledger.ConflictLeasing(hash, false) // with what counts the leases of the group
	}
	h.State, h.Due = Leased, q.now.Add(h.Wait)
	q.ledger.Hold(h)
	result.Lease = Lease{Token: op.Token, Until: codec.Micros(h.Due), Deliveries: h.Deliveries}
}

// bury moves an item whose token holds to its dead-letter queue.
func (q *queueSettlements) bury(i int, h *codec.Record, p *due.Burial) error {
	op, result := &q.ops[i], &q.results[i]
	h.NoteReason(op.nakReason())
	// Once there is no room, no large item is read only to find that it does not fit.
	if err := p.Load(h, !q.moving.full); err != nil {
		return err
	}
	if p.Large && q.moving.full || !q.moving.fits(p.Size()) {
		q.moving.full = true
		result.Err = state.ErrNoRoom
		return nil
	}

	reason := ReasonMaxDeliver
	if op.Kind == OpTerm {
		reason = cmp.Or(codec.CleanText(op.Reason, MaxTermReason), ReasonTerminated)
	}
	var err error
	if result.Freed, err = q.ledger.LimitsLeased(); err != nil {
		return err
	}
	q.ledger.DetachAnywhere(h)
	q.ledger.Delete(h)
	if op.Uncounted {
		h.Deliveries--
	}
	q.dead.Bury(p, h, reason)
	return nil
}

// runSpan runs the operations of the span, whose reads have begun.
func (q *queueSettlements) runSpan() error {
	if q.done == nil {
		q.done = make(map[ID]int, len(q.indexes))
	}

	n := q.from
	for group := range groups(q.ops, q.indexes[q.from:q.to]) {
		if err := q.runGroup(n, group); err != nil {
			return err
		}
		n += len(group)
	}

	clear(q.reads[q.from:q.to]) // they hold values
	clear(q.burials[q.from:q.to])
	return nil
}

// runGroup runs operations that are done together or not at all; the first has the place n in
// indexes. A group of several is acknowledgements alone.
func (q *queueSettlements) runGroup(n int, group []int) error {
	failed, err := q.findGroup(n, group)
	if err != nil {
		return err
	}
	if failed != nil {
		q.failAll(group, failed)
		return nil
	}

	ended := 0
	for k, i := range group {
		err := q.settle(i, q.found[k], q.burials[n+k])
		if err = q.failOps(err, i); err != nil {
			return err
		}
		if q.results[i].ended {
			ended++
		}
	}
	q.keepPlaces(group[len(group)-1]+1, ended)
	return nil
}

// keepPlaces keeps the places of leases that have ended for the OpLeases that follow, from index i
// on.
func (q *queueSettlements) keepPlaces(i, ended int) {
	for ; ended > 0 && i < len(q.ops) && q.ops[i].Kind == OpLease && q.ops[i].Follows; i++ {
		q.results[i].place = true
		ended--
	}
}

// findGroup finds the items of a group. It returns why the group fails, nil if it does not. The
// error is one of the store.
func (q *queueSettlements) findGroup(n int, group []int) (failed, err error) {
	q.found = q.found[:0]
	var lost []int
	for k := range group {
		h, err := q.find(n, n+k)
		switch {
		case err != nil && codec.UnlessCorrupt(err) != nil && !errors.Is(err, ErrOp):
			return nil, err
		case err != nil && failed == nil && len(group) > 1:
			failed = fmt.Errorf("lease %d: %w", k, err)
		case err != nil && failed == nil:
			failed = err
		case h == nil:
			lost = append(lost, k)
		}
		q.found = append(q.found, h)
	}

	switch {
	case failed != nil || lost == nil:
		return failed, nil
	case len(group) > 1:
		return &LostLeases{Lost: lost, Of: len(group)}, nil
	default:
		return ErrLeaseLost, nil
	}
}

// find returns the item of the operation with place n in indexes, which is in a group that begins
// with the place first: nil if its token does not hold. The error is that of the operation,
// ErrCorrupt, or one of the store.
func (q *queueSettlements) find(first, n int) (*codec.Record, error) {
	i := q.indexes[n]
	if err := q.results[i].Err; err != nil {
		return nil, err
	}

	op, read := &q.ops[i], &q.reads[n]
	id := &op.Token.ID
	switch before := q.done[*id]; {
	case before > first: // one of the same group ends the lease
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

// nextSpan chooses the next operations, about most of them and whole groups, and returns how many.
func (q *queueSettlements) nextSpan(most int) (n int) {
	q.from = q.to
	for q.to < len(q.indexes) && q.to-q.from < most {
		q.to++
		for q.to < len(q.indexes) && tied(q.ops, q.indexes[q.to]) {
			q.to++
		}
	}
	return q.to - q.from
}

// beginReads starts to read the items that the tokens of the span name. Only a group of
// acknowledgements, which ends the span, may make that longer than AtOnce: it has no more values in
// memory at once either. The error is one of the store.
func (q *queueSettlements) beginReads() error {
	if q.reads == nil {
		q.reads, q.burials = make([]state.Lookup, len(q.indexes)), make([]*due.Burial, len(q.indexes))
	}

	atOnce := q.returned.AtOnce()
	for from := q.from; from < q.to; from += atOnce {
		to := min(from+atOnce, q.to)
		for n := from; n < to; n++ {
			op := q.opAt(n)
			q.reads[n] = q.lookUp(op)
			if op.Kind == OpTerm || op.Kind == OpAck || op.Kind == OpNak && !op.Uncounted {
				q.ledger.BeginSettings() // which decide what becomes of the item
			}
		}
		if to == q.to {
			break
		}

		// Drop the values of these before the next are read.
		q.readReady(from, to)
		for n := from; n < to; n++ {
			op := q.opAt(n)
			if op.Kind != OpAck { // before the group, and moves the value
				continue
			}
			if err := q.reads[n].Shrink(q.l, &op.Token.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// opAt returns the operation with place n in indexes.
func (q *queueSettlements) opAt(n int) *Op { return &q.ops[q.indexes[n]] }

// readReady is Lookup.LookUpReady for some places.
func (q *queueSettlements) readReady(from, to int) {
	for n := from; n < to; n++ {
		q.reads[n].LookUpReady(q.tx, q.l, &q.opAt(n).Token.ID)
	}
}

// lookUp starts to read the item of an operation where it is while it is held. An acknowledgement
// needs no value.
func (q *queueSettlements) lookUp(op *Op) state.Lookup {
	if op.Kind == OpAck {
		return q.ledger.LookUpLeased(&op.Token.ID)
	}
	return q.ledger.LookUpHeld(&op.Token.ID)
}

// beginBurials starts to read what it takes to bury the items of the span that die, together for
// all.
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
		if settings.MaxBytes > 0 && op.Kind != OpExtend {
			q.ledger.BeginSize(&op.Token.ID)
		}
		if op.Kind == OpAck || op.Kind != OpTerm && settings.MaxDeliver == 0 {
			continue
		}

		h, err := q.reads[n].Find(q.l, &op.Token)
		if err != nil && codec.UnlessCorrupt(err) != nil {
			return err
		}
		if h != nil && op.endsItem(h, settings, q.now) {
			q.burials[n] = q.dead.BeginBurial(&q.ledger, &h.ID, settings)
		}
	}
	return nil
}
