package dashboard

import (
	"context"
	"sync"
	"time"
)

const (
	// A survey is shown for surveyFresh at least before a page begins another, and for surveyShare
	// times as long as it took: so surveys take a fifth of the time at most. One that failed is
	// soon followed by another.
	surveyFresh = 5 * time.Second
	surveyShare = 4
	// firstWait is how long a page waits for a survey. Most take less.
	firstWait = 200 * time.Millisecond
)

// survey goes through many queues in the background, for all pages that show the result.
type survey[V any] struct {
	searches *searches
	// gather does it. It calls show with what it has so far, which must not change afterwards.
	gather func(ctx context.Context, show func(V)) (V, error)

	mu       sync.Mutex
	result   V
	state    surveyState
	complete bool // result is of a whole survey
	running  bool
	next     time.Time     // when the next one may begin
	expired  bool          // something has changed since the last one began
	done     chan struct{} // closed at the end of the last one
}

// surveyState says how far to trust a result.
type surveyState struct {
	Running bool  // and the result is only a part
	Err     error // of the last survey
	asOf    time.Time
}

// look returns the last result. A new survey begins if that is old, and replaces it when it ends.
func (s *survey[V]) look(ctx context.Context) (V, surveyState) {
	select {
	case <-s.start():
	case <-ctx.Done():
	case <-time.After(firstWait):
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.result, s.state
}

// start begins a survey if the last one is old, and returns a channel that is closed at its end.
func (s *survey[V]) start() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	began := time.Now()
	if s.running || !s.expired && began.Before(s.next) {
		return s.done
	}

	done := make(chan struct{})
	s.done, s.running, s.expired = done, true, false
	if !s.complete {
		s.state = surveyState{asOf: began, Running: true}
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

// run makes a survey and keeps the result. After an error, the result of the last whole survey
// stays.
func (s *survey[V]) run(began time.Time) {
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
	pause := surveyFresh
	if err == nil {
		pause = max(surveyFresh, surveyShare*time.Since(began))
	}
	s.running, s.next = false, time.Now().Add(pause)
	s.state = surveyState{asOf: s.state.asOf, Err: err}
	switch {
	case err == nil:
		s.result, s.state.asOf, s.complete = result, began, true
	case !s.complete: // nobody knows how much that is of what there is
		s.result, s.state.asOf = result, time.Time{}
	}
}

// expire makes the next page begin a new survey, because somebody has changed something.
func (s *survey[V]) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expired = true
}
