package client

import (
	"errors"
	"runtime"
	"sync"
	"weak"

	"github.com/nats-io/nats.go"
)

// links has the link of each connection that a Client was made for.
var links = struct {
	sync.Mutex
	of map[weak.Pointer[nats.Conn]]*link
}{of: map[weak.Pointer[nats.Conn]]*link{}}

// link is what all Clients of a connection share. Call no method of the connection while holding
// the lock, because closing a connection waits for it.
type link struct {
	sync.Mutex
	idle     []*inbox            // without a request, for later ones: see takeIdle
	inboxes  map[string]*inbox   // by the subject of their subscription
	underWay map[string][]*inbox // by the subject of their request, in order: see refuse

	handled error         // the last refusal that was handled
	changed chan struct{} // closed when the next one is

	// Each is the number of the present connection, as numberOf counts them, if this is so:
	hears  uint64 // it may receive replies; see checkReplies
	exact  uint64 // no refusal of a request that was given up is still to come
	doubts int    // how often either became doubtful
}

// numberOf returns the number of the present connection to a server: it grows with each.
func numberOf(nc *nats.Conn) uint64 { return nc.Stats().Reconnects + 1 }

// linkOf returns the link of a connection. The first call has it handle the errors of the
// connection, before its error handler.
func linkOf(nc *nats.Conn) *link {
	links.Lock()
	defer links.Unlock()

	key := weak.Make(nc)
	if l := links.of[key]; l != nil {
		return l
	}
	l := &link{
		inboxes:  map[string]*inbox{},
		underWay: map[string][]*inbox{},
		changed:  make(chan struct{}),
		exact:    numberOf(nc),
	}
	links.of[key] = l
	runtime.AddCleanup(nc, unlink, key)

	next := nc.ErrorHandler()
	nc.SetErrorHandler(func(nc *nats.Conn, s *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrPermissionViolation) {
			l.handle(nc, err)
			err = withoutToken{err}
		}
		if next != nil {
			next(nc, s, err)
		}
	})
	l.handled = refusalIn(nc) // by the handler that was there
	return l
}

func unlink(key weak.Pointer[nats.Conn]) {
	links.Lock()
	defer links.Unlock()
	delete(links.of, key)
}
