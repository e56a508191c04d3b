package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// inbox receives the messages that answer one pop. It has room for all of them, whatever limits
// the connection has: if any were dropped, items would be lost.
type inbox struct {
	subject  string
	messages chan *nats.Msg
	closed   <-chan struct{} // with the connection
	close    func()          // ends the subscription
	discard  func()          // is close, and no bridge may believe that somebody is there
	givenUp  bool            // next was not waited for to the end
}

// spareMessages is room for the end of a batch, and for what a bridge sends that was
// believed to be dead.
const spareMessages = 8

// newInbox subscribes to the answers to a pop with the options. A pop that waits has a subscription of its
// own: when it is given up, NATS can tell the bridge that nobody is there.
func (c *Client) newInbox(o subjects.PopOptions) (*inbox, error) {
	messages := make(chan *nats.Msg, mostMessages(o))
	if o.Expires == 0 {
		return openShared(c.nc, true, messages)
	}
	subject := c.nc.NewInbox()
	subscription, err := c.nc.ChanSubscribe(subject, messages)
	if err != nil {
		return nil, err
	}
	unsubscribe := func() { _ = subscription.Unsubscribe() } // fails only if the connection has ended
	return &inbox{
		subject: subject, messages: messages, closed: closedWith(subscription, func() {}),
		close: unsubscribe, discard: unsubscribe,
	}, nil
}

// closedWith returns a channel that is closed with the subscription, after a call of also.
func closedWith(subscription *nats.Subscription, also func()) <-chan struct{} {
	closed := make(chan struct{})
	over := sync.OnceFunc(func() {
		also()
		close(closed)
	})
	subscription.SetClosedHandler(func(string) { over() })
	if !subscription.IsValid() { // it ended before it had the handler
		over()
	}
	return closed
}

// mostMessages is how many messages can answer a pop. The options need not be valid: the
// bridge answers those that are not with one message.
func mostMessages(o subjects.PopOptions) int {
	n := min(max(o.Batch, 1), subjects.MaxPopBatch) + spareMessages
	if o.IdleHeartbeat > 0 {
		n += int(min(max(o.Expires, 0), subjects.MaxExpires) / max(o.IdleHeartbeat, subjects.MinIdleHeartbeat))
	}
	return n
}

// endings are the two ways in which a wait is ended. nil are none.
type endings struct {
	ended <-chan struct{}
	again <-chan nats.Status
}

// errEnd says that a wait is to end.
var errEnd = errors.New("the wait is to end")

// next returns the next message. It never drops one that has arrived. Unless heartbeat is 0, it waits at most two heartbeats for
// it; the bridge refuses shorter ones than it can keep, and needs time to say so.
func (i *inbox) next(ctx context.Context, heartbeat time.Duration, e *endings) (*nats.Msg, error) {
	var silence <-chan time.Time
	if heartbeat >= subjects.MinIdleHeartbeat {
		timer := time.NewTimer(2 * heartbeat)
		defer timer.Stop()
		silence = timer.C
	}
	if e == nil {
		e = &endings{}
	}
	var err error
	select {
	case m := <-i.messages:
		return m, noResponders(m)
	case <-ctx.Done():
		err = ctx.Err()
	case <-silence:
		err = fmt.Errorf("%w for %v", ErrNoHeartbeat, 2*heartbeat)
	case <-i.closed:
		err = nats.ErrConnectionClosed
	case <-e.ended:
		err = errEnd
	case <-e.again:
		err = errEnd
	}
	select {
	case m := <-i.messages: // it arrived before
		return m, noResponders(m)
	default:
		i.givenUp = !errors.Is(err, errEnd)
		return nil, err
	}
}

// noResponders returns nats.ErrNoResponders if the message says that.
func noResponders(m *nats.Msg) error {
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return nats.ErrNoResponders
	}
	return nil
}
