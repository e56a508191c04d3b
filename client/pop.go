package client

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/subjects"
)

// Pop removes and returns the first item: the smallest priority, the oldest if several share it.
// The item has left the queue when the bridge replies: if that reply is lost, so is the item.
//
// Each call is a request of its own. [Queue.PopBatch] and [Worker] share requests, which is several
// times as fast.
//
// Errors: [ErrEmpty], the errors of any request and, with options, [ErrBadRequest], [ErrTooLarge]
// for an item that exceeds [MaxBytes], and [ErrNoHeartbeat].
func (q *Queue) Pop(ctx context.Context, options ...PopOption) (*Item, error) {
	return q.pop(ctx, subjects.Pop, options)
}

// PopMax removes and returns the item with the largest priority, the newest if several share it.
// See [Queue.Pop].
func (q *Queue) PopMax(ctx context.Context, options ...PopOption) (*Item, error) {
	return q.pop(ctx, subjects.PopMax, options)
}

// PopBatch removes and returns up to n items, 1 to 1,000, in one transaction: the same items, in
// the same order, as n calls of Pop. With [Expires] it returns once it has n items or the time is
// over; without, it does not wait.
//
// The queue may have more items than it returns, because of [MaxBytes], or because no more fit into
// a transaction. If it returns items and an error, the items have left the queue, and the error
// says why there are no more.
//
// Errors: [ErrEmpty] if there was none, [ErrBadRequest], [ErrTooLarge] if the first exceeds
// MaxBytes, [ErrNoHeartbeat], and the errors of any request. With [ErrUnknownOutcome], more items
// may have left the queue than were returned.
func (q *Queue) PopBatch(ctx context.Context, n int, options ...PopOption) ([]*Item, error) {
	return q.popBatch(ctx, subjects.Pop, n, options)
}

// PopMaxBatch is [Queue.PopBatch] for the items that PopMax would return.
func (q *Queue) PopMaxBatch(ctx context.Context, n int, options ...PopOption) ([]*Item, error) {
	return q.popBatch(ctx, subjects.PopMax, n, options)
}

func (q *Queue) pop(ctx context.Context, verb subjects.Verb, options []PopOption) (*Item, error) {
	return fetchOne(ctx, q, verb, popOptions(0, options), (*received).popped)
}

func (q *Queue) popBatch(ctx context.Context, verb subjects.Verb, n int,
	options []PopOption) ([]*Item, error) {
	return fetchBatch(ctx, q, verb, popOptions(n, options), (*received).popped)
}

// LeaseOption changes a lease: [AckWait], [Holder], or any [PopOption].
type LeaseOption interface{ apply(*subjects.PopOptions) }

// PopOption changes a pop or a lease: [MaxBytes], [Expires], [IdleHeartbeat] or [NoWait].
type PopOption func(*subjects.PopOptions)

func (option PopOption) apply(o *subjects.PopOptions) { option(o) }

// leaseOnly is a LeaseOption that pops do not have.
type leaseOnly func(*subjects.PopOptions)

func (option leaseOnly) apply(o *subjects.PopOptions) { option(o) }

// AckWait is the length of a lease, 100 ms to 12 h. 0, the default, means the setting of the queue,
// or 30 s if it has none.
func AckWait(d time.Duration) LeaseOption {
	return leaseOnly(func(o *subjects.PopOptions) { o.AckWait = d })
}

// Holder is the name of who takes a lease, which Items, pq busy and the dashboard show: up to 128
// bytes of UTF-8 without control characters. "", the default, is no name. The lease of a
// [Delivery.Next] keeps the name of the lease before.
func Holder(name string) LeaseOption {
	return leaseOnly(func(o *subjects.PopOptions) { o.Holder = name })
}

// MaxBytes is the most bytes of values and headers that a call returns. Each header counts 4 bytes
// more than its name and value. The first item that exceeds the limit stays in the queue. 0, the
// default, means no limit.
func MaxBytes(n int) PopOption {
	return func(o *subjects.PopOptions) { o.MaxBytes = n }
}

// Expires makes a pop or lease of an empty queue wait, 1 ms to 1 h. It returns as soon as there is
// an item, or [ErrEmpty] when the time is over. The pop that has waited longest comes first. A pop
// of several items waits until it has all of them; when the time is over, it returns what it has.
// 0, the default, means not to wait.
//
// Without a reply, the call gives up 5 s after that time with [ErrUnknownOutcome], even if its
// context lasts longer.
func Expires(d time.Duration) PopOption {
	return func(o *subjects.PopOptions) { o.Expires = d }
}

// IdleHeartbeat is how often the bridge confirms that a call with [Expires] still waits, at least
// 100 ms. If nothing comes for twice that time, the call returns [ErrNoHeartbeat]. 0, the default,
// means no heartbeats.
func IdleHeartbeat(d time.Duration) PopOption {
	return func(o *subjects.PopOptions) { o.IdleHeartbeat = d }
}

// NoWait makes a call for several items with [Expires] return at once if there are some, even if
// fewer than it asked for. If there are none, it waits. Other calls ignore it.
func NoWait() PopOption {
	return func(o *subjects.PopOptions) { o.NoWait = true }
}

// popOptions returns the options of a pop of up to n items, or of one item outside a batch if n is
// 0.
func popOptions[O LeaseOption](n int, options []O) subjects.PopOptions {
	o := subjects.PopOptions{Batch: n}
	for _, option := range options {
		option.apply(&o)
	}
	return o
}

// leaseOptions is popOptions for leases.
func leaseOptions(n int, options []LeaseOption) subjects.PopOptions {
	o := popOptions(n, options)
	o.Lease = true
	return o
}

// Backoff as the delay of Nak means the backoff in the settings of the queue, and at once if they
// have none: see [RetryDelay].
const Backoff time.Duration = math.MinInt64

// NakOption changes a Nak: [Reason], [RetryDelay].
type NakOption func(*subjects.Ack)

// RetryDelay says how long [Backoff] is in a queue whose settings have no backoff: this long after
// the first delivery, and twice as long after each further one, up to a minute or the delay itself,
// whichever is longer. It is 0 to ten years; 0, the default, is at once. With another delay than
// Backoff, Nak returns [ErrBadRequest].
func RetryDelay(d time.Duration) NakOption {
	return func(a *subjects.Ack) { a.RetryDelay = d }
}

// Reason says why an item goes back. If the item becomes a dead letter, the last Reason becomes the
// Error of its [subjects.DeadLetter]. The bridge cuts it at 1,024 bytes.
func Reason(text string) NakOption {
	return func(a *subjects.Ack) { a.Reason = cut(text, maxSentReason) }
}

// maxSentReason keeps a reason within what NATS carries, in bytes. The bridge keeps less.
const maxSentReason = 4096

// cut shortens s to n bytes and "...", if it is longer.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "..."
}
