package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
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
)

// openInbox returns an inbox for a request with up to n messages of reply.
func openInbox(c connection, n int) (*inbox, error) {
	i := c.takeIdle(n)
	if i != nil && len(i.refused) > 0 { // since the connection was lost
		_ = i.subscription.Unsubscribe() // fails only if the connection has ended
		i = nil
	}
	if i == nil {
		var err error
		if i, err = newInbox(c, max(n, idleMessages)); err != nil {
			return nil, err
		}
	}

	// A new subject distinguishes its messages from late ones of earlier requests.
	i.state = waiting
	i.requests++
	i.subject = i.prefix + strconv.Itoa(i.requests)
	return i, nil
}

// takeIdle returns an idle inbox with room for n messages, or nil. A new subscription for each
// request would cost a connection a sixth of its pops, because with each one the NATS server
// forgets where other subjects lead. Requests under way cannot share an inbox: as long as somebody
// is subscribed, an item counts as received, even if its own request was given up.
func (c connection) takeIdle(n int) *inbox {
	if n > idleMessages || c.nc.IsDraining() { // a draining connection receives nothing more
		return nil
	}

	c.link.Lock()
	defer c.link.Unlock()
	last := len(c.link.idle) - 1
	if last < 0 {
		return nil
	}
	i := c.link.idle[last]
	c.link.idle = slices.Delete(c.link.idle, last, last+1)
	return i
}

func newInbox(c connection, n int) (*inbox, error) {
	i := &inbox{
		nc:       c.nc,
		link:     c.link,
		prefix:   c.nc.NewInbox() + ".",
		before:   refusalIn(c.nc),
		messages: make(chan *nats.Msg, n),
		closed:   make(chan struct{}),
		refused:  make(chan error, 1),
	}

	i.link.Lock()
	i.link.inboxes[i.prefix+"*"] = i
	i.link.Unlock()
	var err error
	if i.subscription, err = c.nc.ChanSubscribe(i.prefix+"*", i.messages); err != nil {
		i.markEnded()
		return nil, err
	}

	i.onEnd()
	return i, nil
}

// onEnd calls markEnded when the subscription ends.
func (i *inbox) onEnd() {
	i.subscription.SetClosedHandler(func(string) { i.markEnded() })
	if !i.subscription.IsValid() { // it ended before it had the handler
		i.markEnded()
	}
}

// markEnded notes that the subscription has ended, so the inbox can no longer be used.
func (i *inbox) markEnded() {
	i.link.Lock()
	defer i.link.Unlock()

	if !i.hasEnded() {
		close(i.closed)
		delete(i.link.inboxes, i.prefix+"*")
		i.link.idle = slices.DeleteFunc(i.link.idle, func(o *inbox) bool { return o == i })
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
	i.decide()
	partial := i.state == givenUp || errors.Is(err, ErrUnknownOutcome) || len(i.refused) > 0
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

	i.link.Lock()
	defer i.link.Unlock()
	if i.hasEnded() || len(i.link.idle) == maxIdle {
		return false
	}
	i.link.idle = append(i.link.idle, i)
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
		silence = time.After(2 * heartbeat)
	}

	done, closed := ctx.Done(), (<-chan struct{})(i.closed)
	refused := i.refused
	if i.state == cancelled { // the request was carried out, and only its end was refused
		refused = nil
	}
	for i.state != givenUp || len(i.messages) > 0 {
		if i.state == givenUp { // a nil channel is never ready: this only reads messages
			done, closed, refused, silence, on = nil, nil, nil, nil, interrupts{}
		}

		select {
		case m := <-i.messages:
			if m.Subject == i.subject {
				i.decide()
				if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
					return nil, nats.ErrNoResponders // as the server says itself
				}
				return m, nil
			}
		case <-on.stopping:
			return nil, errInterrupted
		case <-on.reconnected:
			return nil, errInterrupted
		case err := <-refused:
			i.giveUp(err)
		case <-done:
			err := i.ended(ctx)
			select { // the connection's error handler may have ended ctx because of a refusal
			case err = <-refused:
			default:
			}
			i.giveUp(err)
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

	exact := false
	select {
	case <-i.closed: // after all refusals of what was published before
		exact = i.link.hasHandled(i.nc.LastError())
	case <-time.After(drainTime):
	}
	if i.decide() && !exact {
		i.link.doubt()
	}
}

// isAway reports whether the connection is down and may come back.
func isAway(nc *nats.Conn) bool {
	status := nc.Status()
	return status == nats.RECONNECTING || status == nats.CONNECTING
}
