package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// inbox receives the messages that answer one request at a time. It has room for all of them,
// whatever limits the connection has: a dropped message would lose its items.
type inbox struct {
	nc           *nats.Conn
	subscription *nats.Subscription
	prefix       string // of the subjects of all its requests
	requests     int    // that it has served

	subject  string // of the present request
	messages chan *nats.Msg
	closed   chan struct{} // closed when the subscription has ended
	givenUp  error         // why next has stopped waiting; nil while it has not
}

const (
	// spareMessages is room for the end of a batch, and for what a bridge sends that was believed
	// to be dead.
	spareMessages = 8

	// idleMessages is room for the answer to a batch of 256, or to the pop of an idle Worker.
	idleMessages = 256 + spareMessages

	// maxIdle bounds how many inboxes a connection keeps, of about 3 KB each. Replies to many
	// pushes come at once: with only 256 kept, 1,000 goroutines cost the NATS server three times as
	// much.
	maxIdle = 4096

	// drainTime is how long a request that is given up waits for NATS to say that nothing more
	// comes.
	drainTime = 500 * time.Millisecond
)

// idleInboxes keeps inboxes without a request, of all connections, for later requests. Subscribing
// anew for each request would cost a sixth of the pops of a connection, because with each new
// subscription the NATS server forgets where other subjects lead. Requests under way must not share
// one: while it lasts, an item counts as received, even if its own request was given up.
//
// Call no method of a connection while holding the lock: closing a connection waits for it.
var idleInboxes = struct {
	sync.Mutex
	of map[*nats.Conn][]*inbox
}{of: map[*nats.Conn][]*inbox{}}

// openInbox returns an inbox for a request that up to n messages answer.
func openInbox(nc *nats.Conn, n int) (*inbox, error) {
	i := takeIdle(nc, n)
	if i == nil {
		var err error
		if i, err = newInbox(nc, max(n, idleMessages)); err != nil {
			return nil, err
		}
	}

	// A new subject tells its messages from late ones of earlier requests.
	i.requests++
	i.subject = i.prefix + strconv.Itoa(i.requests)
	return i, nil
}

// takeIdle returns an idle inbox with room for n messages, nil if there is none.
func takeIdle(nc *nats.Conn, n int) *inbox {
	if n > idleMessages || nc.IsDraining() { // a draining connection receives nothing more
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

func newInbox(nc *nats.Conn, n int) (*inbox, error) {
	i := &inbox{
		nc:       nc,
		prefix:   nc.NewInbox() + ".",
		messages: make(chan *nats.Msg, n),
		closed:   make(chan struct{}),
	}

	var err error
	if i.subscription, err = nc.ChanSubscribe(i.prefix+"*", i.messages); err != nil {
		return nil, err
	}
	i.watch()
	return i, nil
}

// watch calls markEnded when the subscription ends.
func (i *inbox) watch() {
	i.subscription.SetClosedHandler(func(string) { i.markEnded() })
	if !i.subscription.IsValid() { // it ended before it had the handler
		i.markEnded()
	}
}

// markEnded notes that the subscription has ended: the inbox is of no more use.
func (i *inbox) markEnded() {
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

// release ends the request, which returned err. Unless its whole answer has come, the subscription
// ends too: then NATS tells the bridge that nobody is there, and items go back.
func (i *inbox) release(err error) {
	partial := i.givenUp != nil || errors.Is(err, ErrUnknownOutcome)
	if partial || !i.becomeIdle() {
		_ = i.subscription.Unsubscribe() // fails only if the connection has ended
	}
}

// becomeIdle keeps the inbox for later requests, and reports whether it did. It does not keep one
// that has ended, is oversized or exceeds maxIdle.
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

// interrupts make next return errInterrupted before a message comes. A nil channel never does.
type interrupts struct {
	stopping    <-chan struct{}
	reconnected <-chan nats.Status
}

var errInterrupted = errors.New("the wait was interrupted")

// next returns the next message. It gives the request up when ctx ends, when the subscription ends,
// or when nothing comes for two heartbeats, unless heartbeat is 0. (The bridge refuses heartbeats
// shorter than the minimum, and needs time to say so: they do not count.)
//
// next never drops a message that has arrived: it returns those first once the request is given up,
// and leaves them to the next call when it is interrupted.
func (i *inbox) next(ctx context.Context, heartbeat time.Duration, on interrupts) (*nats.Msg, error) {
	var silence <-chan time.Time
	if heartbeat >= subjects.MinIdleHeartbeat {
		timer := time.NewTimer(2 * heartbeat)
		defer timer.Stop()
		silence = timer.C
	}

	done, closed := ctx.Done(), (<-chan struct{})(i.closed)
	for i.givenUp == nil || len(i.messages) > 0 {
		if i.givenUp != nil { // only what has arrived
			done, closed, silence, on = nil, nil, nil, interrupts{}
		}

		select {
		case m := <-i.messages:
			if m.Subject == i.subject {
				return m, noResponders(m)
			}
		case <-on.stopping:
			return nil, errInterrupted
		case <-on.reconnected:
			return nil, errInterrupted
		case <-done:
			i.giveUp(ctx.Err())
		case <-silence:
			i.giveUp(fmt.Errorf("%w for %v", ErrNoHeartbeat, 2*heartbeat))
		case <-closed:
			i.giveUp(nats.ErrConnectionClosed)
		}
	}
	return nil, i.givenUp
}

// giveUp ends the subscription because of err, and returns once all that NATS had sent by then has
// arrived: an item among that can no longer go back.
func (i *inbox) giveUp(err error) {
	i.givenUp = err
	if isAway(i.nc) || i.subscription.Drain() != nil { // fails only if the connection has ended
		return
	}

	timer := time.NewTimer(drainTime)
	defer timer.Stop()
	select {
	case <-i.closed:
	case <-timer.C:
	}
}

// noResponders returns nats.ErrNoResponders if the message says that.
func noResponders(m *nats.Msg) error {
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return nats.ErrNoResponders
	}
	return nil
}
