package client

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// PopOption changes a pop of several items: [MaxBytes].
type PopOption interface {
	LeaseOption
	plain() // it is not only for leases
}

// MaxBytes is the most bytes of values and headers that a call returns. The first item that
// exceeds it stays in the queue. 0, the default, means no limit.
type MaxBytes int

func (n MaxBytes) apply(o *subjects.PopOptions) { o.MaxBytes = int(n) }
func (n MaxBytes) plain()                       {}

// PopMinBatch takes up to n items, 1 to 1,000, in one transaction: those that n calls of
// PopMin would take, in that order. It does not wait for more items than there are.
//
// There may be more items than it returns, because of MaxBytes, or because no more fit into a
// transaction. If it returns items and an error, the items have left the queue; the error says
// why there are not more.
//
// Errors: [ErrEmpty] if there was none, [ErrBadRequest], [ErrTooLarge] if the first exceeds
// MaxBytes, and those that every call can return. With [ErrUnknownOutcome] more items may have
// left the queue than were returned.
func (q *PriorityQueue) PopMinBatch(ctx context.Context, n int, options ...PopOption) ([]*Item, error) {
	return q.q.pops(ctx, subjects.PopMin, n, options)
}

// PopMaxBatch is PopMinBatch with PopMax.
func (q *PriorityQueue) PopMaxBatch(ctx context.Context, n int, options ...PopOption) ([]*Item, error) {
	return q.q.pops(ctx, subjects.PopMax, n, options)
}

// LeaseMinBatch leases up to n items, 1 to 1,000, in one transaction: those that n calls of
// LeaseMin would lease. Acknowledge each of them. Otherwise it is PopMinBatch.
func (q *PriorityQueue) LeaseMinBatch(ctx context.Context, n int, options ...LeaseOption) ([]*Delivery, error) {
	return q.q.leases(ctx, subjects.PopMin, n, options)
}

// LeaseMaxBatch is LeaseMinBatch with LeaseMax.
func (q *PriorityQueue) LeaseMaxBatch(ctx context.Context, n int, options ...LeaseOption) ([]*Delivery, error) {
	return q.q.leases(ctx, subjects.PopMax, n, options)
}

// DequeueBatch takes up to n items, as PriorityQueue.PopMinBatch does.
func (q *Queue) DequeueBatch(ctx context.Context, n int, options ...PopOption) ([]*Item, error) {
	return q.q.pops(ctx, subjects.Dequeue, n, options)
}

// LeaseBatch leases up to n items, as PriorityQueue.LeaseMinBatch does.
func (q *Queue) LeaseBatch(ctx context.Context, n int, options ...LeaseOption) ([]*Delivery, error) {
	return q.q.leases(ctx, subjects.Dequeue, n, options)
}

func (q *queue) pops(ctx context.Context, verb subjects.Verb, n int, options []PopOption) (items []*Item, err error) {
	o := subjects.PopOptions{Batch: n}
	for _, option := range options {
		option.apply(&o)
	}
	err = q.fetch(ctx, verb, o, func(m *nats.Msg) error {
		items = append(items, itemOf(m))
		return nil
	})
	return items, err
}

func (q *queue) leases(ctx context.Context, verb subjects.Verb, n int, options []LeaseOption) (deliveries []*Delivery, err error) {
	o := leaseOptions(options)
	o.Batch = n
	err = q.fetch(ctx, verb, o, func(m *nats.Msg) error {
		d, err := q.delivery(m)
		if err == nil {
			deliveries = append(deliveries, d)
		}
		return err
	})
	return deliveries, err
}

// fetch sends a pop and calls receive for each item of the reply.
func (q *queue) fetch(ctx context.Context, verb subjects.Verb, o subjects.PopOptions, receive func(*nats.Msg) error) error {
	if o.Batch < 1 {
		return &Error{Code: subjects.CodeBadRequest, Text: fmt.Sprintf("a batch of %d: want 1 to %d items", o.Batch, subjects.MaxPopBatch)}
	}
	if o.Batch == 1 { // one message, and no end
		reply, err := q.request(ctx, verb, nil, o.Encode())
		if err != nil {
			return err
		}
		return receive(reply)
	}
	subject, err := q.subject(verb)
	if err != nil {
		return err
	}
	if ctx.Err() != nil { // nothing was sent
		return endOf(ctx)
	}
	c := q.client
	ctx, cancel := c.bound(ctx)
	defer cancel()
	m := &nats.Msg{Subject: subject, Reply: c.nc.NewInbox(), Data: o.Encode()}
	inbox, err := c.nc.SubscribeSync(m.Reply)
	if err == nil {
		defer func() { _ = inbox.Unsubscribe() }() // fails only if the connection has ended
		// The request bounds what can arrive, and dropping any of it would lose items.
		err = inbox.SetPendingLimits(-1, -1)
	}
	if err == nil {
		err = c.nc.PublishMsg(m)
	}
	if err != nil {
		return fmt.Errorf("cannot send a request on %s: %w", subject, err)
	}
	return c.receiveBatch(ctx, m, inbox, o, receive)
}

// receiveBatch receives the messages that answer a pop of several items: the items, and one
// that ends them.
func (c *Client) receiveBatch(ctx context.Context, request *nats.Msg, inbox *nats.Subscription, o subjects.PopOptions, receive func(*nats.Msg) error) error {
	for received := 0; received < o.Batch; received++ { // after all of them the end says nothing new
		m, err := inbox.NextMsgWithContext(ctx)
		if err != nil {
			if err = c.explain(ctx, request, true, err); received > 0 {
				err = fmt.Errorf("the reply broke off after %d items: %w", received, err)
			}
			return err
		}
		failure := subjects.ErrorFromHeaders(m.Header)
		sent, ends, err := subjects.ParseBatchEnd(m.Header)
		switch {
		case err != nil:
			return fmt.Errorf("%w: %w: %w", ErrUnknownOutcome, ErrBadReply, err)
		case ends && sent != received:
			return fmt.Errorf("%w: %d of %d items arrived", ErrUnknownOutcome, received, sent)
		case failure != nil && received > 0 && failure.Code == subjects.CodeTooLarge:
			return nil // for the next call: it gets the item, or the error
		case failure != nil:
			return (*Error)(failure)
		case ends && received == 0:
			return ErrEmpty
		case ends:
			return nil
		}
		if err := receive(m); err != nil {
			return err
		}
	}
	return nil
}
