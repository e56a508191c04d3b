package client

import (
	"runtime"
	"sync"
	"time"
)

// maxUnderWay is the most shared requests under way: while the store syncs one, the next is on its
// way. With only one, a single worker is slower than with a request for each job; more would save
// fewer messages.
const maxUnderWay = 2

// pendingAck is a job that is done but not yet acknowledged.
type pendingAck struct {
	*heldJob
	lease bool     // a job in its place
	next  *heldJob // that job, or nil

	err     error // the shared request did not acknowledge it
	unknown bool  // but may have

	// batch tells one that waits what happens to it. It receives all that the next request
	// acknowledges, itself first, if it makes that request; it is closed once another has made it.
	batch chan []*pendingAck
}

// sharedAcks lets jobs that end while requests are under way share the next request.
type sharedAcks struct {
	mu      sync.Mutex
	busy    int           // requests under way that are not slow, up to maxUnderWay
	waiting []*pendingAck // for the next request

	slow time.Duration // after which a request is slow
}

// share returns once send has sent an acknowledgement, maybe together with others, as many as fit
// into one request. While enough requests are under way, they wait. Then the first of them sends
// them all.
func (a *sharedAcks) share(
	p *pendingAck, fitting func([]*pendingAck) int, send func([]*pendingAck),
) {
	batch := []*pendingAck{p}

	a.mu.Lock()
	if a.busy >= maxUnderWay {
		p.batch = make(chan []*pendingAck, 1)
		a.waiting = append(a.waiting, p)
		a.mu.Unlock()
		if batch = <-p.batch; batch == nil {
			return // another has sent this one
		}
	} else {
		a.busy++
		a.mu.Unlock()
	}

	// The next request starts when this one has its reply. It also starts when this one is slow,
	// because a bridge that is gone must not hold up all others.
	startNext := sync.OnceFunc(func() { a.startNext(fitting) })
	slow := time.AfterFunc(a.slow, startNext)
	send(batch)
	slow.Stop()

	for _, other := range batch[1:] {
		close(other.batch)
	}

	// Their next jobs may be short: let them end in time for the next request.
	runtime.Gosched()
	startNext()
}

// startNext has the first that waits send as many as fit, in place of a request that has its reply
// or is slow.
func (a *sharedAcks) startNext(fitting func([]*pendingAck) int) {
	a.mu.Lock()
	defer a.mu.Unlock()

	n := fitting(a.waiting)
	if n == 0 {
		a.busy--
		return
	}
	a.waiting[0].batch <- a.waiting[:n:n]
	a.waiting = a.waiting[n:]
}
