package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// fetch sends a pop and calls receive for each item of the reply.
func (q *queue) fetch(ctx context.Context, verb subjects.Verb, o subjects.PopOptions, receive func(*nats.Msg) error) error {
	p, err := q.newPop(verb)
	if err != nil {
		return err
	}
	return q.client.fetch(ctx, p, o, receive)
}

// newPop returns a pop without options.
func (q *queue) newPop(verb subjects.Verb) (*pop, error) {
	subject, err := q.subject(verb)
	if err != nil {
		return nil, err
	}
	return &pop{subject: subject, pops: subject, encode: subjects.PopOptions.Encode, acks: q.client.grammar.Ack(q.kind, q.name, "")}, nil
}

// fetchOne is fetch for a pop of one item, which it returns.
func (q *queue) fetchOne(ctx context.Context, verb subjects.Verb, o subjects.PopOptions) (item *nats.Msg, err error) {
	err = q.fetch(ctx, verb, o, func(m *nats.Msg) error {
		item = m
		return nil
	})
	return item, err
}

// ask sends a request that pops with the options, and calls receive for each item of the
// reply.
func (c *Client) ask(ctx context.Context, p *pop, o subjects.PopOptions, receive func(*nats.Msg) error) error {
	m := &nats.Msg{Subject: p.subject, Data: p.encode(o)}
	if err := c.usable(ctx, m); err != nil {
		return err
	}
	if o.Expires == 0 {
		var cancel context.CancelFunc
		ctx, cancel = c.bound(ctx)
		defer cancel()
	}
	inbox, err := c.open(ctx, m, p, o)
	if err != nil {
		return err
	}

	ctx, cancel := c.boundPop(ctx, o.Expires)
	defer cancel()
	err = c.receiveItems(ctx, m, inbox, o, p, receive)
	if inbox.givenUp != nil {
		c.cancel(p, o)
	}
	inbox.release(err)
	return err
}

// cancel has the bridge end a pop that waits. It does not wait for that.
func (c *Client) cancel(p *pop, o subjects.PopOptions) {
	if o.ID == "" {
		return
	}
	// The answer says nothing, so nobody listens to it. If the cancel is lost, the pop ends as without it.
	_ = c.nc.PublishMsg(&nats.Msg{Subject: p.pops, Reply: c.nc.NewInbox(), Data: subjects.PopOptions{Cancel: o.ID}.Encode()})
}

// open sends a request, and returns where the answer comes.
func (c *Client) open(ctx context.Context, m *nats.Msg, p *pop, o subjects.PopOptions) (*inbox, error) {
	ctx, cancel := c.boundPop(ctx, o.Expires)
	defer cancel()
	if p.end != nil {
		var stop context.CancelFunc
		ctx, stop = context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(p.end, stop)()
	}
	if err := c.awaitConnection(ctx, m); err != nil {
		return nil, err
	}
	inbox, err := openInbox(c.nc, mostMessages(o))
	if err != nil {
		return nil, unsent(m, err)
	}
	m.Reply = inbox.subject
	if err := c.send(ctx, m); err != nil {
		inbox.release(err)
		return nil, err
	}
	return inbox, nil
}

// boundPop is bound for a pop that may wait. Even if ctx lasts longer, a pop that should have
// been answered lateReply ago is given up.
func (c *Client) boundPop(ctx context.Context, expires time.Duration) (context.Context, context.CancelFunc) {
	if expires == 0 {
		return c.bound(ctx)
	}
	patience := min(max(expires, 0), subjects.MaxExpires) + lateReply // out of bounds, it is for the bridge to refuse
	return context.WithTimeoutCause(ctx, patience, fmt.Errorf("waited %v", patience))
}

// endTime is how long a pop that was cancelled may take to end.
const endTime = 2 * time.Second

// errEndless is the cause of the end of one that takes longer.
var errEndless = fmt.Errorf("the bridge does not end the wait within %v", endTime)

// receiveItems receives the messages that answer a pop: items, heartbeats and, if it asked for
// several items, one that ends them, which may have items too.
func (c *Client) receiveItems(ctx context.Context, request *nats.Msg, inbox *inbox, o subjects.PopOptions, p *pop, receive func(*nats.Msg) error) error {
	frames := frameReader{acks: p.acks}
	ends := p.ends(o)
	for received := 0; received < max(o.Batch, 1); { // after all of them the end says nothing new
		m, err := inbox.next(ctx, o.IdleHeartbeat, ends)
		if errors.Is(err, errEnd) {
			c.cancel(p, o)
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, endTime, errEndless)
			defer cancel() // once, since ends is nil from now on
			o.IdleHeartbeat, ends = 0, nil
			continue
		}
		if err != nil {
			if err = c.explain(ctx, request, true, err); received > 0 {
				err = fmt.Errorf("the reply broke off after %d items: %w", received, err)
			}
			return err
		}
		if p.beat != nil && subjects.IsHeartbeat(m.Header) {
			p.beat()
		}
		n, more, err := readItems(m, &frames, o, received, receive)
		if received += n; !more {
			return err
		}
	}
	return nil
}

// readItems reads a message that answers a pop which has received some items. It returns the number of items in it, and
// whether more messages may follow.
func readItems(m *nats.Msg, frames *frameReader, o subjects.PopOptions, received int, receive func(*nats.Msg) error) (n int, more bool, err error) {
	if subjects.IsHeartbeat(m.Header) {
		return 0, true, nil
	}
	framed, err := frames.read(m, max(o.Batch, 1)-received, receive)
	if received += framed; err != nil {
		return framed, false, err
	}
	failure := subjects.ErrorFromHeaders(m.Header)
	sent, ends, err := subjects.ParseBatchEnd(m.Header)
	switch {
	case err != nil:
		return framed, false, badReply(err)
	case ends && sent > received:
		return framed, false, fmt.Errorf("%w: %d of %d items arrived", ErrUnknownOutcome, received, sent)
	case failure != nil && received > 0 && failure.Code == subjects.CodeTooLarge:
		return framed, false, nil // for the next call: it gets the item, or the error
	case failure != nil:
		return framed, false, (*Error)(failure)
	case ends && sent < received:
		return framed, false, badReply(fmt.Errorf("%d items arrived of %d", received, sent))
	case ends && received == 0:
		return framed, false, ErrEmpty
	case ends:
		return framed, false, nil
	case framed > 0:
		return framed, true, nil
	}
	err = receive(m)
	return 1, err == nil, err
}
