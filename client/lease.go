package client

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// LeaseOption changes a lease: [AckWait], or any [PopOption].
type LeaseOption interface{ apply(*subjects.PopOptions) }

// AckWait is the length of a lease, 100 ms to 12 h. 0, the default, means as the settings of the
// queue say, 30 s unless they do.
type AckWait time.Duration

func (w AckWait) apply(o *subjects.PopOptions) { o.AckWait = time.Duration(w) }

// leaseOptions returns the options of a lease.
func leaseOptions(options []LeaseOption) subjects.PopOptions {
	o := subjects.PopOptions{Lease: true}
	for _, option := range options {
		option.apply(&o)
	}
	return o
}

// Delivery is a leased item. Nobody else gets it until the lease is over. End the lease with
// Ack or Next when the item is done, with Nak or Snooze if it is to come back, and with Term if it
// never is.
//
// These methods, and Extend, return [ErrLeaseLost] once the item is settled or somebody else
// has it, so a late call does no harm. They still count after Until, as long as nobody else got
// the item. After [ErrUnknownOutcome] call the method again: ErrLeaseLost then most likely
// means that the first call counted.
//
// Deliveries and Until are zero if the message left no room for them in the reply.
type Delivery struct {
	Item
	subjects.LeaseInfo

	queue *queue
	ack   string // subject of acknowledgements
}

// LeaseMin leases the item that PopMin would take. Unless it is acknowledged, it comes back
// to its old place when the lease is over. If the reply is lost, so that nobody knows of the
// lease, it comes back then too.
//
// Errors: [ErrEmpty], [ErrBadRequest] for a bad option, [ErrTooLarge] for an item that exceeds
// MaxBytes or for which there was no room beside other requests, as the text says,
// [ErrNoHeartbeat], and those that every call can return.
func (q *PriorityQueue) LeaseMin(ctx context.Context, options ...LeaseOption) (*Delivery, error) {
	return q.q.lease(ctx, subjects.PopMin, options)
}

// LeaseMax leases the item that PopMax would take; otherwise it is LeaseMin.
func (q *PriorityQueue) LeaseMax(ctx context.Context, options ...LeaseOption) (*Delivery, error) {
	return q.q.lease(ctx, subjects.PopMax, options)
}

// Lease leases the item that Dequeue would take, as PriorityQueue.LeaseMin does.
func (q *Queue) Lease(ctx context.Context, options ...LeaseOption) (*Delivery, error) {
	return q.q.lease(ctx, subjects.Dequeue, options)
}

func (q *queue) lease(ctx context.Context, verb subjects.Verb, options []LeaseOption) (*Delivery, error) {
	reply, err := q.fetchOne(ctx, verb, leaseOptions(options))
	if err != nil {
		return nil, err
	}
	return q.delivery(reply)
}

// delivery returns the leased item in a reply.
func (q *queue) delivery(reply *nats.Msg) (*Delivery, error) {
	if reply.Reply == "" {
		return nil, badReply(fmt.Errorf("a leased item without a reply subject: %.64q", reply.Data))
	}
	d := &Delivery{queue: q, ack: reply.Reply}
	// What cannot be read stays zero: the lease holds all the same.
	d.LeaseInfo, _ = subjects.ParseLeaseHeaders(reply.Header)
	d.Item = *itemOf(reply)
	return d, nil
}

// Ack removes the item: it is done.
//
// Errors: [ErrLeaseLost] and those that every call can return.
func (d *Delivery) Ack(ctx context.Context) error {
	_, err := d.settle(ctx, subjects.Ack{Kind: subjects.AckDone})
	return err
}

// Backoff is a delay of Nak: as long as the settings of the queue say.
const Backoff time.Duration = math.MinInt64

// NakOption changes a Nak: [Reason].
type NakOption interface{ nak(*subjects.Ack) }

// Reason says why an item was given back. If the item ends up in a dead-letter queue, the last Reason
// becomes the Error of its DeadLetter. It is cut at 1,024 bytes.
type Reason string

func (r Reason) nak(a *subjects.Ack) { a.Reason = cut(string(r), maxSentReason) }

// maxSentReason keeps a reason from exceeding what NATS carries. The bridge keeps less.
const maxSentReason = 4096

// Nak gives the item back to its old place, after a delay of up to ten years, or [Backoff]. The lease
// is over then. If that was the last delivery that the settings of the queue allow, the item moves to
// the dead-letter queue instead. Its errors are those of Ack, [ErrBadRequest] for the delay, and
// [ErrTooLarge] if there was no room beside other requests: try again.
func (d *Delivery) Nak(ctx context.Context, delay time.Duration, options ...NakOption) error {
	a := subjects.Ack{Kind: subjects.AckNak}
	if delay != Backoff {
		a.Delay, a.HasDelay = delay, true
	}
	for _, option := range options {
		option.nak(&a)
	}
	_, err := d.settle(ctx, a)
	return err
}

// Term gives the item up: it moves to the dead-letter queue, with the reason, which may be "" and is
// cut at 256 bytes. Its errors are those of Nak.
func (d *Delivery) Term(ctx context.Context, reason string) error {
	_, err := d.settle(ctx, subjects.Ack{Kind: subjects.AckTerm, Reason: cut(reason, maxSentReason)})
	return err
}

// Snooze is Nak, but does not count the delivery: Deliveries will be the same next time.
func (d *Delivery) Snooze(ctx context.Context, delay time.Duration) error {
	_, err := d.settle(ctx, subjects.Ack{Kind: subjects.AckNak, Delay: delay, HasDelay: true, Snooze: true})
	return err
}

// Extend makes the lease begin anew, with the length that it had, and returns when it is over
// now. Until keeps its value. Its errors are those of Nak.
func (d *Delivery) Extend(ctx context.Context) (time.Time, error) {
	reply, err := d.settle(ctx, subjects.Ack{Kind: subjects.AckProgress})
	if err != nil {
		return time.Time{}, err
	}
	info, err := subjects.ParseLeaseHeaders(reply.Header)
	if err != nil || info.Until.IsZero() {
		return time.Time{}, badReply(fmt.Errorf("%.64q", reply.Data))
	}
	return info.Until, nil
}

// Next is Ack, and leases the next item from the same end of the queue, in one round trip and
// one transaction. Without options, the lease has the length of the one that Next ends. With
// [Expires], the item is acknowledged at once, before Next waits.
//
// Errors: [ErrEmpty]: acknowledged, and nothing was there, or max_leased leaves no place for it; [ErrTooLarge]: acknowledged, and the
// next item exceeds MaxBytes, cannot be sent, or found no room beside other requests; [ErrLeaseLost]: nothing was leased; [ErrNoHeartbeat];
// and those that every call can return. After [ErrInternal] the item may or may not be acknowledged, and after
// [ErrOverloaded] from a bridge of an earlier version as well: Ack settles that.
func (d *Delivery) Next(ctx context.Context, options ...LeaseOption) (*Delivery, error) {
	o := leaseOptions(options)
	o.Lease = false // it is one anyway, and an AckWait of 0 means the length of this one
	var delivery *Delivery
	err := d.queue.client.fetch(ctx, d.nextOf(subjects.Ack{Kind: subjects.AckNext}), o, func(reply *nats.Msg) (err error) {
		delivery, err = d.queue.delivery(reply)
		return err
	})
	return delivery, err
}

// nextOf returns the request of an acknowledgement that pops.
func (d *Delivery) nextOf(a subjects.Ack) *pop {
	encode := func(o subjects.PopOptions) []byte {
		a.Next = o
		return a.Encode()
	}
	token, _ := d.token()
	p := &pop{subject: d.ack, encode: encode, acks: strings.TrimSuffix(d.ack, token), leases: true}
	if d.queue.name != "" {
		p.pops, _ = d.queue.subject(popOf(d.queue.kind)) // it was leased from a queue with that name
	}
	return p
}

// popOf returns a verb that pops from queues of that kind.
func popOf(kind subjects.Kind) subjects.Verb {
	if kind == subjects.FIFO {
		return subjects.Dequeue
	}
	return subjects.PopMin
}

// AckSubject is where acknowledgements of this delivery go, for another process that is to send
// them. It ends with the token of the lease.
func (d *Delivery) AckSubject() string { return d.ack }

// Delivery returns the delivery with this AckSubject, for acknowledgements by another process than the one
// that has leased the item. It has no item.
func (c *Client) Delivery(ackSubject string) *Delivery {
	return &Delivery{queue: &queue{client: c}, ack: ackSubject}
}

// settle sends an acknowledgement.
func (d *Delivery) settle(ctx context.Context, a subjects.Ack) (*nats.Msg, error) {
	if d.ack == "" {
		return nil, &Error{Code: subjects.CodeBadRequest, Text: "no subject of acknowledgements: want one as AckSubject returned it"}
	}
	return d.queue.client.request(ctx, &nats.Msg{Subject: d.ack, Data: a.Encode()}, true)
}
