package dashboard

import (
	"cmp"
	"context"
	"crypto/rand"
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
)

// deadScan sorts the dead letters of all queues by their reasons.
type deadScan struct {
	g    *gateway
	live *live
	ctx  context.Context
	stop context.CancelFunc
	work sync.WaitGroup

	mu      sync.Mutex
	running bool
	at      time.Time // of the end of the last one
	groups  map[deadKey]*deadGroup
	queues  int
	total   int64
	counted int64
	err     error
	kept    map[string]*search // of this scan and the one before, so that open pages stay valid
}

// deadKey is what dead letters have in common.
type deadKey struct {
	queue        queueRef
	home, reason string
}

// deadGroup is dead letters with one reason. Their ids are kept like those of a search.
type deadGroup struct {
	search         *search
	oldest, newest time.Time
}

func newDeadScan(g *gateway, l *live) *deadScan {
	s := &deadScan{g: g, live: l, groups: map[deadKey]*deadGroup{}, kept: map[string]*search{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// end stops a scan and waits for it.
func (s *deadScan) end() {
	s.mu.Lock()
	s.stop()
	s.mu.Unlock()
	s.work.Wait()
}

func (s *deadScan) find(id string) *search {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept[id]
}

// start begins a scan if the last one is old.
func (s *deadScan) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running || time.Since(s.at) < deadFresh || s.ctx.Err() != nil {
		return
	}
	s.running, s.err, s.queues, s.total, s.counted = true, nil, 0, 0, 0
	s.kept = map[string]*search{}
	for _, group := range s.groups {
		s.kept[group.search.id] = group.search
	}
	s.groups = map[deadKey]*deadGroup{}
	s.work.Go(func() {
		s.run()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running, s.at = false, time.Now()
	})
}

func (s *deadScan) run() {
	rows := s.live.deadQueues()
	s.mu.Lock()
	s.queues = len(rows)
	for _, q := range rows {
		s.total += q.items()
	}
	s.mu.Unlock()
	for _, q := range rows {
		s.live.askQueue(s.ctx, q.queueRef, false) // the list may be older
		now := s.live.one(q.queueRef)
		s.mu.Lock()
		s.total += now.items() - q.items()
		s.mu.Unlock()
		if err := s.scan(q.queueRef); err != nil {
			s.mu.Lock()
			s.err = err
			s.mu.Unlock()
			return
		}
	}
}

// scan sorts the dead letters of one queue.
func (s *deadScan) scan(ref queueRef) error {
	o := client.ItemsOptions{Limit: subjects.MaxItems, ValueBytes: client.NoValues}
	for scanned := int64(0); scanned < deadPerQueue; {
		page, err := ask(s.ctx, s.g, ref, subjects.Items, func(ctx context.Context, q queue) (client.ItemsPage, error) { return q.Items(ctx, o) })
		if err != nil {
			return err
		}
		if scanned += page.Scanned; !s.note(ref, page.Items) || page.Next == nil || page.Scanned == 0 {
			return nil
		}
		o.After = *page.Next
	}
	s.noteMore(ref)
	return nil
}

// noteMore notes that a queue has more dead letters than were looked at.
func (s *deadScan) noteMore(ref queueRef) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, group := range s.groups {
		if key.queue == ref {
			group.search.setFull()
		}
	}
}

// note takes in dead letters, and reports whether there is room for more.
func (s *deadScan) note(ref queueRef, items []client.StoredItem) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range items {
		info, err := subjects.ParseItemHeaders(items[i].Headers)
		if err != nil || info.DeadLetter == nil {
			continue
		}
		key := deadKey{ref, info.DeadLetter.Queue, info.DeadLetter.Reason}
		group := s.groups[key]
		if group == nil {
			if len(s.groups) >= maxReasons {
				continue
			}
			group = &deadGroup{search: &search{id: rand.Text(), queue: ref, started: time.Now(), ended: time.Now(), cancel: func() {}}}
			group.search.filter.Header = subjects.HeaderDeadReason + ": " + key.reason
			s.groups[key], s.kept[group.search.id] = group, group.search
		}
		group.add(items[i].ID, info.DeadLetter.At)
		s.counted++
	}
	return s.counted < deadAtMost
}

func (g *deadGroup) add(id string, at time.Time) {
	g.search.mu.Lock()
	defer g.search.mu.Unlock()
	g.search.ids = append(g.search.ids, id)
	g.search.scanned++
	if g.oldest.IsZero() || at.Before(g.oldest) {
		g.oldest = at
	}
	if at.After(g.newest) {
		g.newest = at
	}
}

// view returns what the page shows.
func (s *deadScan) view() *deadView {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := &deadView{Queues: s.queues, Total: s.total, Counted: s.counted, Running: s.running}
	if s.err != nil {
		v.Error = s.err.Error()
	}
	for key, group := range s.groups {
		oldest, newest := group.oldest, group.newest
		_, n := group.search.matches(0, 1)
		v.Reasons = append(v.Reasons, deadReason{
			Reason: key.reason, Queue: key.queue, Home: queueRef{key.queue.Kind, key.home},
			Count: int64(n), Oldest: &oldest, Newest: &newest, Search: group.search.id,
		})
	}
	slices.SortFunc(v.Reasons, func(a, b deadReason) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Queue.Name, b.Queue.Name), strings.Compare(a.Reason, b.Reason))
	})
	v.Reasons = v.Reasons[:min(len(v.Reasons), shownReasons)]
	return v
}

// firstScan is how long the page waits for a scan, most of which take less.
const firstScan = 200 * time.Millisecond

func (d *Dashboard) getDead(w http.ResponseWriter, r *http.Request) {
	d.live.freshen(r.Context(), nil)
	d.dead.start()
	v := d.dead.view()
	for end := time.Now().Add(firstScan); v.Running && time.Now().Before(end); v = d.dead.view() {
		select {
		case <-r.Context().Done():
		case <-time.After(10 * time.Millisecond):
		}
	}

	if !v.Running { // the page asks again then
		for i := range v.Reasons {
			v.Reasons[i].Can = d.gateway.may(r.Context(), v.Reasons[i].Queue)
		}
	}
	d.show(w, r, http.StatusOK, "dead", "dead", d.newShell(r, "Dead letters", "dead"), v)
}
