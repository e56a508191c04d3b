package dispatch

import (
	"fmt"
	"sync/atomic"
)

// load counts the requests that wait or run in all lanes.
type load struct {
	requests, bytes       atomic.Int64
	maxRequests, maxBytes int64

	kept    atomic.Int64 // bytes, see Dispatcher.Keep
	maxKept int64        // 0 is no limit
}

// Errors of Submit when a limit is reached. They are variables so that callers can
// prepare the replies: in a flood, refusing a request must cost less than receiving it.
var (
	ErrTooManyRequests = fmt.Errorf("%w: too many requests are waiting: try again later", ErrOverloaded)
	ErrTooManyBytes    = fmt.Errorf("%w: too many bytes of requests are waiting: try again later", ErrOverloaded)
	ErrTooManyWaiters  = fmt.Errorf("%w: too many pops wait for items: try again later, or without waiting", ErrOverloaded)
)

// admit counts a request, or returns ErrTooManyRequests or ErrTooManyBytes.
func (l *load) admit(size int) error {
	if l.requests.Add(1) > l.maxRequests {
		l.requests.Add(-1)
		return ErrTooManyRequests
	}
	if l.bytes.Add(int64(size))-int64(size) > l.maxBytes {
		l.release(1, size)
		return ErrTooManyBytes
	}
	return nil
}

// add counts a request regardless of the limits.
func (l *load) add(size int) {
	l.requests.Add(1)
	l.bytes.Add(int64(size))
}

func (l *load) release(requests, bytes int) {
	l.requests.Add(int64(-requests))
	l.bytes.Add(int64(-bytes))
}

// keep is Dispatcher.Keep. It reports whether keepsTooMuch has ended.
func (l *load) keep(bytes int) (freed bool) {
	now := l.kept.Add(int64(bytes))
	return l.maxKept > 0 && now <= l.maxKept && now-int64(bytes) > l.maxKept
}

// keepsTooMuch reports whether lanes are to take no more items for now.
func (l *load) keepsTooMuch() bool { return l.maxKept > 0 && l.kept.Load() > l.maxKept }
