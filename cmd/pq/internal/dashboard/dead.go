package dashboard

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
)

const (
	// A scan of the dead letters looks at deadPerQueue of each queue and deadAtMost of all, and its
	// result is shown for deadFresh. There are up to maxReasons different reasons.
	deadPerQueue = 10_000
	deadAtMost   = 100_000
	deadFresh    = 5 * time.Second
	maxReasons   = 500
	shownReasons = 100
	// firstScan is how long the page waits for a scan, most of which take less.
	firstScan = 200 * time.Millisecond
)

// deadScan counts the dead letters of all queues by their reasons.
type deadScan struct {
	live     *live
	searches *searches

	mu          sync.Mutex
	view        deadView  // without Reasons
	started, at time.Time // this scan, and the end of the last one
	done        chan struct{}
	reasons     map[deadKey]*deadReason
}

// deadKey are the dead letters in a queue with a reason.
type deadKey struct {
	queue  queueRef
	reason string
}

// start begins a scan if the last one is old, and returns a channel that is closed at its end.
func (s *deadScan) start() (done <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.view.Running || time.Since(s.at) < deadFresh {
		return s.done
	}
	s.view, s.done, s.started = deadView{Running: true}, make(chan struct{}), time.Now()
	s.reasons = map[deadKey]*deadReason{}
	started := s.searches.spawn(func() {
		err := s.run()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.view.Running, s.at, s.view.err = false, time.Now(), err; err != nil {
			s.view.Error = err.Error()
		}
		close(s.done)
	})
	if !started {
		s.view.Running = false
		close(s.done)
	}
	return s.done
}

func (s *deadScan) run() error {
	ctx, cancel := context.WithTimeout(s.searches.ctx, longestSearch)
	defer cancel()
	if err := s.live.awaitList(ctx); err != nil {
		return err
	}
	rows := s.live.deadQueues()
	for i := range rows {
		_ = s.live.ask(ctx, rows[i].queueRef) // the list may be older
		rows[i] = s.live.one(rows[i].queueRef).queueRow
	}
	s.mu.Lock()
	s.view.Queues = len(rows)
	for i := range rows {
		s.view.Total += rows[i].All()
	}
	s.mu.Unlock()

	for i := range rows {
		scanned := int64(0)
		err := s.searches.g.scan(ctx, rows[i].queueRef, client.ItemsOptions{}, func(page *client.ItemsPage) bool {
			scanned += page.Scanned
			return s.note(rows[i].queueRef, page.Items) && scanned < deadPerQueue
		})
		if denied := deniedBy(err); denied != "" {
			s.mu.Lock()
			s.view.Denied = denied
			s.mu.Unlock()
		} else if err != nil {
			return err
		}
	}
	return nil
}

// note takes in dead letters, and reports whether there is room for more.
func (s *deadScan) note(q queueRef, items []client.StoredItem) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range items {
		info, err := subjects.ParseItemHeaders(items[i].Headers)
		if err != nil || info.DeadLetter == nil {
			continue
		}

		letter := info.DeadLetter
		key := deadKey{q, letter.Reason}
		r := s.reasons[key]
		if r == nil && len(s.reasons) == maxReasons {
			continue
		}
		if r == nil {
			r = &deadReason{Queue: q, Home: q.Named(letter.Queue), Reason: letter.Reason, Oldest: letter.At, Newest: letter.At}
			s.reasons[key] = r
		}
		if r.Home.Name != letter.Queue { // of several queues
			r.Home = q
		}
		r.Count++
		s.view.Counted++
		if letter.At.Before(r.Oldest) {
			r.Oldest = letter.At
		}
		if letter.At.After(r.Newest) {
			r.Newest = letter.At
		}
	}
	return s.view.Counted < deadAtMost
}

// current returns what the page shows.
func (s *deadScan) current() *deadView {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.view
	if v.asOf = s.at; v.Running {
		v.asOf = s.started
	}
	for _, r := range s.reasons {
		v.Reasons = append(v.Reasons, *r)
	}
	slices.SortFunc(v.Reasons, func(a, b deadReason) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Queue.Name, b.Queue.Name), strings.Compare(a.Reason, b.Reason))
	})
	v.Reasons = v.Reasons[:min(len(v.Reasons), shownReasons)]
	return &v
}

func (b *board) getDead(w http.ResponseWriter, r *http.Request) {
	b.live.freshen(r.Context())
	select {
	case <-b.dead.start():
	case <-r.Context().Done():
	case <-time.After(firstScan):
	}

	v := b.dead.current()
	s := b.newShell(r, "Dead letters", "dead")
	if s.AsOf = v.asOf; v.Running {
		s.Refresh = soonTime
	}
	b.show(w, codeOf(v.err), "dead", s, v)
}
