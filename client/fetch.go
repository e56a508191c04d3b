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
	subject, err := q.subject(verb)
	if err != nil {
		return err
	}
	p := pop{subject: subject, encode: subjects.PopOptions.Encode, acks: q.client.grammar.Ack(q.kind, q.name, "")}
	return q.client.fetch(ctx, &p, o, receive)
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
	ctx, cancel := c.boundPop(ctx, o.Expires)
	defer cancel()
	if o.Batch <= 1 && o.IdleHeartbeat == 0 { // one message
		reply, err := c.request(ctx, m, true)
		if err != nil {
			return err
		}
		return receive(reply)
	}
	inbox, err := c.newInbox(o)
	if err != nil {
		return unsent(m, err)
	}
	defer inbox.close()
	m.Reply = inbox.subject
	a := c.attempt()
	if err := c.nc.PublishMsg(m); errors.Is(err, nats.ErrConnectionClosed) {
		return unsent(m, err)
	} else if err != nil {
		return a.explain(ctx, m, true, err)
	}
	return a.receiveItems(ctx, m, inbox, o, p, receive)
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

// receiveItems receives the messages that answer a pop: items, heartbeats and, if it asked for
// several items, one that ends them, which may have items too.
func (a *attempt) receiveItems(ctx context.Context, request *nats.Msg, inbox *inbox, o subjects.PopOptions, p *pop, receive func(*nats.Msg) error) error {
	frames := frameReader{acks: p.acks}
	for received := 0; received < max(o.Batch, 1); { // after all of them the end says nothing new
		m, err := inbox.next(ctx, o.IdleHeartbeat)
		if err != nil {
			if err = a.explain(ctx, request, true, err); received > 0 {
				err = fmt.Errorf("the reply broke off after %d items: %w", received, err)
			}
			return err
		}
		if subjects.IsHeartbeat(m.Header) {
			continue
		}
		framed, err := frames.read(m, max(o.Batch, 1)-received, receive)
		if received += framed; err != nil {
			return err
		}
		failure := subjects.ErrorFromHeaders(m.Header)
		sent, ends, err := subjects.ParseBatchEnd(m.Header)
		switch {
		case err != nil:
			return badReply(err)
		case ends && sent > received:
			return fmt.Errorf("%w: %d of %d items arrived", ErrUnknownOutcome, received, sent)
		case failure != nil && received > 0 && failure.Code == subjects.CodeTooLarge:
			return nil // for the next call: it gets the item, or the error
		case failure != nil:
			return (*Error)(failure)
		case ends && sent < received:
			return badReply(fmt.Errorf("%d items arrived of %d", received, sent))
		case ends && received == 0:
			return ErrEmpty
		case ends:
			return nil
		case framed > 0:
			continue
		}
		if err := receive(m); err != nil {
			return err
		}
		received++
	}
	return nil
}
