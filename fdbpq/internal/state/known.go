package state

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Known is what a Batcher knows of the store from its own transactions, so that later ones need not read
// it again. That is only so in a store where nobody else can have written in the meantime, see
// kv.Transaction.Turn. It is nil if the engine has no turns; then nothing is known.
type Known struct {
	turn   int64 // of the last transaction
	Counts knownCounts
	queues map[string]*facts // by prefix
	leased int               // about the bytes of all facts.leased
}

// maxKnownQueues bounds known.queues: names may be disposable. maxKnownLeased bounds known.leased, about: a
// transaction more.
const (
	maxKnownQueues = 4096
	maxKnownLeased = 4 << 20
)

// Begin is called at the beginning of each transaction. Unless that follows on the last one, whose
// writes are in the store then, all is forgotten.
func (k *Known) Begin(tx kv.Transaction) {
	if k == nil {
		return
	}
	turn := tx.Turn()
	if turn == 0 || turn != k.turn+1 {
		k.Counts, k.queues, k.leased = knownCounts{}, nil, 0
	}
	// Not later, because all ledgers of a queue must have the same facts.
	if len(k.queues) >= maxKnownQueues || k.leased >= maxKnownLeased {
		k.queues, k.leased = nil, 0
	}
	k.turn = turn
}

// Any reports whether anything can be known.
func (k *Known) Any() bool { return k != nil && k.turn != 0 }

// Queue returns the facts of a queue, nil if none can be known.
func (k *Known) Queue(l *codec.Layout) *facts {
	if !k.Any() {
		return nil
	}
	f := k.queues[l.Prefix]
	if f != nil {
		return f
	}
	if k.queues == nil {
		k.queues = map[string]*facts{}
	}
	f = &facts{known: k}
	k.queues[l.Prefix] = f
	return f
}

// facts is what is known of a queue, as the open transaction sees it, with its own writes. So whoever
// writes something that a fact is about also changes the fact. A nil *facts knows nothing.
type facts struct {
	known       *Known
	quietUntil  time.Time             // nothing falls due before; zero is not known
	noHistories bool                  // no item has a history
	settings    *codec.StoredSettings // nil is not known; they must not be changed

	leased map[string][]byte // by key, the values of some leased items: those that will be acknowledged soon
}

// knowLeased records that a leased item is written.
func (f *facts) knowLeased(key, value []byte) {
	if f == nil {
		return
	}
	f.forgetLeased(key)
	if f.leased == nil {
		f.leased = map[string][]byte{}
	}
	f.leased[string(key)] = value
	f.known.leased += leasedSize(key, value)
}

// forgetLeased records that a held item is removed.
func (f *facts) forgetLeased(key []byte) {
	if f == nil {
		return
	}
	if value, ok := f.leased[string(key)]; ok {
		delete(f.leased, string(key))
		f.known.leased -= leasedSize(key, value)
	}
}

// leasedSize is about how much memory an element of facts.leased takes.
func leasedSize(key, value []byte) int { return len(key) + len(value) + 100 }

// Quiet reports whether nothing can be due.
func (f *facts) Quiet(now time.Time) bool { return f != nil && f.quietUntil.After(now) }

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

// LearnDue finds out when the first entry of the time index falls due.
func (f *facts) LearnDue(r kv.Reader, l *codec.Layout) {
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

// CountsByQueue holds a count for each priority of each queue, by the queue's prefix.
type CountsByQueue map[string]map[int64]int64

// knownCounts is what a Batcher knows of the next counts, so that its pushes need not read the last
// items of their priorities, twice each. Counts that are too high do no harm: the order stays the same. So
// nothing has to be forgotten when items are taken.
type knownCounts struct {
	Counts CountsByQueue
	Size   int // at least the number of counts
}

// MaxKnownCounts bounds knownCounts: some use each priority once.
const MaxKnownCounts = 4096
