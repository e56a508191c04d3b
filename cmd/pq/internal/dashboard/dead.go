package dashboard

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
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

// deadScan sorts the dead letters of all queues by their reasons.
type deadScan struct {
	live     *live
	searches *searches

	mu          sync.Mutex
	view        deadView  // without Reasons
	started, at time.Time // this scan, and the end of the last one
	done        chan struct{}
	// groups are those of this scan. kept are what the scans before have found, for searchTime, so that
	// open pages stay valid: a reason has the same id in each scan.
	groups map[string]*deadGroup
	kept   map[string]*search
}

// deadGroup is dead letters of one queue with one reason. Their ids are those that a search for them
// would find.
type deadGroup struct {
	deadReason
	found *search
}

// find returns the search of a group, nil if it is not kept.
func (s *deadScan) find(id string) *search {
	s.mu.Lock()
	defer s.mu.Unlock()
	if group := s.groups[id]; s.kept[id] == nil && group != nil {
		return group.found
	}
	return s.kept[id]
}

// start begins a scan if the last one is old, and returns a channel that is closed at its end.
func (s *deadScan) start() (done <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.view.Running || time.Since(s.at) < deadFresh {
		return s.done
	}
	s.view, s.done, s.started = deadView{Running: true}, make(chan struct{}), time.Now()
	s.groups = map[string]*deadGroup{}
	started := s.searches.spawn(func() {
		err := s.run()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.view.Running, s.at = false, time.Now(); err != nil {
			s.view.Error = err.Error()
		}
		s.keep()
		close(s.done)
	})
	if !started {
		s.view.Running = false
		close(s.done)
	}
	return s.done
}

// keep keeps what was found. s.mu is held.
func (s *deadScan) keep() {
	maps.DeleteFunc(s.kept, func(_ string, found *search) bool { return time.Since(found.at.Started) > searchTime })
	if len(s.kept) > 2*maxReasons {
		clear(s.kept)
	}
	for id, group := range s.groups {
		s.kept[id] = group.found
	}
}

func (s *deadScan) run() error {
	ctx, cancel := context.WithTimeout(s.searches.ctx, longestSearch)
	defer cancel()
	s.live.awaitList(ctx)
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
		scanned, enough := int64(0), false
		err := s.searches.g.scan(ctx, rows[i].queueRef, client.ItemsOptions{}, func(page client.ItemsPage) bool {
			scanned += page.Scanned
			enough = page.Next != nil && scanned >= deadPerQueue
			return s.note(rows[i].queueRef, page.Items, enough) && !enough
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

// note takes in dead letters, and reports whether there is room for more. The last ones of a queue
// may not be all that it has.
func (s *deadScan) note(q queueRef, items []client.StoredItem, notAll bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range items {
		info, err := subjects.ParseItemHeaders(items[i].Headers)
		if err != nil || info.DeadLetter == nil {
			continue
		}
		if group := s.group(q, info.DeadLetter); group != nil {
			group.add(items[i].ID, info.DeadLetter.At)
			s.view.Counted++
		}
	}

	for _, group := range s.groups {
		if notAll && group.Queue == q {
			group.found.mu.Lock()
			group.found.at.First = deadPerQueue
			group.found.mu.Unlock()
		}
	}
	return s.view.Counted < deadAtMost
}

// group returns the group of a dead letter, nil if there are too many. s.mu is held.
func (s *deadScan) group(q queueRef, letter *subjects.DeadLetter) *deadGroup {
	id := fmt.Sprintf("%.16x", sha256.Sum256([]byte(strings.Join([]string{q.Kind, q.Name, letter.Queue, letter.Reason}, "\x00"))))
	group := s.groups[id]
	if group == nil && len(s.groups) < maxReasons {
		group = &deadGroup{
			deadReason{Queue: q, Home: q.Named(letter.Queue), Reason: letter.Reason, Oldest: letter.At, Newest: letter.At, Search: id},
			&search{id: id, queue: q, cancel: func() {}, at: searchView{Started: s.started}},
		}
		group.found.filter.Header = subjects.HeaderDeadReason + ": " + letter.Reason
		s.groups[id] = group
	}
	return group
}

func (g *deadGroup) add(id string, at time.Time) {
	g.found.mu.Lock()
	defer g.found.mu.Unlock()
	g.found.ids = append(g.found.ids, id)
	g.Count++
	if at.Before(g.Oldest) {
		g.Oldest = at
	}
	if at.After(g.Newest) {
		g.Newest = at
	}
}

// current returns what the page shows.
func (s *deadScan) current() *deadView {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.view
	for _, group := range s.groups {
		v.Reasons = append(v.Reasons, group.deadReason)
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
	if !v.Running { // the page asks again then
		for i := range v.Reasons {
			v.Reasons[i].Can = b.gateway.may(r.Context(), v.Reasons[i].Queue)
		}
	}
	b.show(w, r, http.StatusOK, "dead", "dead", b.newShell(r, "Dead letters", "dead"), v)
}
