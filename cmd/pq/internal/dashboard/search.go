package dashboard

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
)

const (
	// maxSearches run at a time. keptSearches are kept, each with up to maxMatches ids that it
	// found, as long as they have no more than keptMatches together.
	maxSearches  = 8
	keptSearches = 64
	maxMatches   = 10_000
	keptMatches  = 100_000
	// longestSearch is how long one may run.
	longestSearch = 10 * time.Minute
)

// searchRegistry has the searches that were started, by their ids.
type searchRegistry struct {
	g    *gateway
	work sync.WaitGroup
	ctx  context.Context
	stop context.CancelFunc

	mu      sync.Mutex
	all     map[string]*search
	running int
}

// search looks for items of a queue, and keeps the target.Ref of each.
type search struct {
	id     string
	queue  queueRef
	filter itemsFilter
	cancel context.CancelCauseFunc

	mu   sync.Mutex
	refs []string
	at   searchView // without what view adds
}

var (
	errSearches = errors.New("too many searches are running: stop one, or try again in a moment")
	errTooLong  = errors.New("it took too long")
	errStopped  = errors.New("somebody stopped it")
	errNoSearch = errors.New("this search is no longer kept: search again")
)

func newSearchRegistry(g *gateway) *searchRegistry {
	s := &searchRegistry{g: g, all: map[string]*search{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// end stops all searches and waits for them.
func (s *searchRegistry) end() {
	s.mu.Lock()
	s.stop()
	s.mu.Unlock()
	s.work.Wait()
}

// spawn does work that end waits for, unless that was called.
func (s *searchRegistry) spawn(work func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return false
	}
	s.work.Go(work)
	return true
}

// start begins a search.
func (s *searchRegistry) start(
	q queueRef, f itemsFilter, options client.ItemsOptions, total int64,
) (*search, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.take(); err != nil {
		return nil, err
	}

	within, end := context.WithTimeoutCause(s.ctx, longestSearch, errTooLong)
	ctx, cancel := context.WithCancelCause(within)
	found := s.add(q, f, cancel)
	found.at = searchView{Total: total, Running: true}

	s.work.Go(func() {
		defer end()
		defer s.release()
		found.run(ctx, s.g, options)
	})

	return found, nil
}

// take counts one more search that runs, if there may be. s.mu is held.
func (s *searchRegistry) take() error {
	if s.running >= maxSearches || s.ctx.Err() != nil {
		return errSearches
	}
	s.running++
	return nil
}

func (s *searchRegistry) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
}

// during looks for something while a page waits, as one of the searches that run.
func (s *searchRegistry) during(look func() error) error {
	s.mu.Lock()
	err := s.take()
	s.mu.Unlock()
	if err != nil {
		return err
	}
	defer s.release()
	return look()
}

// addFound adds an ended search with refs that were found without it.
func (s *searchRegistry) addFound(q queueRef, f itemsFilter, refs []string) *search {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.add(q, f, func(error) {})
	found.refs = refs[:min(len(refs), maxMatches)]
	found.at = searchView{Scanned: int64(len(refs)), Full: len(refs) > maxMatches}
	return found
}

// add keeps a search. If there are too many, it drops all that have ended. s.mu is held.
func (s *searchRegistry) add(q queueRef, f itemsFilter, cancel context.CancelCauseFunc) *search {
	matches := 0
	for _, f := range s.all {
		matches += len(f.matches())
	}

	if len(s.all) >= keptSearches || matches > keptMatches {
		maps.DeleteFunc(s.all, func(_ string, f *search) bool { return !f.view().Running })
	}

	found := &search{id: rand.Text(), queue: q, filter: f, cancel: cancel}
	s.all[found.id] = found
	return found
}

// find returns a search of a queue.
func (s *searchRegistry) find(id string, q queueRef) (*search, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.all[id]; f != nil && f.queue == q {
		return f, nil
	}
	return nil, errNoSearch
}

// run looks through the queue.
func (f *search) run(ctx context.Context, g *gateway, o client.ItemsOptions) {
	var err error
	for page, failed := range g.scan(ctx, f.queue, o) {
		if err = failed; err != nil || !f.note(&page) {
			break
		}
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	f.at.Running = false
	switch {
	case errors.Is(context.Cause(ctx), errStopped):
		f.at.Stopped = true
	case err == nil && !f.at.Full:
		f.at.Total = f.at.Scanned // items came and went meanwhile
	case err != nil && ctx.Err() != nil:
		f.at.Error = context.Cause(ctx).Error()
	case err != nil:
		f.at.Error = err.Error()
	}
}

// note takes in a page, and reports whether there is room for more.
func (f *search) note(page *client.ItemsPage) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at.Scanned += page.Scanned
	for i := range page.Items {
		if f.at.Full = len(f.refs) == maxMatches; f.at.Full {
			break
		}
		f.refs = append(f.refs, target.Ref(&page.Items[i]))
	}
	return !f.at.Full
}

// view returns what the page shows of it.
func (f *search) view() *searchView {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := f.at
	v.ID, v.Found, v.Total = f.id, int64(len(f.refs)), max(v.Total, v.Scanned)
	return &v
}

// matches returns the refs that it has found so far. They must not be changed.
func (f *search) matches() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refs[:len(f.refs):len(f.refs)]
}
