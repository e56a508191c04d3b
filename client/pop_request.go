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
	// lateReply is how much later than promised a reply may come. If none does, the bridge was
	// killed, or NATS lost the request or the reply.
	lateReply = 5 * time.Second

	// cancelTime is how long a pop that was cancelled may take to end.
	cancelTime = 2 * time.Second
)

// errEndless is why a pop ends that takes longer than cancelTime.
var errEndless = fmt.Errorf("the bridge does not end the wait within %v", cancelTime)

// popRequest is a request that pops.
type popRequest struct {
	subject   string
	cancels   string // subject that cancels it; "" if that is not known
	acks      string // subject of acknowledgements up to the token
	encode    func(subjects.PopOptions) []byte
	mustLease bool // it leases whatever the options say

	// For a Worker. The bridge ends the wait when stop ends, or when the connection is back.
	stop        context.Context
	reconnected <-chan nats.Status
	onHeartbeat func()
}

// newPop returns a request that pops with this verb.
func (q *handle) newPop(verb subjects.Verb) (*popRequest, error) {
	subject, err := q.subject(verb)
	if err != nil {
		return nil, err
	}
	return &popRequest{
		subject: subject,
		cancels: subject,
		acks:    q.client.grammar.Ack(q.kind, q.name, ""),
		encode:  subjects.PopOptions.Encode,
	}, nil
}

// fetch pops with the options and calls receive for each item of the reply.
func (q *handle) fetch(ctx context.Context, verb subjects.Verb, o subjects.PopOptions, receive func(*received) error) error {
	p, err := q.newPop(verb)
	if err != nil {
		return err
	}
	return q.client.fetchPop(ctx, p, o, receive)
}

// fetchOne is fetch for a pop of one item, which it returns.
func (q *handle) fetchOne(ctx context.Context, verb subjects.Verb, o subjects.PopOptions) (item *received, err error) {
	err = q.fetch(ctx, verb, o, func(r *received) error {
		item = r
		return nil
	})
	return item, err
}

// fetchBatch is fetch for a pop of several items.
func (q *handle) fetchBatch(ctx context.Context, verb subjects.Verb, o subjects.PopOptions, receive func(*received) error) error {
	if o.Batch < 1 {
		return badRequest("a batch of %d: want 1 to %d items", o.Batch, subjects.MaxPopBatch)
	}
	return q.fetch(ctx, verb, o, receive)
}

// fetchPop sends a request that pops with the options, and calls receive for each item of the
// reply. It lets the bridge put several items into a message, and makes the request cancellable.
func (c *Client) fetchPop(ctx context.Context, p *popRequest, o subjects.PopOptions, receive func(*received) error) error {
	// In frames, a lease that nobody receives ends at once.
	o.Frames = o.Batch > 1 || o.Lease || p.mustLease
	if o.Expires > 0 && p.cancels != "" {
		o.ID = rand.Text()
	}

	m := &nats.Msg{Subject: p.subject, Data: p.encode(o)}
	if err := c.checkUsable(ctx, m.Subject); err != nil {
		return err
	}
	if o.Expires == 0 {
		var cancel context.CancelFunc
		ctx, cancel = c.bound(ctx)
		defer cancel()
	}

	inbox, err := c.sendPop(ctx, m, p, o)
	if err != nil {
		return err
	}

	// A pop that waits does so from here on: its time does not include that for the connection.
	ctx, cancel := c.boundPop(ctx, o.Expires)
	defer cancel()
	r := &popReply{client: c, inbox: inbox, pop: p, o: o}
	err = r.receiveAll(ctx, m, receive)

	if inbox.givenUp != nil {
		c.cancelPop(p, o)
	}
	inbox.release(err)
	return err
}

// sendPop sends a request that pops, unless p.stop ends before the connection is up. It returns the
// inbox for the answer.
func (c *Client) sendPop(ctx context.Context, m *nats.Msg, p *popRequest, o subjects.PopOptions) (*inbox, error) {
	ctx, cancel := c.boundPop(ctx, o.Expires)
	defer cancel()

	if p.stop != nil {
		var stop context.CancelFunc
		ctx, stop = context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(p.stop, stop)()
	}
	return c.sendFrom(ctx, m, maxMessages(o))
}

// maxMessages is how many messages can answer a pop. The options need not be valid: the bridge
// answers those that are not with one message.
func maxMessages(o subjects.PopOptions) int {
	n := min(max(o.Batch, 1), subjects.MaxPopBatch) + spareMessages
	if o.IdleHeartbeat > 0 {
		n += int(min(max(o.Expires, 0), subjects.MaxExpires) / max(o.IdleHeartbeat, subjects.MinIdleHeartbeat))
	}
	return n
}

// boundPop is bound for a pop that may wait. Even if ctx lasts longer, a pop that should have been
// answered lateReply ago is given up.
func (c *Client) boundPop(ctx context.Context, expires time.Duration) (context.Context, context.CancelFunc) {
	if expires == 0 {
		return c.bound(ctx)
	}
	patience := min(max(expires, 0), subjects.MaxExpires) + lateReply // the bridge refuses what is out of bounds
	return context.WithTimeoutCause(ctx, patience, waited(patience))
}

// cancelPop asks the bridge to end a pop that waits, and does not wait for that.
func (c *Client) cancelPop(p *popRequest, o subjects.PopOptions) {
	if o.ID == "" {
		return
	}
	// The answer says nothing, so nobody listens to it. If the cancel is lost, the pop ends as
	// without it.
	_ = c.nc.PublishMsg(&nats.Msg{
		Subject: p.cancels,
		Reply:   c.nc.NewInbox(),
		Data:    subjects.PopOptions{Cancel: o.ID}.Encode(),
	})
}

// popReply receives the messages that answer a pop: items, heartbeats and, if it asked for several
// items, one that ends them, which may have items too.
type popReply struct {
	client *Client
	inbox  *inbox
	pop    *popRequest
	o      subjects.PopOptions

	received int // items
}

// wanted is how many items the pop asked for.
func (r *popReply) wanted() int { return max(r.o.Batch, 1) }

// receiveAll calls receive for each item of the reply to a request, and returns when the pop has
// ended, or ctx has.
func (r *popReply) receiveAll(ctx context.Context, request *nats.Msg, receive func(*received) error) error {
	var on interrupts
	if r.pop.stop != nil && r.o.ID != "" { // else it cannot be cancelled
		on = interrupts{stopping: r.pop.stop.Done(), reconnected: r.pop.reconnected}
	}

	for r.received < r.wanted() { // after all of them the end says nothing new
		m, err := r.inbox.next(ctx, r.o.IdleHeartbeat, on)

		if errors.Is(err, errInterrupted) {
			r.client.cancelPop(r.pop, r.o)
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, cancelTime, errEndless)
			defer cancel() // once: nothing interrupts it from now on
			r.o.IdleHeartbeat, on = 0, interrupts{}
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

// read reads a message of the reply, and returns whether more may follow.
func (r *popReply) read(m *nats.Msg, receive func(*received) error) (more bool, err error) {
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
		return false, nil // for the next call: it gets the item, or the error
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

	r.received++ // the message is an item
	err = receive(receivedIn(m))
	return err == nil, err
}
