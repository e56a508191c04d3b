package state

import (
	"maps"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Known is what a Batcher knows of the store from its own transactions, so that later ones need not
// read it again. That is only so in a store where nobody else can have written in the meantime, see
// kv.Transaction.Turn. It is nil if the engine has no turns; then nothing is known.
type Known struct {
	turn   int64             // of the last transaction
	queues map[string]*facts // by prefix
	leased int               // about the bytes of all facts.leased
	turns  int               // about the number of all facts.turns

	// counts has next counts, so that pushes need not read the last items of their priorities, twice
	// each. Counts that are too high do no harm: the order stays the same. So nothing has to be
	// forgotten when items are taken.
	counts CountsByQueue
	size   int // at least the number of counts
}

const (
	// maxKnownQueues bounds Known.queues: names may be disposable.
	maxKnownQueues = 4096
	// maxKnownLeased is about the bound of Known.leased; one transaction may exceed it.
	maxKnownLeased = 4 << 20
	// maxKnownTurns is the same for Known.turns.
	maxKnownTurns = 16 << 10
	// maxKnownCounts bounds Known.counts: some use each priority once.
	maxKnownCounts = 4096
)

// BeginTransaction is called at the beginning of each transaction. Unless that follows on the last
// one, whose writes are in the store then, all is forgotten.
func (k *Known) BeginTransaction(tx kv.Transaction) {
	if k == nil {
		return
	}
	turn := tx.Turn()
	if turn == 0 || turn != k.turn+1 {
		k.counts, k.size = nil, 0
		k.forgetQueues()
	}

	// Not later, because all ledgers of a queue must have the same facts.
	if len(k.queues) >= maxKnownQueues || k.leased >= maxKnownLeased || k.turns >= maxKnownTurns {
		k.forgetQueues()
	}

	k.turn = turn
}

func (k *Known) forgetQueues() { k.queues, k.leased, k.turns = nil, 0, 0 }

// Any reports whether anything can be known.
func (k *Known) Any() bool { return k != nil && k.turn != 0 }

// Counts returns the next counts of a queue, by priority, as far as they are known.
func (k *Known) Counts(l *codec.Layout) map[int64]int64 {
	if !k.Any() {
		return nil
	}
	return k.counts[l.Prefix]
}

// LearnCounts takes the counts after the pushes of a transaction, where anything can be known. If other items may have got
// higher ones, nothing is known any more.
func (k *Known) LearnCounts(after CountsByQueue, onlyPushes bool) {
	switch {
	case !onlyPushes:
		k.counts, k.size = nil, 0
		return
	case k.counts == nil || k.size > maxKnownCounts:
		k.counts, k.size = CountsByQueue{}, 0
	}

	for queue, next := range after {
		k.size += len(next)
		if known := k.counts[queue]; known != nil {
			maps.Copy(known, next)
		} else {
			k.counts[queue] = next
		}
	}
}

// queue returns the facts of a queue, nil if none can be known.
func (k *Known) queue(l *codec.Layout) *facts {
	if !k.Any() {
		return nil
	}
	if k.queues == nil {
		k.queues = map[string]*facts{}
	}
	f := k.queues[l.Prefix]
	if f == nil {
		f = &facts{known: k}
		k.queues[l.Prefix] = f
	}
	return f
}

// facts is what is known of a queue, as the open transaction sees it, with its own writes. So
// whoever writes something that a fact is about also changes the fact. A nil *facts knows nothing.
type facts struct {
	known       *Known
	quietUntil  time.Time             // nothing falls due before; zero is not known
	noHistories bool                  // no item has a history
	settings    *codec.StoredSettings // nil is not known; they must not be changed

	leased map[codec.ID]*codec.Record // some leased items, without their values: those that will be acknowledged soon
	turns  map[turnOf]*turn           // how far items of groups reach
}

// knowLeased records that a leased item is written.
func (f *facts) knowLeased(l *codec.Layout, h *codec.Record) {
	if f == nil {
		return
	}
	f.forgetLeased(&h.ID)
	if f.leased == nil {
		f.leased = map[codec.ID]*codec.Record{}
	}
	known := *h
	known.Due = codec.Micros(h.Due) // as it is stored
	known.Dropped, known.Value, known.Message = len(codec.DecodeValue(l.Format, h.Value)), nil, nil
	f.leased[h.ID] = &known
	f.known.leased += leasedSize(&known)
}

// forgetLeased records that a held item is removed.
func (f *facts) forgetLeased(id *codec.ID) {
	if f == nil {
		return
	}
	if known, ok := f.leased[*id]; ok {
		delete(f.leased, *id)
		f.known.leased -= leasedSize(known)
	}
}

// forgetItems records that all items are removed.
func (f *facts) forgetItems() {
	if f != nil {
		for id := range f.leased {
			f.forgetLeased(&id)
		}
	}
}

// leasedSize is about how much memory an element of facts.leased takes.
func leasedSize(h *codec.Record) int { return 300 + len(h.Reason) + len(h.Unique) }

// quiet reports whether nothing can be due.
func (f *facts) quiet(now time.Time) bool { return f != nil && f.quietUntil.After(now) }

// noteDue records that something is written that falls due.
func (f *facts) noteDue(at time.Time) {
	at = codec.Micros(at) // as in the time index, and without the monotonic clock, which that does not go by
	if f != nil && at.Before(f.quietUntil) {
		f.quietUntil = at
	}
}

// noteSettings records the settings, as they were read or are written.
func (f *facts) noteSettings(s *codec.StoredSettings) {
	if f != nil {
		f.settings = s
	}
}

// learnDue finds out when the first entry of the time index falls due.
func (f *facts) learnDue(r kv.Reader, l *codec.Layout) {
	f.quietUntil = time.Time{}
	first, err := r.GetRange(l.KindRange(codec.KindDue), kv.RangeOptions{Limit: 1}).Get()
	if err != nil {
		return
	}
	if len(first) == 0 {
		f.quietUntil = codec.Forever
	} else if at, err := l.DueTime(first[0].Key); err == nil {
		f.quietUntil = at
	}
}

// nothing is the result of reading a range that is known to be empty.
var nothing = kv.Ready[[]kv.KeyValue](nil, nil)

// CountsByQueue holds a count for each priority of each queue, by the queue's prefix.
type CountsByQueue map[string]map[int64]int64

// turnOf names the items of a group at a priority.
type turnOf struct {
	hash     codec.GroupHash
	priority int64
}

// turn is how far these reach, as the open transaction sees it.
type turn struct {
	turnOf
	weight int // the highest of those that want it in the transaction; 0 if none does
	reads  *turnReads
	loaded bool // what follows is right

	rows   int64 // how many keys are in the index; uncounted, or nearly, if that is not known, as with same
	ready  int64 // how many are ready, as the counter says
	front  int64 // count of the first ready one or, once that has left, of an earlier one
	tail   int64 // highest count or, if same is 0, more than that
	same   int64 // how many have it
	latest int64 // time of these, in microseconds
}

// turnReads is a turn being read.
type turnReads struct {
	most        int // of the last items that are read
	ready, held kv.Future[[]kv.KeyValue]
	first       kv.Future[[]kv.KeyValue] // that is ready
	length      kv.Future[[]byte]        // how many are ready
}
