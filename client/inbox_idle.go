package client

import (
	"slices"
	"sync"

	"github.com/nats-io/nats.go"
)

// idleInboxes keeps inboxes without a request, of all connections, for later requests. A new
// subscription for each request would cost a sixth of the pops of a connection, because at each the
// NATS server forgets where other subjects lead. Requests under way must not share one: while it
// lasts, an item counts as received, even if its own request was given up.
var idleInboxes = struct {
	sync.Mutex // nothing of a connection is called with it held: what closes one waits for it
	of         map[*nats.Conn][]*inbox
}{of: map[*nats.Conn][]*inbox{}}

const (
	// idleMessages is room for the answer to a batch of 64, or to what an idle Worker asks for.
	idleMessages = 64 + spareMessages

	// maxIdle bounds how many a connection keeps, of about 1.5 KB each. Replies to many pushes come at
	// once: with 256 kept, 1,000 goroutines cost the NATS server three times as much.
	maxIdle = 4096
)

// takeIdle returns an inbox with room for n messages, nil if none is idle.
func takeIdle(nc *nats.Conn, n int) *inbox {
	if n > idleMessages || nc.IsDraining() { // what drains receives nothing more
		return nil
	}
	idleInboxes.Lock()
	defer idleInboxes.Unlock()
	list := idleInboxes.of[nc]
	if len(list) == 0 {
		return nil
	}
	last := len(list) - 1
	i := list[last]
	list[last] = nil
	idleInboxes.of[nc] = list[:last]
	return i
}

// becomeIdle keeps an inbox, unless it has ended or there is no use for it.
func (i *inbox) becomeIdle() bool {
	if cap(i.messages) > idleMessages {
		return false
	}
	idleInboxes.Lock()
	defer idleInboxes.Unlock()
	list := idleInboxes.of[i.nc]
	if i.hasEnded() || len(list) == maxIdle {
		return false
	}
	idleInboxes.of[i.nc] = append(list, i)
	return true
}

// end is called when the subscription has ended.
func (i *inbox) end() {
	idleInboxes.Lock()
	defer idleInboxes.Unlock()
	if i.hasEnded() {
		return
	}
	close(i.closed)
	rest := slices.DeleteFunc(idleInboxes.of[i.nc], func(other *inbox) bool { return other == i })
	if len(rest) > 0 {
		idleInboxes.of[i.nc] = rest
	} else {
		delete(idleInboxes.of, i.nc)
	}
}

func (i *inbox) hasEnded() bool {
	select {
	case <-i.closed:
		return true
	default:
		return false
	}
}
