// Package connlimit limits how many connections an HTTP server has at a time.
//
// If there is one too many, the oldest has to go: most likely its client does nothing, while a
// probe or a scrape is over within milliseconds. If the newest had to wait instead, a few clients
// that do nothing could keep everybody else out.
package connlimit

import (
	"net"
	"net/http"
	"slices"
	"sync"
)

// Limit is the limit of one server, whose ConnState has to be Note.
type Limit struct {
	most int

	mu         sync.Mutex
	all        []connection   // the oldest first
	goroutines sync.WaitGroup // one for each connection, even if Note has closed it
}

type connection struct {
	net.Conn
	idle bool // between requests, or before the first
}

// New returns a limit of most connections.
func New(most int) *Limit { return &Limit{most: most} }

// Note is for http.Server.ConnState. If there are too many connections, it closes one: the oldest
// that is idle, or else the oldest.
func (l *Limit) Note(conn net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()

	switch state {
	case http.StateNew:
		l.goroutines.Add(1)
	case http.StateClosed, http.StateHijacked:
		defer l.goroutines.Done()
	}

	at := slices.IndexFunc(l.all, func(other connection) bool { return other.Conn == conn })
	switch {
	case state == http.StateNew:
		if len(l.all) >= l.most {
			isIdle := func(other connection) bool { return other.idle }
			first := max(0, slices.IndexFunc(l.all, isIdle))
			_ = l.all[first].Close()
			l.all = slices.Delete(l.all, first, first+1)
		}
		l.all = append(l.all, connection{conn, true})
	case at < 0: // it was closed above
	case state == http.StateClosed || state == http.StateHijacked:
		l.all = slices.Delete(l.all, at, at+1)
	default:
		l.all[at].idle = state == http.StateIdle
	}
}

// Wait returns once the goroutines of all connections have ended. The server has to be closed.
func (l *Limit) Wait() { l.goroutines.Wait() }
