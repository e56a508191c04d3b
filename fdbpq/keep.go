package fdbpq

import (
	"cmp"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
)

// keepOverhead is about how many bytes of a transaction a record takes with its entry and its keys,
// without the item and the outcome.
const keepOverhead = 800

// beginOrder starts to read where the order of finished jobs ends if an operation is likely to keep
// its job, so that this takes no round trip of its own.
func (q *queueSettlements) beginOrder(s *settlement) {
	if s.Kind == OpAck && !q.keeps.asked {
		q.keeps.asked = true
		set := q.ledger.LikelySettings()
		if set != nil && set.Keep > 0 {
			q.ledger.BeginFinish()
		}
	}
	if q.keepsJob(s) {
		q.ledger.BeginFinish()
	}
}

// learnKeep finds out whether the settings say that all jobs are kept. The error is one of the
// store.
func (q *queueSettlements) learnKeep() error {
	if q.keeps.all || !q.ledger.SettingsBegun() {
		return nil
	}
	set, err := q.ledger.ReadableSettings()
	q.keeps.all = err == nil && set.Keep > 0
	return err
}

// holdsValue reports whether an acknowledgement of a long chain holds the value that it has read,
// because its job will be kept and there is room. The error is one of the store.
func (q *queueSettlements) holdsValue(s *settlement) (bool, error) {
	if err := q.learnKeep(); err != nil || !q.keepsJob(s) {
		return false, err
	}
	size, err := s.read.Size()
	q.keeps.bytes += size
	return q.keeps.bytes <= min(q.moving.remaining(), q.returned.Page()), err
}

// beginKeeps starts to read, in one round trip, the rest of the items of the span whose jobs are to
// be kept. In other queues it does nothing. The error is one of the store.
func (q *queueSettlements) beginKeeps() error {
	if err := q.learnKeep(); err != nil {
		return err
	}
	return q.readInParts(q.beginKeep, q.dropMetas) // what is dropped is read again
}

// beginKeep starts to read the rest of the item of an operation, if its job will be kept.
func (q *queueSettlements) beginKeep(s *settlement) {
	if !q.keepsJob(s) {
		return
	}
	id := &s.Token.ID
	q.ledger.BeginFinish()
	message, known := s.read.Known()
	if message != nil {
		item := state.KnownItem(q.l, id, message)
		s.meta = &item
		return
	}

	if known { // it was read before the settings said that its value is needed
		s.read = q.ledger.LookUpHeld(id)
	}
	item := state.BeginItem(q.l, q.snapshot, id, state.Beginning)
	s.meta = &item
}

// dropMetas drops what was read of items whose jobs will be kept, once they are too large together.
// The error is one of the store.
func (q *queueSettlements) dropMetas(some []settlement) error {
	for i := range some {
		item := some[i].meta
		if item == nil {
			continue
		}
		if err := item.FinishRead(); err != nil {
			return err
		}
		if q.keeps.bytes += item.Read(); q.keeps.bytes > q.returned.Page() {
			item.Drop()
		}
	}
	return nil
}

// finished returns the record of the job of an item that an acknowledgement removes; nil if it
// leaves none. The error is one of the store.
func (q *queueSettlements) finished(s *settlement) (*codec.Finished, error) {
	h, item := s.record, s.meta
	if item == nil {
		return nil, nil
	}
	set, err := q.ledger.ReadableSettings()
	if err != nil {
		return nil, err
	}
	whole, err := q.readKept(s)
	if err != nil {
		return nil, err
	}

	m := &item.Item.Message
	keep := cmp.Or(m.Keep, set.Keep)
	if item.Err != nil || m.DeadLetter != nil || keep <= 0 {
		return nil, nil
	}
	if whole {
		h.Message = m // so that Delete need not read it
	}
	f := &codec.Finished{
		Item: item.Item, At: codec.Micros(q.now), Until: codec.Micros(q.now.Add(keep)),
		Deliveries: h.Deliveries, Fence: h.Fence, Holder: h.Holder, Outcome: s.report().Outcome,
	}
	if !h.Since.IsZero() {
		f.Since = codec.Micros(h.Since)
	}

	attempts, err := s.attempts.Finish(h.Deliveries) // its end stands in the record
	if err != nil {
		return nil, err
	}
	f.NoteTrail(attempts, set.Trail)

	q.moving.charge(keepOverhead)
	size := f.Message.Size()
	f.NoValue = !whole || !q.moving.fits(size)
	if f.NoValue && !q.moving.fits(size-len(m.Value)) {
		f.Message = Message{First: m.First, Keep: m.Keep} // even its headers are too large
	}
	return f, nil
}

// readKept reads an item whose job is to be kept, without a value that was dropped or that has no
// room, and reports whether that is the whole item. The error is one of the store.
func (q *queueSettlements) readKept(s *settlement) (whole bool, err error) {
	item := s.meta
	item.SetOwn(q.l, s.record.Value)
	if err := item.ReadHeaders(q.snapshot, q.l); err != nil {
		return false, err
	}

	whole = s.record.Dropped == 0 || item.Known()
	if room := q.moving.remaining(); whole && room > 0 {
		if err := item.ReadMeta(q.snapshot, q.l, room); err != nil {
			return false, err
		}
	}
	q.ledger.NoteMeta(item)
	return whole && !item.Cut, nil
}
