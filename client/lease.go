package client

import (
	"context"

	"github.com/pqbridge/pqbridge/subjects"
)

// Lease leases the item that Pop would remove. Unless it is acknowledged, it returns to its old
// place when the lease ends, even if the reply was lost and nobody knows of the lease.
//
// Errors: [ErrEmpty], [ErrBadRequest] for a bad option, [ErrTooLarge] for an item that exceeds
// [MaxBytes] or had no room beside other requests, as the text says, [ErrNoHeartbeat], and the
// errors of any request.
func (q *Queue) Lease(ctx context.Context, options ...LeaseOption) (*Delivery, error) {
	return q.lease(ctx, subjects.Pop, options)
}

// LeaseMax leases the item that PopMax would remove. See [Queue.Lease].
func (q *Queue) LeaseMax(ctx context.Context, options ...LeaseOption) (*Delivery, error) {
	return q.lease(ctx, subjects.PopMax, options)
}

// LeaseBatch leases up to n items, 1 to 1,000, in one transaction: the same items as n calls of
// Lease. Acknowledge each of them, or all with [Client.AckAll]. Results and errors are as for
// [Queue.PopBatch].
func (q *Queue) LeaseBatch(ctx context.Context, n int,
	options ...LeaseOption) ([]*Delivery, error) {
	return q.leaseBatch(ctx, subjects.Pop, n, options)
}

// LeaseMaxBatch is [Queue.LeaseBatch] for the items that LeaseMax would lease.
func (q *Queue) LeaseMaxBatch(ctx context.Context, n int,
	options ...LeaseOption) ([]*Delivery, error) {
	return q.leaseBatch(ctx, subjects.PopMax, n, options)
}

func (q *Queue) lease(ctx context.Context, verb subjects.Verb,
	options []LeaseOption) (*Delivery, error) {
	return fetchOne(ctx, q, verb, leaseOptions(0, options), q.delivery)
}

func (q *Queue) leaseBatch(ctx context.Context, verb subjects.Verb, n int,
	options []LeaseOption) ([]*Delivery, error) {
	return fetchBatch(ctx, q, verb, leaseOptions(n, options), q.delivery)
}
