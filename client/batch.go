package client

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// PopOption changes a pop: [MaxBytes], [Expires], [IdleHeartbeat] or [NoWait].
type PopOption interface {
	LeaseOption
	plain() // it is not only for leases
}

// MaxBytes is the most bytes of values and headers that a call returns, with 4 bytes more for each header. The first item that
// exceeds it stays in the queue. 0, the default, means no limit.
type MaxBytes int

func (n MaxBytes) apply(o *subjects.PopOptions) { o.MaxBytes = int(n) }
func (n MaxBytes) plain()                       {}

// PopMinBatch takes up to n items, 1 to 1,000, in one transaction: those that n calls of
// PopMin would take, in that order. With [Expires] it returns once it has n items or the time is
// over, else with those that are there.
//
// There may be more items than it returns, because of MaxBytes, or because no more fit into a
// transaction. If it returns items and an error, the items have left the queue; the error says
// why there are not more.
//
// Errors: [ErrEmpty] if there was none, [ErrBadRequest], [ErrTooLarge] if the first exceeds
// MaxBytes, [ErrNoHeartbeat], and those that every call can return. With [ErrUnknownOutcome] more items may have
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

// popOptions returns the options of a pop.
func popOptions(options []PopOption) subjects.PopOptions {
	var o subjects.PopOptions
	for _, option := range options {
		option.apply(&o)
	}
	return o
}

func (q *queue) pops(ctx context.Context, verb subjects.Verb, n int, options []PopOption) (items []*Item, err error) {
	o := popOptions(options)
	o.Batch = n
	err = q.fetchBatch(ctx, verb, o, func(m *nats.Msg) error {
		items = append(items, itemOf(m))
		return nil
	})
	return items, err
}

func (q *queue) leases(ctx context.Context, verb subjects.Verb, n int, options []LeaseOption) (deliveries []*Delivery, err error) {
	o := leaseOptions(options)
	o.Batch = n
	err = q.fetchBatch(ctx, verb, o, func(m *nats.Msg) error {
		d, err := q.delivery(m)
		if err == nil {
			deliveries = append(deliveries, d)
		}
		return err
	})
	return deliveries, err
}

// fetchBatch sends a pop of several items and calls receive for each item of the reply.
func (q *queue) fetchBatch(ctx context.Context, verb subjects.Verb, o subjects.PopOptions, receive func(*nats.Msg) error) error {
	if o.Batch < 1 {
		return &Error{Code: subjects.CodeBadRequest, Text: fmt.Sprintf("a batch of %d: want 1 to %d items", o.Batch, subjects.MaxPopBatch)}
	}
	return q.fetch(ctx, verb, o, receive)
}
