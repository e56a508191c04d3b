package state

import (
	"maps"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Known is what a Batcher knows of the store from its own transactions, so that later ones need not
// read it again. It holds only where nobody else can have written in between: in a store with
// turns, see kv.Transaction.Turn. A nil *Known knows nothing.
type Known struct {
	turn   int64             // of the last transaction
	queues map[string]*facts // by prefix
	leased int               // about the bytes of all facts.leased
	turns  int               // about the number of all facts.turns

	// counts spares pushes the reads of the last items of their priorities. Counts that are too
	// high do no harm, because the order stays the same. So they need not change when items are
	// taken.
	counts  CountsByQueue
	size    int  // at least the number of counts
	foreign bool // ForgetCounts was called in the open transaction
}

const (
	// maxKnownQueues bounds Known.queues: programs may use each queue name once.
	maxKnownQueues = 4096
	// maxKnownLeased is about the bound of Known.leased; one transaction may exceed it.
	maxKnownLeased = 16 << 20
	// maxKnownMessage is the largest Message.Size that facts.leased holds.
	maxKnownMessage = 1024
	// maxKnownTurns bounds Known.turns in the same way.
	maxKnownTurns = 16 << 10
	// maxKnownCounts bounds Known.counts: programs may use each priority once.
	maxKnownCounts = 4096
)

// CountsByQueue holds a count for each priority of each queue, by the queue's prefix.
type CountsByQueue map[string]map[int64]int64

// facts is the known state of one queue, as the open transaction sees it, with its own writes. Code
// that writes what a fact is about must also change the fact. A nil *facts knows nothing.
//
//	fact         unknown          learned by                   changed by
//	quietUntil   zero             ReadDue that finds nothing   noteDue, to an earlier time
//	noHistories  false            FirstHistory                 SetHistory
//	settings     nil              Settings                     SetSettings
//	leased       not in the map   Hold of a lease              Unhold, Purge
//	turns        see turn         Turns.Load                   each move of an item, Purge
type facts struct {
	known       *Known
	quietUntil  time.Time                  // nothing falls due before
	noHistories bool                       // no item has a history
	settings    *codec.StoredSettings      // must not be changed
	leased      map[codec.ID]*codec.Record // leases that will be acknowledged soon: see knowLeased
	turns       map[turnOf]*turn
}

// BeginTransaction must be called at the beginning of each transaction. If other transactions may
// have written since the last one, it forgets everything.
func (k *Known) BeginTransaction(tx kv.Transaction) {
	if k == nil {
		return
	}

	// The turn counts transactions: the next one means that nobody else has written in between.
	turn := tx.Turn()
	if turn == 0 || turn != k.turn+1 {
		k.counts, k.size = nil, 0
		k.forgetQueues()
	}

	// Not later, because all ledgers of a queue in one transaction must have the same facts.
	if len(k.queues) >= maxKnownQueues || k.leased >= maxKnownLeased || k.turns >= maxKnownTurns {
		k.forgetQueues()
	}
	k.turn, k.foreign = turn, false
}

func (k *Known) forgetQueues() { k.queues, k.leased, k.turns = nil, 0, 0 }

// Any reports whether anything can be known.
func (k *Known) Any() bool { return k != nil && k.turn != 0 }

// Counts returns the next counts of a queue that are known, by priority.
func (k *Known) Counts(l *codec.Layout) map[int64]int64 {
	if !k.Any() {
		return nil
	}
	return k.counts[l.Prefix]
}

// ForgetCounts must be called when an item comes back to a queue that it had left: it may have a
// higher count than the next one that is known.
func (k *Known) ForgetCounts() {
	if k != nil {
		k.foreign = true
	}
}

// LearnCounts adds the next counts after a transaction, or forgets all counts if ForgetCounts was
// called.
func (k *Known) LearnCounts(after CountsByQueue) {
	switch {
	case !k.Any():
		return
	case k.foreign:
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

// knowLeased records that a leased item is written.
func (f *facts) knowLeased(l *codec.Layout, h *codec.Record) {
	if f == nil {
		return
	}

	f.forgetLeased(&h.ID)
	if f.leased == nil {
		f.leased = map[codec.ID]*codec.Record{}
	}

	// A later acknowledgement needs everything but the value, which may be large, and of a job that
	// it will keep a small message as well.
	known := *h
	known.Due = codec.Micros(h.Due) // as it is stored
	known.Dropped = len(codec.DecodeValue(l.Format, h.Value))
	known.Value, known.Message = nil, nil
	if m := h.Message; m != nil && !h.Since.IsZero() && m.Size() <= maxKnownMessage {
		own := *m // others may change what they got
		own.Value, own.Headers = slices.Clone(m.Value), maps.Clone(m.Headers)
		known.Message = &own
	}
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

// forgetCounts is Known.ForgetCounts.
func (f *facts) forgetCounts() {
	if f != nil {
		f.known.ForgetCounts()
	}
}

// leasedSize is about how much memory an element of facts.leased takes.
func leasedSize(h *codec.Record) int {
	n := 300 + len(h.Reason) + len(h.Unique)
	if h.Message != nil {
		n += 200 + h.Message.Size()
	}
	return n
}

// quiet reports whether it is known that nothing is due.
func (f *facts) quiet(now time.Time) bool { return f != nil && f.quietUntil.After(now) }

// noteDue records that something is written that falls due.
func (f *facts) noteDue(at time.Time) {
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

// nothing is the result of reading a range that is known to be empty.
var nothing = kv.Ready[[]kv.KeyValue](nil, nil)

// byteCount is what a transaction knows of the bytes of a queue.
type byteCount struct {
	loaded bool
	on     bool  // the queue has MaxBytes, so its items count
	delta  int64 // what Flush adds to the counter
}
