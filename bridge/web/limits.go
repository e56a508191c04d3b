package web

import (
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	maxConnections = 64
	// maxScrapes of /metrics run at a time.
	maxScrapes    = 4
	scrapeTimeout = 5 * time.Second
)

// scrapes are those under way, the oldest first. Of too many, the oldest has to go, for the reason that
// connlimit has.
type scrapes struct {
	sync.Mutex
	all []*scrapeWriter
}

// add adds a scrape. If there are too many, it ends the oldest.
func (s *scrapes) add(w *scrapeWriter) {
	s.Lock()
	defer s.Unlock()
	if len(s.all) >= maxScrapes {
		s.all[0].end()
		s.all = slices.Delete(s.all, 0, 1)
	}
	s.all = append(s.all, w)
}

func (s *scrapes) remove(w *scrapeWriter) {
	s.Lock()
	defer s.Unlock()
	s.all = slices.DeleteFunc(s.all, func(other *scrapeWriter) bool { return other == w })
}

// scrapeWriter limits the time to read an answer to scrapeTimeout, from when there is one.
type scrapeWriter struct {
	http.ResponseWriter
	mu    sync.Mutex
	begun bool
}

// Write implements http.ResponseWriter.
func (w *scrapeWriter) Write(p []byte) (int, error) {
	w.begin(scrapeTimeout)
	return w.ResponseWriter.Write(p)
}

// begin has writing fail after a time, unless that was decided before.
func (w *scrapeWriter) begin(after time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.begun {
		w.begun = true
		w.setDeadline(after)
	}
}

// end has writing fail at once.
func (w *scrapeWriter) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begun = true
	w.setDeadline(0)
}

func (w *scrapeWriter) setDeadline(after time.Duration) {
	deadline := time.Now().Add(after)
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(deadline) // else that of the server holds
}
