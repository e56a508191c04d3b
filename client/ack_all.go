package client

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/subjects"
)

// AckAll acknowledges deliveries of any queues, with their results, in as few requests as possible.
// The items of one request are removed together or not at all. If some leases are lost, another
// request acknowledges the others. If the bridge refuses a request for another reason, such as a
// result that is too large, each delivery is acknowledged on its own.
//
// It returns nil if all were acknowledged, or else the error of [Delivery.Ack] for each delivery,
// in the same order. Call it again with the deliveries whose error is [ErrUnknownOutcome]:
// ErrLeaseLost then most likely means that the first call counted.
func (c *Client) AckAll(ctx context.Context, deliveries ...*Delivery) (errs []error) {
	errs = make([]error, len(deliveries))

	// A request can acknowledge deliveries of one queue, whose subjects have the same prefix.
	groups := map[string][]int{}
	for i, d := range deliveries {
		groups[d.ackPrefix()] = append(groups[d.ackPrefix()], i)
	}

	for _, rest := range groups {
		for len(rest) > 0 {
			n := c.fittingAcks(len(rest), func(n int) *Delivery { return deliveries[rest[n]] })
			ackTogether(ctx, deliveries, rest[:n], errs)
			rest = rest[n:]
		}
	}

	if slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		return errs
	}
	return nil
}

// ackTogether acknowledges the deliveries with these indexes, which are of one queue, and sets
// their errors.
func ackTogether(ctx context.Context, deliveries []*Delivery, indexes []int, errs []error) {
	if len(indexes) == 1 {
		errs[indexes[0]] = deliveries[indexes[0]].Ack(ctx)
		return
	}

	group := make([]*Delivery, len(indexes))
	for n, i := range indexes {
		group[n] = deliveries[i]
	}
	ack := subjects.Ack{Kind: subjects.AckDone, Also: tokens(group[1:])}
	reply, err := group[0].send(ctx, ackMessage(ack, group[0], group[1:]))

	// If some leases are lost, the others are not acknowledged yet.
	var lost, done []int // if lost is nil, each is acknowledged on its own
	if reply != nil && errors.Is(err, ErrLeaseLost) {
		lost, _ = subjects.ParseNumbers(reply.Header, subjects.HeaderLost, len(group))
		done, _ = subjects.ParseNumbers(reply.Header, subjects.HeaderDone, len(group))
	}
	if lost != nil {
		var held []int
		for n, i := range indexes {
			switch {
			case slices.Contains(done, n): // an earlier request has counted
			case slices.Contains(lost, n):
				errs[i] = &Error{
					Code:   subjects.CodeConflict,
					Reason: subjects.ReasonLost,
					Text:   ErrLeaseLost.Error(),
				}
			default:
				held = append(held, i)
			}
		}

		if len(held) > 0 {
			ackTogether(ctx, deliveries, held, errs)
		}
		return
	}

	// If the bridge refused the request, for example because of a malformed token, each delivery is
	// acknowledged on its own. Without a reply, the error may be the cause of a context, which says
	// nothing about the leases.
	single := reply != nil && isAny(err, ErrLeaseLost, ErrBadRequest, ErrInternal)
	for n, i := range indexes {
		if single {
			err = group[n].Ack(ctx)
		}
		errs[i] = err
	}
}

// ackNext acknowledges deliveries of one queue, all or none, and leases up to n items for the given
// time, or as the settings say if that is 0.
func ackNext(
	ctx context.Context, done []*Delivery, n int, ackWait time.Duration,
) ([]*Delivery, error) {
	a := subjects.Ack{Kind: subjects.AckNext, Also: tokens(done[1:])}
	a.Next.Lease, a.Next.AckWait = true, ackWait
	if n > 1 {
		a.Next.Batch = n
	}
	return done[0].fetchNext(ctx, a, done[1:])
}

// tokens returns the tokens of deliveries, or "" for those without one.
func tokens(list []*Delivery) []string {
	texts := make([]string, len(list))
	for i, d := range list {
		texts[i], _ = d.token()
	}
	return texts
}

// fittingAcks returns how many of n acknowledgements go into one request, at least one.
func (c *Client) fittingAcks(n int, delivery func(int) *Delivery) int {
	const (
		rest      = 1024 // bytes of a request beside what follows
		eachToken = 84   // the most bytes of a token
		eachFrame = 160  // of a result, beside its value and type
		eachNext  = 96   // of the token in what is pushed
	)
	room := int(min(c.maxPayload(), maxBatchBytes)) - rest

	n = min(n, subjects.MaxAlso+1)
	pushes := 0
	for i := range n {
		r := &delivery(i).result
		pushes += len(r.next)
		room -= eachToken + r.size + len(r.next)*eachNext
		if r.given {
			room -= eachFrame + len(r.contentType) + len(r.value)
		}
		if room < 0 || pushes > subjects.MaxSuccessors {
			return max(i, 1)
		}
	}
	return n
}
