package web

import (
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// This file limits how many clients there are at a time. Where one is too many, the oldest has to
// go: most likely it reads or sends nothing, while a probe or a scrape is over within milliseconds.
// If the newest had to wait instead, a few clients that do nothing could keep the probes of the
// service waiting until it is killed.

const (
	maxConnections = 64
	// maxScrapes of /metrics run at a time.
	maxScrapes    = 4
	scrapeTimeout = 5 * time.Second
)

// connections are those of a server, the oldest first.
type connections struct {
	sync.Mutex
	all        []connection
	goroutines sync.WaitGroup // one for each connection, also for those that note has closed
}

type connection struct {
	net.Conn
	idle bool // between requests, or before the first
}

// note is for http.Server.ConnState. If there are too many connections, it closes one: the oldest
// that is idle, or else the oldest.
func (c *connections) note(conn net.Conn, state http.ConnState) {
	c.Lock()
	defer c.Unlock()

	switch state {
	case http.StateNew:
		c.goroutines.Add(1)
	case http.StateClosed, http.StateHijacked:
		defer c.goroutines.Done()
	}

	at := slices.IndexFunc(c.all, func(other connection) bool { return other.Conn == conn })
	switch {
	case state == http.StateNew:
		if len(c.all) >= maxConnections {
			first := max(0, slices.IndexFunc(c.all, func(other connection) bool { return other.idle }))
			_ = c.all[first].Close()
			c.all = slices.Delete(c.all, first, first+1)
		}
		c.all = append(c.all, connection{conn, true})
	case at < 0: // it was closed above
	case state == http.StateClosed || state == http.StateHijacked:
		c.all = slices.Delete(c.all, at, at+1)
	default:
		c.all[at].idle = state == http.StateIdle
	}
}

// scrapes are those under way, the oldest first.
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
