package client

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// inbox receives the messages that answer one pop. It has room for all of them, whatever limits
// the connection has: if any were dropped, items would be lost.
type inbox struct {
	subject      string
	subscription *nats.Subscription
	messages     chan *nats.Msg
	closed       chan struct{} // with the connection
}

// spareMessages is room for the end of a batch, and for what a bridge sends that was
// believed to be dead.
const spareMessages = 8

// newInbox subscribes to the answers to a pop with the options.
func (c *Client) newInbox(o subjects.PopOptions) (*inbox, error) {
	i := &inbox{subject: c.nc.NewInbox(), messages: make(chan *nats.Msg, mostMessages(o)), closed: make(chan struct{})}
	var err error
	if i.subscription, err = c.nc.ChanSubscribe(i.subject, i.messages); err != nil {
		return nil, err
	}
	over := sync.OnceFunc(func() { close(i.closed) })
	i.subscription.SetClosedHandler(func(string) { over() })
	return i, nil
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

// close ends the subscription.
func (i *inbox) close() { _ = i.subscription.Unsubscribe() } // fails only if the connection has ended

// next returns the next message. It never drops one that has arrived. Unless heartbeat is 0, it waits at most two heartbeats for
// it; the bridge refuses shorter ones than it can keep, and needs time to say so.
func (i *inbox) next(ctx context.Context, heartbeat time.Duration) (*nats.Msg, error) {
	var silence <-chan time.Time
	if heartbeat >= subjects.MinIdleHeartbeat {
		timer := time.NewTimer(2 * heartbeat)
		defer timer.Stop()
		silence = timer.C
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
	}
	select {
	case m := <-i.messages: // it arrived before
		return m, noResponders(m)
	default:
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
