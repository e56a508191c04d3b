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
// whatever the limits of the connection: a dropped message would lose its items.
type inbox struct {
	nc           *nats.Conn
	subscription *nats.Subscription
	prefix       string // of the subjects of all its requests
	requests     int    // how many it has served

	subject  string // of the current request
	state    waitState
	why      error // the request was given up
	messages chan *nats.Msg
	closed   chan struct{} // closed when the subscription has ended
}

// waitState says how the current request of an inbox waits for messages. It makes these moves:
//
//	from       to         when
//	waiting    cancelled  the Worker stops, or its connection is back (popReply.receiveAll)
//	waiting    given up   the context or the subscription ends, or two heartbeats are missing
//	cancelled  given up   cancelTime is over, or the context or the subscription ends
//	any        released   the reply is complete, an error has come, or none of a request that was
//	                      given up is left to read
//
// Every request begins as waiting, and release ends it in any state. The inbox of a request that
// was given up is not used again.
type waitState uint8

const (
	waiting   waitState = iota // for messages; heartbeats count, and interrupts end the wait
	cancelled                  // for the end of the reply, which the bridge was asked for
	givenUp                    // for nothing; messages that had arrived are still read
)

const (
	// spareMessages is room for the end of a batch, and for messages of a bridge that was believed
	// to be dead.
	spareMessages = 8

	// idleMessages is room for the answer to a batch of 256, or to the pop of an idle Worker.
	idleMessages = 256 + spareMessages

	// maxIdle is how many idle inboxes a connection keeps, of about 3 KB each. Replies to many
	// pushes come at once: with only 256 inboxes, 1,000 goroutines cost the NATS server three times
	// as much.
	maxIdle = 4096

	// drainTime is how long a request that is given up waits for NATS to confirm that nothing more
	// is coming.
	drainTime = 500 * time.Millisecond
)

// idleInboxes keeps the inboxes without a request, of all connections, for later requests. A new
// subscription for each request would cost a connection a sixth of its pops, because with each one
// the NATS server forgets where other subjects lead. Requests under way cannot share an inbox: as
// long as somebody is subscribed, an item counts as received, even if its own request was given up.
//
// Call no method of a connection while holding the lock, because closing a connection waits for it.
var idleInboxes = struct {
	sync.Mutex
	of map[*nats.Conn][]*inbox
}{of: map[*nats.Conn][]*inbox{}}

// openInbox returns an inbox for a request with up to n messages of reply.
func openInbox(nc *nats.Conn, n int) (*inbox, error) {
	i := takeIdle(nc, n)
	if i == nil {
		var err error
		if i, err = newInbox(nc, max(n, idleMessages)); err != nil {
			return nil, err
		}
	}

	// A new subject distinguishes its messages from late ones of earlier requests.
	i.state = waiting
	i.requests++
	i.subject = i.prefix + strconv.Itoa(i.requests)
	return i, nil
}

// takeIdle returns an idle inbox with room for n messages, or nil.
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

// markEnded notes that the subscription has ended, so the inbox can no longer be used.
func (i *inbox) markEnded() {
	idleInboxes.Lock()
	defer idleInboxes.Unlock()

	if i.hasEnded() {
		return
	}

	close(i.closed)

	// It may be among the idle ones, which must not be used any more.
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

// release ends the request, which returned err. If part of the reply may be missing, the
// subscription ends too: then NATS tells the bridge that nobody is there, and the items go back.
func (i *inbox) release(err error) {
	partial := i.state == givenUp || errors.Is(err, ErrUnknownOutcome)
	if partial || !i.becomeIdle() {
		_ = i.subscription.Unsubscribe() // fails only if the connection has ended
	}
}

// becomeIdle keeps the inbox for later requests, and reports whether it did. It keeps none that has
// ended, is oversized, or would exceed maxIdle.
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

// interrupts make next return errInterrupted before a message comes.
type interrupts struct {
	stopping    <-chan struct{}
	reconnected <-chan nats.Status
}

var errInterrupted = errors.New("the wait was interrupted")

// next returns the next message. It gives the request up when ctx or the subscription ends, or when
// nothing comes for two heartbeats, unless heartbeat is 0. Only a request in the state waiting has
// heartbeats and interrupts.
//
// next never drops a message that has arrived: it returns those before the error of a request that
// was given up, and an interrupt leaves them to the next call.
func (i *inbox) next(ctx context.Context, heartbeat time.Duration,
	on interrupts) (*nats.Msg, error) {
	if i.state != waiting {
		heartbeat, on = 0, interrupts{}
	}

	// The bridge refuses a heartbeat below the minimum, and needs time to say so.
	var silence <-chan time.Time
	if heartbeat >= subjects.MinIdleHeartbeat {
		timer := time.NewTimer(2 * heartbeat)
		defer timer.Stop()
		silence = timer.C
	}

	done, closed := ctx.Done(), (<-chan struct{})(i.closed)
	for i.state != givenUp || len(i.messages) > 0 {
		if i.state == givenUp { // a nil channel is never ready: this only reads messages
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
	return nil, i.why
}

// giveUp ends the subscription because of err. It returns once everything that NATS had sent by
// then has arrived, because items among it can no longer go back.
func (i *inbox) giveUp(err error) {
	i.state, i.why = givenUp, err
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

// noResponders returns nats.ErrNoResponders if the server sent the message to say so.
func noResponders(m *nats.Msg) error {
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return nats.ErrNoResponders
	}
	return nil
}

// isAway reports whether the connection is down and may come back.
func isAway(nc *nats.Conn) bool {
	status := nc.Status()
	return status == nats.RECONNECTING || status == nats.CONNECTING
}
