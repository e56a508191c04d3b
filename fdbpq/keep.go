package fdbpq

import (
	"cmp"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
)

// keepOverhead is about how many bytes of a transaction a record takes with its entry and its keys,
// without the item and the outcome.
const keepOverhead = 800

// beginKeeps starts to read, in one round trip, the rest of the items of the span whose jobs are to
// be kept. In other queues it does nothing. The error is one of the store.
func (q *queueSettlements) beginKeeps() error {
	if err := q.learnKeep(); err != nil {
		return err
	}

	atOnce := q.returned.AtOnce()
	for from := q.from; from < q.to; from += atOnce {
		to := min(from+atOnce, q.to)
		for n := from; n < to; n++ {
			if q.keeps.by(q.opAt(n)) {
				q.beginKeep(n)
			}
		}

		// As in beginReads, a long chain drops what it does not hold, and reads it again.
		for n := from; n < to && to < q.to; n++ {
			if item := q.keeps.items[n]; item != nil {
				if err := item.FinishRead(); err != nil {
					return err
				}
				if q.keeps.bytes += item.Read(); q.keeps.bytes > q.returned.Page() {
					item.Drop()
				}
			}
		}
	}
	return nil
}

// beginOrder starts to read where the order of finished jobs ends if an operation is likely to keep
// its job, so that this takes no round trip of its own.
func (q *queueSettlements) beginOrder(op *Op) {
	if op.Kind == OpAck && !q.keeps.asked {
		q.keeps.asked = true
		set := q.ledger.LikelySettings()
		if set != nil && set.Keep > 0 {
			q.ledger.BeginFinish()
		}
	}
	if q.keeps.by(op) {
		q.ledger.BeginFinish()
	}
}

// beginKeep starts to read the rest of an item whose job will be kept.
func (q *queueSettlements) beginKeep(n int) {
	id := &q.opAt(n).Token.ID
	q.ledger.BeginFinish()
	if q.keeps.items == nil {
		q.keeps.items = map[int]*state.ItemRead{}
	}

	message, known := q.reads[n].Known()
	if message != nil {
		item := state.KnownItem(q.l, id, message)
		q.keeps.items[n] = &item
		return
	}
	if known { // the setting was not known when the read began
		q.reads[n] = q.ledger.LookUpHeld(id)
	}
	item := state.BeginItem(q.l, q.snapshot, id, state.Beginning)
	q.keeps.items[n] = &item
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
func (q *queueSettlements) holdsValue(n int) (bool, error) {
	if err := q.learnKeep(); err != nil || !q.keeps.by(q.opAt(n)) {
		return false, err
	}
	size, err := q.reads[n].Size()
	q.keeps.bytes += size
	return q.keeps.bytes <= min(q.moving.remaining(), q.returned.Page()), err
}

// finished returns the record of the job of an item that the acknowledgement at place n removes;
// nil if it leaves none. The error is one of the store.
func (q *queueSettlements) finished(n int, h *codec.Record) (*codec.Finished, error) {
	item := q.keeps.items[n]
	if item == nil {
		return nil, nil
	}
	set, err := q.ledger.ReadableSettings()
	if err != nil {
		return nil, err
	}

	// A value that was dropped, or that has no room, is not read.
	item.SetOwn(q.l, h.Value)
	here := h.Dropped == 0 || item.Known()
	if err := item.ReadHeaders(q.snapshot, q.l); err != nil {
		return nil, err
	}
	if room := q.moving.remaining(); here && room > 0 {
		if err := item.ReadMeta(q.snapshot, q.l, room); err != nil {
			return nil, err
		}
	}

	q.ledger.NoteMeta(item)

	m := &item.Item.Message
	keep := cmp.Or(m.Keep, set.Keep)
	if item.Err != nil || m.DeadLetter != nil || keep <= 0 {
		return nil, nil
	}

	if here && !item.Cut {
		h.Message = m // so that Delete need not read it
	}
	f := &codec.Finished{
		Item: item.Item, At: codec.Micros(q.now), Until: codec.Micros(q.now.Add(keep)),
		Deliveries: h.Deliveries, Fence: h.Fence, Holder: h.Holder,
	}
	if !h.Since.IsZero() {
		f.Since = codec.Micros(h.Since)
	}
	f.Outcome = q.opAt(n).report().Outcome

	q.moving.charge(keepOverhead)
	whole := here && !item.Cut && q.moving.fits(m.Size())
	if f.NoValue = !whole; f.NoValue && !q.moving.fits(m.Size()-len(m.Value)) {
		f.Message = Message{First: m.First, Keep: m.Keep} // even its headers are too large
	}
	return f, nil
}
