package fdbpq

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// known is what a Batcher knows of the store from its own transactions, so that later ones need not read
// it again. That is only so in a store where nobody else can have written in the meantime, see
// kv.Transaction.Turn. It is nil if the engine has no turns; then nothing is known.
type known struct {
	turn   int64 // of the last transaction
	counts knownCounts
	queues map[string]*facts // by prefix
	leased int               // about the bytes of all facts.leased
}

// maxKnownQueues bounds known.queues: names may be disposable. maxKnownLeased bounds known.leased, about: a
// transaction more.
const (
	maxKnownQueues = 4096
	maxKnownLeased = 4 << 20
)

// begin is called at the beginning of each transaction. Unless that follows on the last one, whose
// writes are in the store then, all is forgotten.
func (k *known) begin(tx kv.Transaction) {
	if k == nil {
		return
	}
	turn := tx.Turn()
	if turn == 0 || turn != k.turn+1 {
		k.counts, k.queues, k.leased = knownCounts{}, nil, 0
	}
	// Not later, because all ledgers of a queue must have the same facts.
	if len(k.queues) >= maxKnownQueues || k.leased >= maxKnownLeased {
		k.queues, k.leased = nil, 0
	}
	k.turn = turn
}

// any reports whether anything can be known.
func (k *known) any() bool { return k != nil && k.turn != 0 }

// queue returns the facts of a queue, nil if none can be known.
func (k *known) queue(l *layout) *facts {
	if !k.any() {
		return nil
	}
	f := k.queues[l.prefix]
	if f != nil {
		return f
	}
	if k.queues == nil {
		k.queues = map[string]*facts{}
	}
	f = &facts{known: k}
	k.queues[l.prefix] = f
	return f
}

// facts is what is known of a queue, as the open transaction sees it, with its own writes. So whoever
// writes something that a fact is about also changes the fact. A nil *facts knows nothing.
type facts struct {
	known       *known
	quietUntil  time.Time       // nothing falls due before; zero is not known
	noHistories bool            // no item has a history
	settings    *storedSettings // nil is not known; they must not be changed

	leased map[string][]byte // by key, the values of some leased items: those that will be acknowledged soon
}

// lease records that a leased item is written.
func (f *facts) lease(key, value []byte) {
	if f == nil {
		return
	}
	f.release(key)
	if f.leased == nil {
		f.leased = map[string][]byte{}
	}
	f.leased[string(key)] = value
	f.known.leased += leasedSize(key, value)
}

// release records that a held item is removed.
func (f *facts) release(key []byte) {
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

// forever is a quietUntil of queues where nothing will fall due.
var forever = time.UnixMicro(1<<62 - 1)

// quiet reports whether nothing can be due.
func (f *facts) quiet(now time.Time) bool { return f != nil && f.quietUntil.After(now) }

// noteDue records that something is written that falls due.
func (f *facts) noteDue(at time.Time) {
	at = micros(at) // as in the time index, and without the monotonic clock, which that does not go by
	if f != nil && at.Before(f.quietUntil) {
		f.quietUntil = at
	}
}

// noteSettings records the settings, as they were read or are written.
func (f *facts) noteSettings(s *storedSettings) {
	if f != nil {
		f.settings = s
	}
}

// learnDue finds out when the first entry of the time index falls due.
func (f *facts) learnDue(r kv.Reader, l *layout) {
	f.quietUntil = time.Time{}
	first, err := r.GetRange(l.kindRange(kindDue), kv.RangeOptions{Limit: 1}).Get()
	if err != nil {
		return
	}
	if len(first) == 0 {
		f.quietUntil = forever
	} else if at, err := l.dueTime(first[0].Key); err == nil {
		f.quietUntil = at
	}
}
