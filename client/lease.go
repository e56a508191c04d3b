package client

import (
	"context"

	"github.com/pqbridge/pqbridge/subjects"
)

// LeaseMin leases the item that PopMin would take. Unless it is acknowledged, it comes back to its
// old place when the lease is over, also if the reply is lost, so that nobody knows of the lease.
//
// Errors: [ErrEmpty], [ErrBadRequest] for a bad option, [ErrTooLarge] for an item that exceeds
// MaxBytes or for which there was no room beside other requests, as the text says,
// [ErrNoHeartbeat], and those that every call can return.
func (q *PriorityQueue) LeaseMin(ctx context.Context, options ...LeaseOption) (*Delivery, error) {
	return q.lease(ctx, subjects.PopMin, options)
}

// LeaseMax leases the item that PopMax would take; otherwise it is LeaseMin.
func (q *PriorityQueue) LeaseMax(ctx context.Context, options ...LeaseOption) (*Delivery, error) {
	return q.lease(ctx, subjects.PopMax, options)
}

// Lease leases the item that Dequeue would take, as PriorityQueue.LeaseMin does.
func (q *Queue) Lease(ctx context.Context, options ...LeaseOption) (*Delivery, error) {
	return q.lease(ctx, subjects.Dequeue, options)
}

// LeaseMinBatch leases up to n items, 1 to 1,000, in one transaction: those that n calls of
// LeaseMin would lease. Acknowledge each of them. Otherwise it is PopMinBatch.
func (q *PriorityQueue) LeaseMinBatch(ctx context.Context, n int, options ...LeaseOption) ([]*Delivery, error) {
	return q.leaseBatch(ctx, subjects.PopMin, n, options)
}

// LeaseMaxBatch is LeaseMinBatch with LeaseMax.
func (q *PriorityQueue) LeaseMaxBatch(ctx context.Context, n int, options ...LeaseOption) ([]*Delivery, error) {
	return q.leaseBatch(ctx, subjects.PopMax, n, options)
}

// LeaseBatch leases up to n items, as PriorityQueue.LeaseMinBatch does.
func (q *Queue) LeaseBatch(ctx context.Context, n int, options ...LeaseOption) ([]*Delivery, error) {
	return q.leaseBatch(ctx, subjects.Dequeue, n, options)
}

func (q *handle) lease(ctx context.Context, verb subjects.Verb, options []LeaseOption) (*Delivery, error) {
	reply, err := q.fetchOne(ctx, verb, leaseOptions(0, options))
	if err != nil {
		return nil, err
	}
	return q.delivery(reply)
}

func (q *handle) leaseBatch(ctx context.Context, verb subjects.Verb, n int, options []LeaseOption) (deliveries []*Delivery, err error) {
	err = q.fetchBatch(ctx, verb, leaseOptions(n, options), func(r *received) error {
		d, err := q.delivery(r)
		if err == nil {
			deliveries = append(deliveries, d)
		}
		return err
	})
	return deliveries, err
}
