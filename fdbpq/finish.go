package fdbpq

import (
	"cmp"
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// Bounds of an Outcome.
const (
	// MaxResult is the longest Outcome.Result, in bytes.
	MaxResult = 1 << 20
	// MaxContentType is the longest Outcome.ContentType, in bytes.
	MaxContentType = 256
)

// keeping is what the acknowledgements of a queue read of the jobs that they keep.
//
// Keeping a job never makes its acknowledgement fail. A value that the transaction has no room for
// is left out, and a damaged item is not kept.
type keeping struct {
	all   bool                    // the settings say that all jobs are kept
	asked bool                    // begun what is needed if they are likely to say so
	items map[int]*state.ItemRead // of the span, by place: what belongs to the items besides
	bytes int                     // that a long chain holds of its items
}

// keepOverhead is about how many bytes of a transaction a record takes with its entry and its keys,
// without the item and the outcome.
const keepOverhead = 800

// by reports whether an operation is known to keep its job.
func (k *keeping) by(op *Op) bool {
	return op.Kind == OpAck && (k.all || codec.Keeps(&op.Token.ID))
}

// checkKeep returns an error if the message of a push cannot be kept for that long.
func (op *Op) checkKeep() error {
	if err := settings.CheckBounds(op.Message.Keep, MinKeep, MaxKeep); err != nil {
		return badOp("it is kept for %w", err)
	}
	return nil
}

// checkReport returns an error if what the holder says is out of bounds, or not for such an
// operation.
func (op *Op) checkReport(l *codec.Layout) error {
	r := op.Report
	switch {
	case op.Kind != OpAck && (r.Result != nil || r.ContentType != ""):
		return badOp("an outcome: only an acknowledgement has one")
	case len(r.Result) > MaxResult:
		return badOp("a result of %d bytes: want at most %d", len(r.Result), MaxResult)
	case len(r.ContentType) > MaxContentType:
		return badOp("a content type of %d bytes: want at most %d", len(r.ContentType),
			MaxContentType)
	case op.Kind != OpExtend && len(r.Progress) > 0:
		return badOp("a progress: only a renewal has one")
	case len(r.Progress) > MaxProgress:
		return badOp("a progress of %d bytes: want at most %d", len(r.Progress), MaxProgress)
	}
	return op.checkNext(l)
}

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

// lostLeases returns the error of a chain in which some operations, given by their numbers, have
// lost their leases. For acknowledgements it reads whether they were made before. The error may be
// one of the store.
func (q *queueSettlements) lostLeases(chain, lost []int) error {
	done, err := q.doneBefore(chain, lost)
	switch {
	case err != nil:
		return err
	case len(chain) > 1:
		return &LostLeases{Lost: lost, Done: done, Of: len(chain)}
	case len(done) > 0:
		return fmt.Errorf("%w: %w", ErrLeaseLost, ErrDone)
	}
	return ErrLeaseLost
}

// doneBefore returns which of the operations of a chain, given by their number in it, are
// acknowledgements of finished jobs with the token that finished them. What it reads without
// conflict stays true: that lease is over for good. The error is one of the store.
func (q *queueSettlements) doneBefore(chain, lost []int) (done []int, err error) {
	type read struct {
		op         *Op
		job, first kv.Future[[]byte]
	}
	reads := make([]read, len(lost))
	for n, k := range lost {
		r := &reads[n]
		r.op = &q.ops[chain[k]]
		if id := &r.op.Token.ID; r.op.Kind != OpAck || q.l.Fifo && id.Priority != 0 {
			r.op = nil
		} else if codec.Moved(id) {
			r.job = q.snapshot.Get(q.l.FinishedPlaceKey(id))
		} else {
			r.first = q.snapshot.Get(q.l.FinishedKey(id, 0))
		}
	}

	for n := range reads {
		r := &reads[n]
		if r.job == nil {
			continue
		}
		value, err := r.job.Get()
		if err != nil {
			return nil, err
		}
		if job, err := codec.ParseAlias(value); err == nil {
			r.first = q.snapshot.Get(q.l.FinishedKey(&job, 0))
		}
	}

	for n := range reads {
		r := &reads[n]
		if r.first == nil {
			continue
		}
		part, err := r.first.Get()
		if err != nil {
			return nil, err
		}
		if f, err := codec.ParseFinishedHead(part); err == nil && f.Fence == r.op.Token.Fence {
			done = append(done, lost[n])
		}
	}
	return done, nil
}
