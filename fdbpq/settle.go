package fdbpq

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/subjects/trail"
)

// runSettlements reads and settles the items of a few operations at a time.
func (t *txn) runSettlements(settlements []*queueSettlements) error {
	for _, q := range settlements {
		q.begin()
	}
	for {
		var queues []*queueSettlements // that have a span to run
		left := t.returned.AtOnce()
		for _, q := range settlements {
			if left > 0 && len(q.rest) > 0 {
				left -= q.nextSpan(left)
				queues = append(queues, q)
			}
		}
		if len(queues) == 0 {
			t.writeKept()
			return nil
		}
		if err := runSpans(queues); err != nil {
			return err
		}
	}
}

// begin notes the operations, and which of them are tied to each other.
func (q *queueSettlements) begin() {
	q.found = make(map[ID]int, len(q.indexes))
	for chain := range chains(q.ops, q.indexes) {
		for k, i := range chain {
			s := settlement{Op: &q.ops[i], result: &q.results[i], index: i, tied: k > 0}
			q.rest = append(q.rest, s)
		}
	}
}

// nextSpan chooses the operations of the next span, up to about limit, and returns how many. It
// never splits a chain.
func (q *queueSettlements) nextSpan(limit int) (n int) {
	for n < len(q.rest) && (n < limit || q.rest[n].tied) {
		n++
	}
	q.span, q.rest = q.rest[:n], q.rest[n:]
	return n
}

// runSpans runs the operations of the spans of some queues.
func runSpans(queues []*queueSettlements) error {
	if err := state.Each(queues, (*queueSettlements).beginReads); err != nil {
		return err
	}
	for _, q := range queues {
		q.readReady(q.span)
	}
	if err := state.Each(queues, (*queueSettlements).beginKeeps); err != nil {
		return err
	}
	if err := state.Each(queues, (*queueSettlements).beginBurials); err != nil {
		return err
	}
	return state.Each(queues, (*queueSettlements).runSpan)
}

// runSpan runs the operations of the span, whose reads have begun.
func (q *queueSettlements) runSpan() error {
	for rest := q.span; len(rest) > 0; {
		size := 1
		for size < len(rest) && rest[size].tied {
			size++
		}
		if err := q.runChain(rest[:size]); err != nil {
			return err
		}
		rest = rest[size:]
	}

	clear(q.span) // they hold values
	q.keeps.bytes = 0
	return nil
}

// runChain runs operations that are done together or not at all. A chain of several has only
// acknowledgements.
func (q *queueSettlements) runChain(chain []settlement) error {
	var err error
	for _, step := range [...]func(*queueSettlements, []settlement) error{
		(*queueSettlements).findChain, (*queueSettlements).loadNext,
		(*queueSettlements).makeRecords, (*queueSettlements).takeRoom,
		(*queueSettlements).addValues,
	} {
		if err = step(q, chain); err != nil {
			break
		}
	}
	if err != nil {
		var indexes []int
		for k := range chain {
			indexes = append(indexes, chain[k].index)
		}
		return q.failOps(err, indexes...)
	}

	ended := 0
	for k := range chain {
		s := &chain[k]
		if err := q.failOps(q.settle(s), s.index); err != nil {
			return err
		}
		if s.result.ended {
			ended++
		}
	}
	if err := q.pushNext(chain); err != nil {
		return err
	}
	for k := range chain {
		s := &chain[k]
		if s.finished == nil || s.result.Err != nil {
			continue
		}
		if len(s.pushed) > 0 { // Op.tokenBytes counts it
			s.finished.SetHeader(trail.HeaderNext, trail.Successors(s.pushed))
		}
		q.kept = append(q.kept, keptJob{s.finished, &q.ledger, s.result})
	}

	// The OpLeases that follow take the places of the leases that have ended.
	for i := chain[len(chain)-1].index + 1; ended > 0 && i < len(q.ops); i++ {
		if q.ops[i].Kind != OpLease || !q.ops[i].Follows {
			break
		}
		q.results[i].place = true
		ended--
	}
	return nil
}

// settle ends or extends the lease of an item whose token holds. The error is ErrCorrupt, ErrNoRoom
// or one of the store; then nothing has changed.
func (q *queueSettlements) settle(s *settlement) (err error) {
	if s.Kind == OpAck {
		return q.ack(s)
	}

	settings := &Settings{}
	if s.Kind == OpTerm || s.Kind == OpNak && !s.Uncounted {
		if settings, err = q.ledger.Settings(); err != nil {
			return err
		}
	}
	if s.endsItem(s.record, settings, q.now) {
		return q.bury(s, settings)
	}

	if !q.moving.fits(len(s.record.Value)) {
		return state.ErrNoRoom
	}
	q.ledger.DetachAnywhere(s.record)
	if s.Kind == OpNak {
		s.result.NextDue = q.requeue(s.Op, s.record, settings)
	} else {
		q.extend(s)
	}
	return nil
}

// ack removes an item, and keeps its job if the push or the settings say so.
func (q *queueSettlements) ack(s *settlement) (err error) {
	h, result, finished := s.record, s.result, s.finished
	if result.Freed, err = q.ledger.LimitsLeased(); err != nil {
		return err
	}

	if q.ledger.Trail() > 0 {
		s.job = q.ledger.JobOf(h)
	}
	q.ledger.DetachAnywhere(h)
	q.ledger.Delete(h, codec.MemberDone)
	result.NotKept = finished == nil && s.report().Result != nil
	result.ValueDropped = finished != nil && finished.NoValue
	result.wait, result.holder, result.ended = h.Wait, h.Holder, h.State == Leased
	return nil
}

// extend leases a detached item to its holder for a further time.
func (q *queueSettlements) extend(s *settlement) {
	h := s.record
	if s.Op.Lease > 0 {
		h.Wait = s.Op.Lease
	}
	if progress := s.report().Progress; len(progress) > 0 {
		h.SetProgress(progress)
	}

	q.ledger.ForgetAttempt(h) // it goes on

	// If the lease had run out, this grants a new one, so transactions that check how many items of
	// the group are leased must conflict with it.
	if hash := codec.GroupIn(&h.ID); h.State != Leased && hash > codec.NoGroup {
		q.ledger.ConflictLeasing(hash, false)
	}
	h.State, h.Due = Leased, q.now.Add(h.Wait)
	q.ledger.Hold(h)
	s.result.wait = h.Wait
	s.result.Lease = Lease{Token: s.Token, Until: codec.Micros(h.Due), Deliveries: h.Deliveries}
}
