package bridge

import (
	"slices"
	"sync"
)

// ledger accounts for the pops that one peer has forwarded to this bridge. They are
// numbered consecutively. NATS delivers what one connection sends in the order sent, or
// loses it, so a number that was skipped will never arrive.
type ledger struct {
	wake        func() // asks for a report
	reportAfter int    // the number of answers after which to ask for a report

	repliers map[*endpoint]*forwardedReplier // made on demand; used by the goroutine of receive

	mu struct {
		sync.Mutex
		floor, high uint64              // as in report
		lost        []span              // as in report
		pending     map[uint64]struct{} // as in report
		changed     bool                // since the last report
		answers     int                 // since the last report
		idle        int                 // reports in a row with nothing new
	}
}

// maxLost bounds the spans of lost numbers that a ledger keeps.
const maxLost = 64

// newLedger returns a ledger that begins with the number first, which has not arrived yet.
func newLedger(first uint64, reportAfter int, wake func()) *ledger {
	l := &ledger{wake: wake, reportAfter: max(reportAfter, 1), repliers: map[*endpoint]*forwardedReplier{}}
	l.mu.floor, l.mu.high = first, first-1
	l.mu.pending = map[uint64]struct{}{}
	return l
}

// arrive records that a pop has arrived. It returns false if the pop must not be run,
// because it was reported lost before.
func (l *ledger) arrive(number uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if number <= l.mu.high {
		return false
	}
	l.missLocked(number - 1)
	l.mu.high = number
	l.mu.pending[number] = struct{}{}
	l.mu.changed = true
	return true
}

// sentUpTo records that all pops up to the number have been sent.
func (l *ledger) sentUpTo(number uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.missLocked(number)
	l.mu.changed = true
}

// missLocked records that numbers up to upTo that have not arrived are lost.
func (l *ledger) missLocked(upTo uint64) {
	if upTo <= l.mu.high {
		return
	}
	l.mu.lost = append(l.mu.lost, span{l.mu.high + 1, upTo})
	l.mu.high = upTo
	if len(l.mu.lost) > maxLost {
		l.mu.floor = l.mu.lost[0].last + 1
		l.mu.lost = slices.Delete(l.mu.lost, 0, 1)
	}
}

// answered records that the reply to a pop was handed to NATS.
func (l *ledger) answered(number uint64) {
	l.mu.Lock()
	delete(l.mu.pending, number)
	l.mu.changed = true
	l.mu.answers++
	enough := l.mu.answers == l.reportAfter
	l.mu.Unlock()
	if enough {
		l.wake()
	}
}

// report returns the state of all numbers. due says whether the peer may not know it
// yet, and idle how many calls in a row were not due.
func (l *ledger) report() (r report, due bool, idle int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	due = l.mu.changed || len(l.mu.pending) > 0
	l.mu.changed, l.mu.answers = false, 0
	l.mu.idle++
	if due {
		l.mu.idle = 0
	}
	r = report{floor: l.mu.floor, high: l.mu.high, lost: slices.Clone(l.mu.lost)}
	for number := range l.mu.pending {
		r.pending = append(r.pending, number)
	}
	slices.Sort(r.pending)
	return r, due, l.mu.idle
}
