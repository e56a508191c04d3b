package dispatch

import "sync/atomic"

// Rate counts events per period without locks. The zero value is ready for use.
type Rate struct {
	state atomic.Uint64 // the period in the upper half, the count in the lower
}

// Note counts an event and returns how many there have been in the period, including
// this one. No two callers get the same number, so exactly one of several concurrent
// callers sees a threshold being reached. Periods need not be consecutive.
func (r *Rate) Note(period uint32) (count uint32) {
	for {
		old := r.state.Load()
		next := old + 1
		if uint32(old>>32) != period {
			next = uint64(period)<<32 | 1
		}
		if r.state.CompareAndSwap(old, next) {
			return uint32(next)
		}
	}
}
