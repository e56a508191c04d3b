package state

import (
	"maps"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/recent"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Known is what a Batcher knows of the store from its own transactions, so that later ones need not
// read it again. It holds only where nobody else can have written in between: in a store with
// turns, see kv.Transaction.Turn. A nil *Known knows nothing.
type Known struct {
	turn   int64               // of the last transaction
	queues *recent.Map[*facts] // by prefix
}

const (
	// MaxKnown is the most bytes that are worth while for Known.
	MaxKnown = 32 << 20
	// maxKnownMessage is the largest Message.Size that facts.leased holds.
	maxKnownMessage = 1024
)

// About how many bytes the facts of a queue take, and the elements of their maps.
const (
	factsSize  = 300
	countSize  = 40
	turnSize   = 250
	leasedSize = 300
)

// NewKnown returns a Known that knows nothing yet, and takes about that many bytes. One transaction
// may exceed them.
func NewKnown(bytes int) *Known {
	size := func(_ string, f *facts) int { return f.size }
	return &Known{queues: recent.NewMap(bytes, size)}
}

// CountsByQueue holds a count for each priority of each queue, by the queue's prefix.
type CountsByQueue map[string]map[int64]int64

// facts is the known state of one queue, as the open transaction sees it, with its own writes. Code
// that writes what a fact is about must also change the fact. A nil *facts knows nothing.
//
//	fact         unknown          learned by                   changed by
//	quietUntil   zero             ReadDue that finds nothing   noteDue, to an earlier time
//	noHistories  false            FirstHistory                 SetHistory
//	settings     nil              Settings                     SetSettings
//	counts       not in the map   LearnCounts                  forgetCounts
//	readAhead    see readAhead    a walk from the front        each change of ("i"), Purge
//	leased       not in the map   Hold of a lease              Unhold, Purge
//	turns        see turn         Turns.Load                   each move of an item, Purge
//	orderEnd     zero             Finish                       Finish, to a later time
type facts struct {
	known *Known
	size  int // about how many bytes all of it takes

	quietUntil  time.Time             // nothing falls due before
	noHistories bool                  // no item has a history
	settings    *codec.StoredSettings // must not be changed
	readAhead   readAhead
	leased      map[codec.ID]*codec.Record // leases that will be acknowledged soon: see knowLeased
	turns       map[turnOf]*turn
	orderEnd    time.Time // no finished job has a later place; too late a time does no harm

	// counts spares pushes the reads of the last items of their priorities. Counts that are too
	// high do no harm, because the order stays the same. So they need not change when items are
	// taken.
	counts  map[int64]int64
	foreign int64 // the turn of the last transaction that called forgetCounts
}

// grow notes that the facts take more bytes.
func (f *facts) grow(bytes int) {
	f.size += bytes
	f.known.queues.Grow(bytes)
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
		k.queues.Clear()
	}
	k.turn = turn

	// Not later, because all ledgers of a queue in one transaction must have the same facts.
	k.queues.Age()
}

// Any reports whether anything can be known.
func (k *Known) Any() bool { return k != nil && k.turn != 0 }

// Counts returns the next counts of a queue that are known, by priority.
func (k *Known) Counts(l *codec.Layout) map[int64]int64 {
	if f := k.queue(l); f != nil {
		return f.counts
	}
	return nil
}

// forgetCounts must be called when an item comes back to a queue that it had left: it may have a
// higher count than the next one that is known.
func (f *facts) forgetCounts() {
	if f != nil {
		f.grow(-countSize * len(f.counts))
		f.counts, f.foreign = nil, f.known.turn
	}
}

// LearnCounts adds the next counts after a transaction, except of queues where forgetCounts was
// called.
func (k *Known) LearnCounts(after CountsByQueue) {
	if !k.Any() {
		return
	}

	for queue, next := range after {
		f, ok := k.queues.Get([]byte(queue))
		if !ok || f.foreign == k.turn {
			continue
		}
		f.grow(-countSize * len(f.counts))
		if f.counts == nil {
			f.counts = next
		} else {
			maps.Copy(f.counts, next)
		}
		f.grow(countSize * len(f.counts))
	}
}

// queue returns the facts of a queue, nil if none can be known.
func (k *Known) queue(l *codec.Layout) *facts {
	if !k.Any() {
		return nil
	}

	f, ok := k.queues.Get([]byte(l.Prefix))
	if !ok {
		f = &facts{known: k, size: factsSize + len(l.Prefix)}
		k.queues.Set(l.Prefix, f)
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
	f.grow(sizeOfLeased(&known))
}

// forgetLeased records that a held item is removed.
func (f *facts) forgetLeased(id *codec.ID) {
	if f == nil {
		return
	}
	if known, ok := f.leased[*id]; ok {
		delete(f.leased, *id)
		f.grow(-sizeOfLeased(known))
	}
}

// forgetItems records that all items are removed.
func (f *facts) forgetItems() {
	if f == nil {
		return
	}
	for id := range f.leased {
		f.forgetLeased(&id)
	}
	f.growReadAhead(-f.readAhead.size)
	f.readAhead = readAhead{}
	f.grow(-turnSize * len(f.turns))
	clear(f.turns)
}

// sizeOfLeased is about how many bytes an element of facts.leased takes.
func sizeOfLeased(h *codec.Record) int {
	n := leasedSize + len(h.Reason) + len(h.Unique)
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
