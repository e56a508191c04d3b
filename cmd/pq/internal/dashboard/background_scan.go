package dashboard

import (
	"context"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/client"
)

const (
	// A scan is shown for scanFresh at least before a page begins another, and for scanShare
	// times as long as it took: so scans take a fifth of the time at most. One that failed is
	// soon followed by another.
	scanFresh = 5 * time.Second
	scanShare = 4
	// firstWait is how long a page waits for a scan. Most take less.
	firstWait = 200 * time.Millisecond
)

// backgroundScan goes through many queues in the background, for all pages that show the result.
type backgroundScan[V any] struct {
	searches *searchRegistry
	// gather does it. It calls show with what it has so far, which must not change afterwards.
	gather func(ctx context.Context, show func(V)) (V, error)

	mu       sync.Mutex
	result   V
	state    scanState
	complete bool // result is of a whole scan
	running  bool
	next     time.Time     // when the next one may begin
	expired  bool          // something has changed since the last one began
	done     chan struct{} // closed at the end of the last one
}

// look returns the last result. A new scan begins if that is old, and replaces it when it ends.
func (s *backgroundScan[V]) look(ctx context.Context) (V, scanState) {
	select {
	case <-s.start():
	case <-ctx.Done():
	case <-time.After(firstWait):
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.result, s.state
}

// start begins a scan if the last one is old, and returns a channel that is closed at its end.
func (s *backgroundScan[V]) start() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	began := time.Now()
	if s.running || !s.expired && began.Before(s.next) {
		return s.done
	}

	done := make(chan struct{})
	s.done, s.running, s.expired = done, true, false
	if !s.complete {
		s.state = scanState{asOf: began, Running: true}
	}

	spawned := s.searches.spawn(func() {
		defer close(done)
		s.run(began)
	})
	if !spawned { // the dashboard ends
		close(done)
	}
	return done
}

// run makes a scan and keeps the result. After an error, the result of the last whole scan
// stays.
func (s *backgroundScan[V]) run(began time.Time) {
	ctx, cancel := context.WithTimeout(s.searches.ctx, longestSearch)
	defer cancel()
	result, err := s.gather(ctx, func(part V) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.complete {
			s.result = part
		}
	})

	s.mu.Lock()
	defer s.mu.Unlock()
	pause := scanFresh
	if err == nil {
		pause = max(scanFresh, scanShare*time.Since(began))
	}
	s.running, s.next = false, time.Now().Add(pause)
	s.state = scanState{asOf: s.state.asOf, Err: err}
	switch {
	case err == nil:
		s.result, s.state.asOf, s.complete = result, began, true
	case !s.complete: // nobody knows how much that is of what there is
		s.result, s.state.asOf = result, time.Time{}
	}
}

// expire makes the next page begin a new scan, because somebody has changed something.
func (s *backgroundScan[V]) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expired = true
}

// scanAll scans up to maxMatches items of each queue, until note has enough. It passes over queues
// that the user may not read: denied says why.
func (g *gateway) scanAll(
	ctx context.Context, queues []queueRow, o client.ItemsOptions,
	note func(queueRef, []client.StoredItem) (more bool),
) (denied string, err error) {
	for i := range queues {
		q, scanned := queues[i].queueRef, int64(0)
		for page, err := range g.scan(ctx, q, o) {
			if why := deniedBy(err); why != "" {
				denied = why
				break
			}
			if err != nil {
				return denied, err
			}
			if !note(q, page.Items) {
				return denied, nil
			}
			if scanned += page.Scanned; scanned >= maxMatches {
				break
			}
		}
	}
	return denied, nil
}
