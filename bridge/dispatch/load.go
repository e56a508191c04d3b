package dispatch

import (
	"fmt"
	"sync/atomic"
)

// load counts the requests that wait or run in all lanes.
type load struct {
	requests, bytes       atomic.Int64
	maxRequests, maxBytes int64

	kept         atomic.Int64 // bytes, see Dispatcher.Keep
	maxKept      int64        // 0 is no limit
	maxKeptByAll int64        // above which no queue gives items away
	frees        atomic.Int64 // how often kept fell to one of the limits
}

// smallShare is the part of MaxKept that a queue may have kept and still give items away when all queues
// together exceed it.
const smallShare = 16

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

// keep is Dispatcher.Keep. It reports whether something that had to wait may be able to run now.
func (l *load) keep(bytes int) (freed bool) {
	now := l.kept.Add(int64(bytes))
	falls := func(to int64) bool { return now <= to && now-int64(bytes) > to }
	freed = l.maxKept > 0 && (falls(l.maxKept) || falls(l.maxKeptByAll))
	if freed {
		l.frees.Add(1)
	}
	return freed
}

// keepsTooMuchOf reports whether lanes are to take no more items of a queue for now.
func (l *load) keepsTooMuchOf(q *Queue) bool {
	kept := l.kept.Load()
	return l.maxKept > 0 && kept > l.maxKept && (kept > l.maxKeptByAll || q.kept.Load() > l.maxKept/smallShare)
}

// mayTake reports whether lanes may take items for requests that were set aside, or for others.
func (l *load) mayTake(aside bool) bool {
	most := l.maxKeptByAll
	if aside {
		most = l.maxKept
	}
	return l.maxKept == 0 || l.kept.Load() <= most
}
