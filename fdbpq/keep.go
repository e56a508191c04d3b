package fdbpq

import (
	"cmp"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
)

// keepBytes is about how many bytes of a transaction an acknowledgement takes that keeps its job,
// without the item and the outcome. FoundationDB counts a key two to four times, with its conflict
// range. A job with a message id, a unique key and a TTL has the most keys.
func (q *queueSettlements) keepBytes(f *codec.Finished) int {
	n := 27 * (len(q.l.Prefix) + 64)
	if f.First != nil { // it has moved
		n += q.l.AliasSize()
	}
	return n
}

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

// A chain keeps its jobs in three steps, before any of its leases ends:
//
//	makeRecords  makes the records, without values
//	takeRoom     takes the room for all of that, or fails the chain
//	addValues    adds the values that have room besides
//
// Values give way to the records of later chains, so txn.writeKept writes the records once all
// chains have run.

// keptJob is the record of a job that is kept.
type keptJob struct {
	*codec.Finished
	ledger *state.Ledger
	result *Result // of its acknowledgement
}

// makeRecords makes the records of the jobs that a chain keeps. The error is one of the store.
func (q *queueSettlements) makeRecords(chain []settlement) (err error) {
	for k := range chain {
		if s := &chain[k]; s.meta != nil {
			if s.finished, err = q.makeRecord(s); err != nil {
				return err
			}
		}
	}
	return nil
}

// makeRecord returns the record of the job of an item that an acknowledgement removes, without its
// value; nil if it leaves none. The error is one of the store.
func (q *queueSettlements) makeRecord(s *settlement) (*codec.Finished, error) {
	h, item := s.record, s.meta
	set, err := q.ledger.ReadableSettings()
	if err != nil {
		return nil, err
	}
	item.SetOwn(q.l, h.Value)
	if err := item.ReadHeaders(q.snapshot, q.l); err != nil {
		return nil, err
	}
	q.ledger.NoteMeta(item)

	m := &item.Item.Message
	keep := cmp.Or(m.Keep, set.Keep)
	if item.Err != nil || m.DeadLetter != nil || keep <= 0 {
		return nil, nil
	}
	f := &codec.Finished{
		Item: item.Item, At: codec.Micros(q.now), Until: codec.Micros(q.now.Add(keep)),
		Deliveries: h.Deliveries, Fence: h.Fence, Holder: h.Holder, Outcome: s.report().Outcome,
		NoValue: true,
	}
	f.Value = nil
	if !h.Since.IsZero() {
		f.Since = codec.Micros(h.Since)
	}

	attempts, err := s.attempts.Finish(h.Deliveries) // its end stands in the record
	if err != nil {
		return nil, err
	}
	f.NoteTrail(attempts, set.Trail)
	return f, nil
}

// takeRoom takes the room for what a chain needs at least: the records of its jobs without values,
// and the removal of their attempts. A chain that would find no room in a transaction of its own
// does with less: it removes attempts as ranges, then keeps only the last ones, which say how many
// there were, then no headers of pushes. The error is ErrNoRoom, or ErrOp for a chain that never
// has room.
func (q *queueSettlements) takeRoom(chain []settlement) error {
	all := func(*codec.Finished) {}
	for n, shorten := range [...]func(*codec.Finished){
		all, all, (*codec.Finished).DropAttempts, (*codec.Finished).DropHeaders,
	} {
		q.ledger.ForgetRanges = q.ledger.ForgetRanges || n > 0
		size := 0
		for k := range chain {
			s := &chain[k]
			if s.Kind == OpAck {
				size += q.ledger.ForgetSize(s.record)
			}
			if s.finished != nil {
				shorten(s.finished)
				size += q.keepBytes(s.finished) + s.finished.Size()
			}
		}

		if size == 0 || q.fitsBesideValues(size) {
			return nil
		}

		end := chain[len(chain)-1].index + 1
		for end < len(q.ops) && q.ops[end].Follows {
			end++
		}
		own := bytesOf(q.ops[chain[0].index:end])
		if alone := (moveBudget{maxBytes: q.moving.most, opBytes: own}); alone.fits(size) {
			return state.ErrNoRoom
		}
	}
	return badOp("%d acknowledgements together, whose jobs have no room in a transaction beside "+
		"their results and successors: acknowledge fewer", len(chain))
}

// fitsBesideValues is moveBudget.fits for what values of kept jobs give way to.
func (t *txn) fitsBesideValues(size int) bool {
	for size <= t.moving.remaining()+t.valueBytes {
		if t.moving.fits(size) {
			return true
		}
		last := len(t.valued) - 1
		job := t.valued[last]
		t.valued = t.valued[:last]
		t.chargeValue(-len(job.Value))
		job.Value, job.NoValue, job.result.ValueDropped = nil, true, true
	}
	return t.moving.fits(size)
}

// chargeValue charges a value of a kept job.
func (t *txn) chargeValue(size int) {
	t.moving.charge(size)
	t.valueBytes += size
}

// addValues adds the values to the records of a chain, as far as there is room. The error is one of
// the store.
func (q *queueSettlements) addValues(chain []settlement) error {
	for k := range chain {
		s := &chain[k]
		f, item, room := s.finished, s.meta, q.moving.remaining()
		if q.moving.moves == 1 { // nothing but this chain
			room += state.ExtraForFirst
		}
		if f == nil || room <= 0 || s.record.Dropped > 0 && !item.Known() {
			continue
		}
		if err := item.ReadMeta(q.snapshot, q.l, room); err != nil {
			return err
		}
		if item.Cut || item.Err != nil {
			continue
		}

		s.record.Message = &item.Item.Message // so that Delete need not read it
		value := s.record.Message.Value
		if len(value) <= room && f.Size()+len(value) <= MaxMessageSize {
			f.Value, f.NoValue = value, false
			q.chargeValue(len(value))
			q.valued = append(q.valued, keptJob{f, &q.ledger, s.result})
		}
	}
	return nil
}

// writeKept writes the records of kept jobs.
func (t *txn) writeKept() {
	for _, job := range t.kept {
		job.ledger.Finish(job.Finished)
	}
	t.kept, t.valued, t.valueBytes = nil, nil, 0
}
