package client

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/subjects"
)

// PopMin removes and returns the item with the smallest priority, the oldest if several share it.
// The item has left the queue when the bridge replies: if that reply is lost, so is the item.
//
// Each call is a request of its own. [PriorityQueue.PopMinBatch] and [Worker] share requests, which
// is several times as fast.
//
// Errors: [ErrEmpty], those that every call can return and, with options, [ErrBadRequest],
// [ErrTooLarge] for an item that exceeds [MaxBytes], and [ErrNoHeartbeat].
func (q *PriorityQueue) PopMin(ctx context.Context, options ...PopOption) (*Item, error) {
	return q.pop(ctx, subjects.PopMin, options)
}

// PopMax removes and returns the item with the largest priority, the newest if several share it.
// See [PriorityQueue.PopMin].
func (q *PriorityQueue) PopMax(ctx context.Context, options ...PopOption) (*Item, error) {
	return q.pop(ctx, subjects.PopMax, options)
}

// Dequeue removes and returns the oldest item. See [PriorityQueue.PopMin].
func (q *Queue) Dequeue(ctx context.Context, options ...PopOption) (*Item, error) {
	return q.pop(ctx, subjects.Dequeue, options)
}

// PopMinBatch removes and returns up to n items, 1 to 1,000, in one transaction: those that n calls
// of PopMin would return, in that order. With [Expires] it returns once it has n items or the time
// is over; without, it returns what is there.
//
// The queue may have more items than it returns, because of [MaxBytes], or because no more fit into
// a transaction. If it returns items and an error, the items have left the queue, and the error
// says why there are no more.
//
// Errors: [ErrEmpty] if there was none, [ErrBadRequest], [ErrTooLarge] if the first exceeds
// MaxBytes, [ErrNoHeartbeat], and those that every call can return. With [ErrUnknownOutcome], more
// items may have left the queue than were returned.
func (q *PriorityQueue) PopMinBatch(ctx context.Context, n int,
	options ...PopOption) ([]*Item, error) {
	return q.popBatch(ctx, subjects.PopMin, n, options)
}

// PopMaxBatch is [PriorityQueue.PopMinBatch] for the items that PopMax would return.
func (q *PriorityQueue) PopMaxBatch(ctx context.Context, n int,
	options ...PopOption) ([]*Item, error) {
	return q.popBatch(ctx, subjects.PopMax, n, options)
}

// DequeueBatch removes and returns up to n items. See [PriorityQueue.PopMinBatch].
func (q *Queue) DequeueBatch(ctx context.Context, n int, options ...PopOption) ([]*Item, error) {
	return q.popBatch(ctx, subjects.Dequeue, n, options)
}

func (q *handle) pop(ctx context.Context, verb subjects.Verb, options []PopOption) (*Item, error) {
	reply, err := q.fetchOne(ctx, verb, popOptions(0, options))
	if err != nil {
		return nil, err
	}
	return reply.item(), nil
}

func (q *handle) popBatch(ctx context.Context, verb subjects.Verb, n int,
	options []PopOption) (items []*Item, err error) {
	err = q.fetchBatch(ctx, verb, popOptions(n, options), func(r *received) error {
		items = append(items, r.item())
		return nil
	})
	return items, err
}

// LeaseOption changes a lease: [AckWait], [Holder], or any [PopOption].
type LeaseOption interface{ apply(*subjects.PopOptions) }

// PopOption changes a pop: [MaxBytes], [Expires], [IdleHeartbeat] or [NoWait].
type PopOption interface {
	LeaseOption
	plain() // it is not only for leases
}

// AckWait is the length of a lease, 100 ms to 12 h. 0, the default, means the setting of the queue,
// or 30 s if it has none.
type AckWait time.Duration

func (w AckWait) apply(o *subjects.PopOptions) { o.AckWait = time.Duration(w) }

// MaxBytes is the most bytes of values and headers that a call returns. Each header counts 4 bytes
// more than its name and value. The first item that exceeds the limit stays in the queue. 0, the
// default, means no limit.
type MaxBytes int

func (n MaxBytes) apply(o *subjects.PopOptions) { o.MaxBytes = int(n) }
func (n MaxBytes) plain()                       {}

// Expires makes a pop or lease of an empty queue wait, 1 ms to 1 h. It returns as soon as there is
// an item, or [ErrEmpty] when the time is over. The pop that has waited longest comes first. A pop
// of several items waits until it has all of them; when the time is over, it returns what it has.
// 0, the default, means not to wait.
//
// Without a reply, the call gives up 5 s after that time with [ErrUnknownOutcome], even if its
// context lasts longer.
type Expires time.Duration

func (d Expires) apply(o *subjects.PopOptions) { o.Expires = time.Duration(d) }
func (d Expires) plain()                       {}

// IdleHeartbeat is how often the bridge confirms that a call with [Expires] still waits, at least
// 100 ms. If nothing comes for twice that time, the call returns [ErrNoHeartbeat]. 0, the default,
// means no heartbeats.
type IdleHeartbeat time.Duration

func (d IdleHeartbeat) apply(o *subjects.PopOptions) { o.IdleHeartbeat = time.Duration(d) }
func (d IdleHeartbeat) plain()                       {}

// NoWait makes a call for several items with [Expires] return at once if there are some, even if
// fewer than it asked for. If there are none, it waits. Other calls ignore it.
func NoWait() PopOption { return noWait{} }

type noWait struct{}

func (noWait) apply(o *subjects.PopOptions) { o.NoWait = true }
func (noWait) plain()                       {}

// popOptions returns the options of a pop of up to n items, or of one item outside a batch if n is
// 0.
func popOptions(n int, options []PopOption) subjects.PopOptions {
	o := subjects.PopOptions{Batch: n}
	for _, option := range options {
		option.apply(&o)
	}
	return o
}

// leaseOptions is popOptions for leases.
func leaseOptions(n int, options []LeaseOption) subjects.PopOptions {
	o := subjects.PopOptions{Batch: n, Lease: true}
	for _, option := range options {
		option.apply(&o)
	}
	return o
}

// Backoff as the delay of Nak means the backoff in the settings of the queue.
const Backoff time.Duration = math.MinInt64

// NakOption changes a Nak: [Reason].
type NakOption interface{ nak(*subjects.Ack) }

// Reason says why an item goes back. If the item becomes a dead letter, the last Reason becomes the
// Error of its [DeadLetter]. The bridge cuts it at 1,024 bytes.
type Reason string

func (r Reason) nak(a *subjects.Ack) { a.Reason = cut(string(r), maxSentReason) }

// maxSentReason keeps a reason within what NATS carries, in bytes. The bridge keeps less.
const maxSentReason = 4096

// cut shortens s to n bytes and "...", if it is longer.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "..."
}
