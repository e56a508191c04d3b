package peers

import (
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
)

// forwardedWaiters are the pops that were forwarded to one peer and wait there for items. There
// may be many of them, for long. So the peer does not list them in each report; it only names
// those that have ended, once. If that report is lost, they are forgotten when their time is
// over: as long as the peer lives, it answers them.
type forwardedWaiters struct {
	of map[uint64]*dispatch.Request // by number
	// unconfirmed are the numbers that no report has covered yet, in order. The peer may not
	// have got these pops.
	unconfirmed []uint64
}

// waiterGrace is how much later than promised the peer may answer a pop that waits.
const waiterGrace = 5 * time.Second

// expireEvery is how many heartbeats pass between two searches for pops whose time is over.
const expireEvery = 16

func (w *forwardedWaiters) add(number uint64, r *dispatch.Request) {
	if w.of == nil {
		w.of = map[uint64]*dispatch.Request{}
	}
	w.of[number] = r
	w.unconfirmed = append(w.unconfirmed, number)
}

// overdue reports whether there are pops up to the number that no report has covered.
func (w *forwardedWaiters) overdue(number uint64) bool {
	return len(w.unconfirmed) > 0 && w.unconfirmed[0] <= number
}

// applyReport removes the pops that have ended, and removes and returns those that the peer
// did not get.
func (w *forwardedWaiters) applyReport(r Report) (lost []failedForward) {
	for _, number := range r.Ended {
		delete(w.of, number)
	}

	// Both are in order.
	spans := r.Lost
	for w.overdue(r.High) {
		number := w.unconfirmed[0]
		w.unconfirmed = w.unconfirmed[1:]
		for len(spans) > 0 && spans[0].Last < number {
			spans = spans[1:]
		}

		switch {
		case number < r.Floor:
			lost = w.lose(lost, number, errPeerSilent)
		case len(spans) > 0 && spans[0].First <= number:
			lost = w.lose(lost, number, errForwardLost)
		}
	}
	return lost
}

// lose removes a pop, if it is still there, and appends it to lost.
func (w *forwardedWaiters) lose(lost []failedForward, number uint64, err error) []failedForward {
	if request := w.of[number]; request != nil {
		delete(w.of, number)
		lost = append(lost, failedForward{*request, number, err})
	}
	return lost
}

// expire removes the pops whose time is over. It returns those that the peer may not have got.
func (w *forwardedWaiters) expire(now time.Time) (lost []failedForward) {
	for number, request := range w.of {
		switch {
		case now.Before(request.Wait.Until.Add(waiterGrace)):
		case w.overdue(number):
			lost = w.lose(lost, number, errPeerSilent)
		default:
			delete(w.of, number)
		}
	}
	return lost
}

// abandon removes and returns all pops.
func (w *forwardedWaiters) abandon(err error) (lost []failedForward) {
	for number := range w.of {
		lost = w.lose(lost, number, err)
	}
	w.unconfirmed = nil
	return lost
}
