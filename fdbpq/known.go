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
}

// maxKnownQueues bounds known.queues: names may be disposable.
const maxKnownQueues = 4096

// begin is called at the beginning of each transaction. Unless that follows on the last one, whose
// writes are in the store then, all is forgotten.
func (k *known) begin(tx kv.Transaction) {
	if k == nil {
		return
	}
	turn := tx.Turn()
	if turn == 0 || turn != k.turn+1 {
		k.counts, k.queues = knownCounts{}, nil
	}
	if len(k.queues) >= maxKnownQueues { // not later, because each of a queue's ledgers must have the same facts
		k.queues = nil
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
	f = &facts{}
	k.queues[l.prefix] = f
	return f
}

// facts is what is known of a queue, as the open transaction sees it, with its own writes. So whoever
// writes something that a fact is about also changes the fact. A nil *facts knows nothing.
type facts struct {
	quietUntil  time.Time // nothing falls due before; zero is not known
	noHistories bool      // no item has a history
	settings    *Settings // nil is not known; they must not be changed
}

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

// learnDue finds out when the first entry of the time index falls due.
func (f *facts) learnDue(r kv.Reader, l *layout) {
	if f == nil {
		return
	}
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
