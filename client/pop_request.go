package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

const (
	// lateReply is how late a reply may come. After that, the bridge was killed, or NATS lost the
	// request or the reply.
	lateReply = 5 * time.Second

	// cancelTime is how long the bridge may take to end a pop that was cancelled.
	cancelTime = 2 * time.Second
)

// errEndless is the cause of giving up a pop after cancelTime.
var errEndless = fmt.Errorf("the bridge does not end the wait within %v", cancelTime)

// popRequest is a request that pops.
type popRequest struct {
	message   func(subjects.PopOptions) *nats.Msg
	cancels   string // the subject that cancels it, or "" if it is not known
	acks      string // the subject of acknowledgements, up to the token
	mustLease bool   // whatever the options say

	// A Worker has the bridge end the wait when stop ends, or when the connection is back.
	stop        context.Context
	reconnected <-chan nats.Status
	onHeartbeat func()
}

// newPop returns a request with a verb that pops.
func (q *Queue) newPop(verb subjects.Verb) (*popRequest, error) {
	subject, err := q.subject(verb)
	if err != nil {
		return nil, err
	}
	return &popRequest{
		message: func(o subjects.PopOptions) *nats.Msg {
			return &nats.Msg{Subject: subject, Data: o.Encode()}
		},
		cancels: subject,
		acks:    q.client.grammar.Ack(q.kind, q.name, ""),
	}, nil
}

// fetchAll pops with the options, and returns what the items of the reply become.
func fetchAll[T any](ctx context.Context, q *Queue, verb subjects.Verb, o subjects.PopOptions,
	become func(*received) (T, error)) ([]T, error) {
	p, err := q.newPop(verb)
	if err != nil {
		return nil, err
	}
	return fetchPop(ctx, q.client, p, o, become)
}

// fetchPop is fetchAll for any request that pops.
func fetchPop[T any](ctx context.Context, c *Client, p *popRequest, o subjects.PopOptions,
	become func(*received) (T, error)) (list []T, err error) {
	err = c.sendAndReceive(ctx, p, o, func(r *received) error {
		item, err := become(r)
		if err == nil {
			list = append(list, item)
		}
		return err
	})
	return list, err
}

// fetchOne is fetchAll for a pop of one item.
func fetchOne[T any](ctx context.Context, q *Queue, verb subjects.Verb, o subjects.PopOptions,
	become func(*received) (T, error)) (item T, err error) {
	list, err := fetchAll(ctx, q, verb, o, become)
	if err == nil {
		item = list[0]
	}
	return item, err
}

// fetchBatch is fetchAll for a pop of several items.
func fetchBatch[T any](ctx context.Context, q *Queue, verb subjects.Verb, o subjects.PopOptions,
	become func(*received) (T, error)) ([]T, error) {
	if o.Batch < 1 {
		return nil, badRequest("a batch of %d: want 1 to %d items", o.Batch, subjects.MaxPopBatch)
	}
	if o.Batch == 1 {
		o.Batch = 0 // the default, which makes a smaller request
	}
	return fetchAll(ctx, q, verb, o, become)
}

// sendAndReceive sends a request that pops with the options, and calls receive for each item of the
// reply. It lets the bridge put several items into a message, and makes the request cancellable.
func (c *Client) sendAndReceive(ctx context.Context, p *popRequest, o subjects.PopOptions,
	receive receiver) error {
	if err := wantUTF8(o.Holder); err != nil {
		return err
	}

	// In frames, a lease that nobody receives ends at once.
	o.Frames = o.Batch > 1 || o.Lease || p.mustLease
	if o.Expires > 0 && p.cancels != "" {
		o.ID = rand.Text()
	}

	m := p.message(o)
	if err := c.checkUsable(ctx, m.Subject); err != nil {
		return err
	}

	// A pop that does not wait has one timeout, for the connection and the reply.
	if o.Expires == 0 {
		var cancel context.CancelFunc
		ctx, cancel = c.bound(ctx)
		defer cancel()
	}

	inbox, err := c.sendPop(ctx, m, p, o)
	if err != nil {
		return err
	}

	// A pop that waits begins here: its time does not include the wait for the connection.
	ctx, cancel := c.boundPop(ctx, o.Expires)
	defer cancel()
	r := &popReply{client: c, inbox: inbox, pop: p, o: o}
	err = r.receiveAll(ctx, m, receive)

	if inbox.state == givenUp && !errors.Is(err, ErrNotSent) {
		c.cancelPop(p, o)
	}

	inbox.release(err)
	return err
}

// sendPop sends a request that pops, unless p.stop ends before the connection is up. It returns the
// inbox for the reply.
func (c *Client) sendPop(ctx context.Context, m *nats.Msg, p *popRequest,
	o subjects.PopOptions) (*inbox, error) {
	ctx, cancel := c.boundPop(ctx, o.Expires)
	defer cancel()

	if p.stop != nil {
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(p.stop, cancel)()
	}
	return c.sendFrom(ctx, m, maxMessages(o))
}

// maxMessages is the most messages in the reply to a pop. The options may be invalid: then the
// bridge replies with a single message.
func maxMessages(o subjects.PopOptions) int {
	n := min(max(o.Batch, 1), subjects.MaxPopBatch) + spareMessages
	if o.IdleHeartbeat > 0 {
		every := max(o.IdleHeartbeat, subjects.MinIdleHeartbeat)
		n += int(min(max(o.Expires, 0), subjects.MaxExpires) / every)
	}
	return n
}

// boundPop is bound for a pop that may wait. It gives up a pop whose reply is lateReply overdue,
// even if ctx lasts longer.
func (c *Client) boundPop(ctx context.Context,
	expires time.Duration) (context.Context, context.CancelFunc) {
	if expires == 0 {
		return c.bound(ctx)
	}
	patience := min(max(expires, 0), subjects.MaxExpires) + lateReply
	return context.WithTimeoutCause(ctx, patience, waited(patience))
}

// cancelPop asks the bridge to end a waiting pop. It does not wait for the answer.
func (c *Client) cancelPop(p *popRequest, o subjects.PopOptions) {
	if o.ID == "" {
		return
	}

	// The answer says nothing, so nobody reads it. If the request is lost, the pop ends when it
	// would have ended anyway.
	c.link.doubt() // a refusal of it may come at any time
	_ = c.nc.PublishMsg(&nats.Msg{
		Subject: p.cancels,
		Reply:   c.nc.NewInbox(),
		Data:    subjects.PopOptions{Cancel: o.ID}.Encode(),
	})
}

// popReply reads the reply to a pop: items, heartbeats and, if the pop asked for several items, a
// message that ends the reply and may have items too.
type popReply struct {
	client *Client
	inbox  *inbox
	pop    *popRequest
	o      subjects.PopOptions

	received int // items
}

// wanted is how many items the pop asked for.
func (r *popReply) wanted() int { return max(r.o.Batch, 1) }

// receiveAll calls receive for each item of the reply to a request. It returns when the reply is
// complete, or when the request is given up: see [waitState].
func (r *popReply) receiveAll(ctx context.Context, request *nats.Msg, receive receiver) error {
	var on interrupts
	if r.pop.stop != nil && r.o.ID != "" { // otherwise it cannot be cancelled
		on = interrupts{stopping: r.pop.stop.Done(), reconnected: r.pop.reconnected}
	}

	// With all items there, the end of the reply says nothing new.
	for r.received < r.wanted() {
		m, err := r.inbox.next(ctx, r.o.IdleHeartbeat, on)

		if errors.Is(err, errInterrupted) {
			r.client.cancelPop(r.pop, r.o)
			r.inbox.state = cancelled
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, cancelTime, errEndless)
			defer cancel() // once: nothing interrupts a cancelled request
			continue
		}

		if err != nil {
			if err = r.client.explain(ctx, request, true, err); r.received > 0 {
				err = fmt.Errorf("the reply broke off after %d items: %w", r.received, err)
			}
			return err
		}

		if more, err := r.read(m, receive); !more {
			return err
		}
	}
	return nil
}

// read reads a message of the reply, and reports whether more may follow.
func (r *popReply) read(m *nats.Msg, receive receiver) (more bool, err error) {
	if subjects.IsHeartbeat(m.Header) {
		if r.pop.onHeartbeat != nil {
			r.pop.onHeartbeat()
		}
		return true, nil
	}

	framed, err := readFrames(m, r.pop.acks, r.wanted()-r.received, receive)
	r.received += framed
	if err != nil {
		return false, err
	}

	failure := subjects.ErrorFromHeaders(m.Header)
	sent, ends, err := subjects.ParseBatchEnd(m.Header)
	switch {
	case err != nil:
		return false, badReply(err)
	case ends && sent > r.received:
		return false, fmt.Errorf("%w: %d of %d items arrived", ErrUnknownOutcome, r.received, sent)
	case failure != nil && r.received > 0 && failure.Code == subjects.CodeTooLarge:
		return false, nil // the next call gets the item, or the error
	case failure != nil:
		return false, replyError(m)
	case ends && sent < r.received:
		return false, badReply(fmt.Errorf("%d items arrived of %d", r.received, sent))
	case ends && r.received == 0:
		return false, ErrEmpty
	case ends:
		return false, nil
	case framed > 0:
		return true, nil
	}

	// Anything else is an item without a frame.
	r.received++
	err = receive(receivedIn(m))
	return err == nil, err
}
