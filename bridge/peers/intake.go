package peers

import (
	"maps"
	"slices"
	"sync"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
)

// intake says what became of the pops that one peer has forwarded to this bridge. They are
// numbered consecutively. NATS delivers what one connection sends in the order sent, or
// loses it, so a number that was skipped will never arrive.
type intake struct {
	wake        func() // asks for a report
	reportAfter int    // the number of answers after which to ask for a report

	mu struct {
		sync.Mutex
		floor, high uint64              // as in Report
		lost        []Span              // as in Report
		pending     map[uint64]struct{} // as in Report
		changed     bool                // since the last report
		answers     int                 // since the last report
		idle        int                 // reports in a row with nothing new
		ended       []uint64            // as in Report
		ends        int                 // as in Report

		// waiting are the pops that wait for items; they are not pending. The zero handle is of one
		// that is not answered through the peer.
		waiting map[uint64]dispatch.WaitHandle
	}
}

// maxLost bounds the spans of lost numbers that an intake keeps.
const maxLost = 64

// newIntake returns an intake that begins with the number first, which has not arrived yet.
func newIntake(first uint64, reportAfter int, wake func()) *intake {
	a := &intake{wake: wake, reportAfter: max(reportAfter, 1)}
	a.mu.floor, a.mu.high = first, first-1
	a.mu.pending, a.mu.waiting = map[uint64]struct{}{}, map[uint64]dispatch.WaitHandle{}
	return a
}

// arrive records that a pop has arrived. It returns false if the pop must not be run,
// because it was reported lost before.
func (a *intake) arrive(number uint64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if number <= a.mu.high {
		return false
	}

	a.missLocked(number - 1)
	a.mu.high = number
	a.mu.pending[number] = struct{}{}
	a.mu.changed = true
	return true
}

// sentUpTo records that all pops up to the number have been sent.
func (a *intake) sentUpTo(number uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.missLocked(number)
	a.mu.changed = true
}

// missLocked records that numbers up to upTo that have not arrived are lost.
func (a *intake) missLocked(upTo uint64) {
	if upTo <= a.mu.high {
		return
	}

	a.mu.lost = append(a.mu.lost, Span{a.mu.high + 1, upTo})
	a.mu.high = upTo
	if len(a.mu.lost) > maxLost {
		a.mu.floor = a.mu.lost[0].Last + 1
		a.mu.lost = slices.Delete(a.mu.lost, 0, 1)
	}
}

// waits records that a pop waits for items.
func (a *intake) waits(number uint64, w dispatch.WaitHandle) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.mu.pending, number)
	a.mu.waiting[number] = w
	a.mu.changed = true
}

// waiters returns the pops that wait and are answered through the peer.
func (a *intake) waiters() []dispatch.WaitHandle {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Values(a.mu.waiting))
}

// answered records that the last reply to a pop was handed to NATS.
func (a *intake) answered(number uint64) {
	a.mu.Lock()
	if _, pending := a.mu.pending[number]; pending {
		delete(a.mu.pending, number)
	} else {
		delete(a.mu.waiting, number)
		a.mu.ended = append(a.mu.ended, number)
		a.mu.ends++
	}

	a.mu.changed = true
	a.mu.answers++
	enough := a.mu.answers == a.reportAfter
	a.mu.Unlock()

	if enough {
		a.wake()
	}
}

// report returns the state of all numbers. due says whether the peer may not know it yet, and idle
// how many calls in a row were not due.
func (a *intake) report() (r Report, due bool, idle int) {
	a.mu.Lock()
	defer a.mu.Unlock()

	due = a.mu.changed || len(a.mu.pending) > 0
	a.mu.changed, a.mu.answers = false, 0
	a.mu.idle++
	if due || len(a.mu.waiting) > 0 {
		a.mu.idle = 0
	}

	r = Report{
		Floor: a.mu.floor, High: a.mu.high, Lost: slices.Clone(a.mu.lost),
		Ended: a.mu.ended, Ends: a.mu.ends,
	}
	r.Pending, a.mu.ended = slices.Sorted(maps.Keys(a.mu.pending)), nil
	slices.Sort(r.Ended)
	return r, due, a.mu.idle
}
