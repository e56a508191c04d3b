package client

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// inbox receives the messages that answer one request at a time. It has room for all of them,
// whatever limits the connection has: if any were dropped, items would be lost.
type inbox struct {
	nc           *nats.Conn
	subscription *nats.Subscription
	prefix       string // of the subjects of all its requests
	requests     int

	subject  string // of the request that has it
	messages chan *nats.Msg
	closed   chan struct{} // with the subscription
	givenUp  error         // why next has stopped waiting
}

// spareMessages is room for the end of a batch, and for what a bridge sends that was
// believed to be dead.
const spareMessages = 8

// openInbox returns an inbox for a request that up to n messages answer.
func openInbox(nc *nats.Conn, n int) (*inbox, error) {
	i := takeIdle(nc, n)
	if i == nil {
		var err error
		if i, err = newInbox(nc, max(n, idleMessages)); err != nil {
			return nil, err
		}
	}

	// What still comes for an earlier request has another subject.
	i.requests++
	i.subject = i.prefix + strconv.Itoa(i.requests)
	return i, nil
}

func newInbox(nc *nats.Conn, n int) (*inbox, error) {
	i := &inbox{nc: nc, prefix: nc.NewInbox() + ".", messages: make(chan *nats.Msg, n), closed: make(chan struct{})}
	var err error
	if i.subscription, err = nc.ChanSubscribe(i.prefix+"*", i.messages); err != nil {
		return nil, err
	}
	i.watch()
	return i, nil
}

// watch has end called at the end of the subscription.
func (i *inbox) watch() {
	i.subscription.SetClosedHandler(func(string) { i.end() })
	if !i.subscription.IsValid() { // it ended before it had the handler
		i.end()
	}
}

// release ends the request, with its error. Unless all of its answer has come, the subscription
// ends too: then NATS tells the bridge that nobody is there, and items go back.
func (i *inbox) release(err error) {
	partial := i.givenUp != nil || errors.Is(err, ErrUnknownOutcome)
	if partial || !i.becomeIdle() {
		_ = i.subscription.Unsubscribe() // fails only if the connection has ended
	}
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
	for i.givenUp == nil {
		var err error
		select {
		case m := <-i.messages:
			if m.Subject == i.subject {
				return m, noResponders(m)
			}
			continue
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
		if errors.Is(err, errEnd) {
			return i.arrived(err)
		}
		i.drain()
		i.givenUp = err
	}
	return i.arrived(i.givenUp)
}

// arrived returns a message if it is there, else the error.
func (i *inbox) arrived(err error) (*nats.Msg, error) {
	for {
		select {
		case m := <-i.messages:
			if m.Subject == i.subject {
				return m, noResponders(m)
			}
		default:
			return nil, err
		}
	}
}

// drainTime is how long a request that is given up waits for NATS to say that nothing more comes.
const drainTime = 500 * time.Millisecond

// drain ends the subscription, and returns when all that NATS has sent until then has arrived. An
// item among that cannot go back any more.
func (i *inbox) drain() {
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
