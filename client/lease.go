package client

import (
	"context"
	"fmt"
	"os"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/fdbpq/settings"
	"github.com/pqbridge/pqbridge/subjects"
)

// LeaseMin leases the item that PopMin would remove. Unless it is acknowledged, it returns to its
// old place when the lease ends, even if the reply was lost and nobody knows of the lease.
//
// Errors: [ErrEmpty], [ErrBadRequest] for a bad option, [ErrTooLarge] for an item that exceeds
// [MaxBytes] or had no room beside other requests, as the text says, [ErrNoHeartbeat], and those
// that every call can return.
func (q *PriorityQueue) LeaseMin(ctx context.Context, options ...LeaseOption) (*Delivery, error) {
	return q.lease(ctx, subjects.PopMin, options)
}

// LeaseMax leases the item that PopMax would remove. See [PriorityQueue.LeaseMin].
func (q *PriorityQueue) LeaseMax(ctx context.Context, options ...LeaseOption) (*Delivery, error) {
	return q.lease(ctx, subjects.PopMax, options)
}

// Lease leases the item that Dequeue would remove. See [PriorityQueue.LeaseMin].
func (q *Queue) Lease(ctx context.Context, options ...LeaseOption) (*Delivery, error) {
	return q.lease(ctx, subjects.Dequeue, options)
}

// LeaseMinBatch leases up to n items, 1 to 1,000, in one transaction: the same items as n calls of
// LeaseMin. Acknowledge each of them, or all with [Client.AckAll]. Its results and
// errors are those of [PriorityQueue.PopMinBatch].
func (q *PriorityQueue) LeaseMinBatch(ctx context.Context, n int,
	options ...LeaseOption) ([]*Delivery, error) {
	return q.leaseBatch(ctx, subjects.PopMin, n, options)
}

// LeaseMaxBatch is [PriorityQueue.LeaseMinBatch] for the items that LeaseMax would lease.
func (q *PriorityQueue) LeaseMaxBatch(ctx context.Context, n int,
	options ...LeaseOption) ([]*Delivery, error) {
	return q.leaseBatch(ctx, subjects.PopMax, n, options)
}

// LeaseBatch leases up to n items. See [PriorityQueue.LeaseMinBatch].
func (q *Queue) LeaseBatch(ctx context.Context, n int, opts ...LeaseOption) ([]*Delivery, error) {
	return q.leaseBatch(ctx, subjects.Dequeue, n, opts)
}

func (q *handle) lease(ctx context.Context, verb subjects.Verb,
	options []LeaseOption) (*Delivery, error) {
	reply, err := q.fetchOne(ctx, verb, leaseOptions(0, options))
	if err != nil {
		return nil, err
	}
	return q.delivery(reply)
}

func (q *handle) leaseBatch(ctx context.Context, verb subjects.Verb, n int,
	options []LeaseOption) (deliveries []*Delivery, err error) {
	err = q.fetchBatch(ctx, verb, leaseOptions(n, options), func(r *received) error {
		d, err := q.delivery(r)
		if err == nil {
			deliveries = append(deliveries, d)
		}
		return err
	})
	return deliveries, err
}

// Holder is the name of who takes a lease, which Items, pq busy and the dashboard show: up to 128
// bytes of UTF-8 without control characters. "", the default, is no name. The lease of a
// [Delivery.Next] keeps the name of the lease before.
type Holder string

func (h Holder) apply(o *subjects.PopOptions) { o.Holder = string(h) }

// DefaultHolder names this process: its host, its process id and, if nc has one, the name of the
// connection (nats.Name). nc may be nil.
func DefaultHolder(nc *nats.Conn) Holder {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	name := fmt.Sprintf("%s pid %d", host, os.Getpid())
	if nc != nil && nc.Opts.Name != "" {
		name += " " + nc.Opts.Name
	}

	// The names of hosts and connections may contain anything.
	return Holder(settings.CleanText(name, settings.MaxHolder))
}
