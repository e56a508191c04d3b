package client

import (
	"runtime"
	"sync"
	"time"
)

// turn is a job that is done, until it is acknowledged.
type turn struct {
	*heldJob
	next *heldJob // the job that was leased in its place, nil if none was

	unacked bool // it is still to be acknowledged, by itself
	unknown bool // it may be acknowledged already

	// batch is for a turn that waits. It receives the turns to send, itself first, if it is to make
	// the next request, and is closed once another turn has sent it.
	batch chan []*turn
}

// sharedAcks lets jobs that end while requests are under way share the next one.
type sharedAcks struct {
	mu      sync.Mutex
	busy    int     // requests under way that are not slow, up to maxUnderWay
	waiting []*turn // for the next request

	slow time.Duration // after which a request is slow
}

// maxUnderWay is how many shared requests are under way at most: while the store syncs one, the
// next is on its way. With a single one a worker alone is slower than with a request for each job,
// and more save fewer messages.
const maxUnderWay = 2

// share returns once send has sent a turn, together with others, up to limit in one request. While
// enough requests are under way, turns wait; then the first of them sends them all.
func (a *sharedAcks) share(t *turn, limit int, send func([]*turn)) {
	batch := []*turn{t}
	a.mu.Lock()
	if a.busy >= maxUnderWay {
		t.batch = make(chan []*turn, 1)
		a.waiting = append(a.waiting, t)
		a.mu.Unlock()
		if batch = <-t.batch; batch == nil {
			return // another turn has sent this one
		}
	} else {
		a.busy++
		a.mu.Unlock()
	}

	// The next request begins when this one has its answer. A bridge that is gone must not hold up
	// all others, so it also begins when this one is slow.
	startNext := sync.OnceFunc(func() { a.startNext(limit) })
	slow := time.AfterFunc(a.slow, startNext)
	send(batch)
	slow.Stop()

	for _, other := range batch[1:] {
		close(other.batch)
	}
	runtime.Gosched() // their next jobs may be short, and end in time for the next request
	startNext()
}

// startNext has the first turn that waits send up to n of them, in place of a request that has its
// answer or is slow.
func (a *sharedAcks) startNext(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()

	n = min(n, len(a.waiting))
	if n == 0 {
		a.busy--
		return
	}
	a.waiting[0].batch <- a.waiting[:n:n]
	a.waiting = a.waiting[n:]
}
