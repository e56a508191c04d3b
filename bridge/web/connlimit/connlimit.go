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
	all        []net.Conn     // the oldest first
	goroutines sync.WaitGroup // one for each connection, even if Note has closed it
}

// New returns a limit of most connections.
func New(most int) *Limit { return &Limit{most: most} }

// Note is for http.Server.ConnState. If there are too many connections, it closes the oldest.
func (l *Limit) Note(conn net.Conn, state http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()

	switch state {
	case http.StateNew:
		l.goroutines.Add(1)
		if len(l.all) >= l.most {
			_ = l.all[0].Close()
			l.all = l.all[1:]
		}
		l.all = append(l.all, conn)

	case http.StateClosed, http.StateHijacked:
		defer l.goroutines.Done()
		l.all = slices.DeleteFunc(l.all, func(other net.Conn) bool { return other == conn })
	}
}

// Wait returns once the goroutines of all connections have ended. The server has to be closed.
func (l *Limit) Wait() { l.goroutines.Wait() }
