package peers

import (
	"slices"
	"sync"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
)

// intake knows what became of the pops that one peer has forwarded to this bridge. They are
// numbered consecutively. NATS delivers what one connection sends in the order sent, or loses it,
// so a number that was skipped will never arrive.
type intake struct {
	wake        func() // asks for a report at once
	reportAfter int    // how many pops may end before a report is asked for

	mu struct {
		sync.Mutex
		floor, high uint64 // as in Report

		// open has the pops that are not answered yet. Those that wait for items and are answered
		// through the peer have a handle, the others the zero value.
		open map[uint64]dispatch.WaitHandle

		// over has the pops that ended, until the peer confirms that it has heard so: one that was
		// answered, with no Last, or all that were lost in a row. reported is how many of these
		// have been in a report, confirmed how many came before them, as in Report.After.
		over      []Span
		reported  int
		confirmed uint64

		asked bool // the peer sent a mark since the last report of all
		idle  int  // how many times in a row a report of all brought nothing from the peer
	}
}

// After intakeLife heartbeats, this bridge no longer repeats what a silent peer does not confirm,
// and drops its intake once it has answered everything.
const intakeLife = 8 * peerLife

// newIntake returns an intake that begins with the number first, which has not arrived yet.
// Positions begin there as well, above all that the peer may have heard of an earlier intake.
func newIntake(first uint64, reportAfter int, wake func()) *intake {
	a := &intake{wake: wake, reportAfter: max(reportAfter, 1)}
	a.mu.floor, a.mu.high, a.mu.confirmed = first, first-1, first-1
	a.mu.open = map[uint64]dispatch.WaitHandle{}
	return a
}

// arrive records that a pop has arrived. It returns false if the pop must not be run, because it
// counts as lost already.
func (a *intake) arrive(number uint64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if number <= a.mu.high {
		return false
	}

	a.missLocked(number - 1)
	a.mu.high, a.mu.idle = number, 0
	a.mu.open[number] = dispatch.WaitHandle{}
	return true
}

// mark records that the peer has sent all pops up to a number, and has heard what ended up to a
// position.
func (a *intake) mark(number, heard uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.missLocked(number)
	a.mu.asked, a.mu.idle = true, 0
	if n := heard - a.mu.confirmed; n <= uint64(a.mu.reported) {
		a.confirmLocked(int(n))
	}
}

// missLocked records that numbers up to upTo that have not arrived are lost.
func (a *intake) missLocked(upTo uint64) {
	if upTo > a.mu.high {
		a.mu.over = append(a.mu.over, Span{a.mu.high + 1, upTo})
		a.mu.high = upTo
		a.wake()
	}
}

// confirmLocked forgets the first n that ended.
func (a *intake) confirmLocked(n int) {
	a.mu.over = a.mu.over[n:]
	a.mu.confirmed += uint64(n)
	a.mu.reported -= n
}

// waits records that a pop waits for items and is answered through the peer.
func (a *intake) waits(number uint64, w dispatch.WaitHandle) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.open[number] = w
}

// answered records that the last reply to a pop was handed to NATS.
func (a *intake) answered(number uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.mu.over) == 0 {
		a.mu.idle = 0
	}
	delete(a.mu.open, number)
	a.mu.over = append(a.mu.over, Span{First: number})
	if len(a.mu.over)-a.mu.reported == a.reportAfter {
		a.wake()
	}
}

// report returns reports of what ended since the last one or, with all, of all that the peer has
// not confirmed, in pieces of most entries. There is none if the peer knows everything. gone says
// that the intake is no longer needed.
func (a *intake) report(all bool, most int) (pieces []Report, gone bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	from := a.mu.reported
	if all {
		if a.mu.idle++; a.mu.idle > intakeLife {
			a.confirmLocked(a.mu.reported)
		}
		from = 0
	}

	r := Report{Floor: a.mu.floor, High: a.mu.high, All: all}
	r.After = a.mu.confirmed + uint64(from)
	if all && a.mu.asked && len(a.mu.over) == 0 {
		pieces = append(pieces, r)
	}
	for piece := range slices.Chunk(a.mu.over[from:], max(most, 1)) {
		r.Done, r.Lost = nil, nil
		for _, e := range piece {
			if e.Last > 0 {
				r.Lost = append(r.Lost, e)
			} else {
				r.Done = append(r.Done, e.First)
			}
		}
		pieces = append(pieces, r)
		r.After, r.All = r.After+uint64(len(piece)), false
	}

	a.mu.reported, a.mu.asked = len(a.mu.over), a.mu.asked && !all
	return pieces, a.mu.idle > intakeLife && len(a.mu.open)+len(a.mu.over) == 0
}

// Origin names the peer that forwarded a request, and the pop that it is there. The zero value is a
// request that NATS delivered to this bridge.
type Origin struct {
	intake *intake
	number uint64
}

// Forwarded reports whether a peer has forwarded the request, and so has checked it.
func (o Origin) Forwarded() bool { return o.intake != nil }

// NoteWaiting records that the request waits for items. w is the zero handle unless the request
// takes items without a lease: then it ends with the peer.
func (o Origin) NoteWaiting(w dispatch.WaitHandle) {
	if o.Forwarded() {
		o.intake.waits(o.number, w)
	}
}

// NoteAnswered records that the last reply to the request was handed to NATS. The report that says
// so is published later on the same connection, so the reply arrives before it.
func (o Origin) NoteAnswered() {
	if o.Forwarded() {
		o.intake.answered(o.number)
	}
}
