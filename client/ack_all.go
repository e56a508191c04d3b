package client

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// AckAll acknowledges deliveries, of any queues, in as few requests as their number and size allow. Those of one request
// are removed together or not at all. If some leases are lost, a further request acknowledges the others; if it is refused
// for another reason, each is acknowledged by itself.
//
// It returns the errors of Ack, one for each delivery, in that order, and nil if all were acknowledged. After an
// [ErrUnknownOutcome], call it again with those that have one: ErrLeaseLost then most likely means that the first call
// counted.
func (c *Client) AckAll(ctx context.Context, deliveries ...*Delivery) (errs []error) {
	errs = make([]error, len(deliveries))
	groups := map[string][]int{} // by where their acknowledgements go, without the token
	var order []string
	for i, d := range deliveries {
		prefix := d.ack
		if token, ok := d.token(); ok {
			prefix = strings.TrimSuffix(d.ack, token)
		}
		if groups[prefix] == nil {
			order = append(order, prefix)
		}
		groups[prefix] = append(groups[prefix], i)
	}
	failed := false
	for _, prefix := range order {
		for rest := groups[prefix]; len(rest) > 0; {
			n := min(len(rest), c.mostTogether())
			failed = c.ackTogether(ctx, deliveries, rest[:n], errs) || failed
			rest = rest[n:]
		}
	}
	if !failed {
		return nil
	}
	return errs
}

// ackTogether acknowledges the deliveries with the given indexes, all of one queue, and sets their errors.
func (c *Client) ackTogether(ctx context.Context, deliveries []*Delivery, indexes []int, errs []error) (failed bool) {
	var others []*Delivery
	for _, i := range indexes[1:] {
		others = append(others, deliveries[i])
	}
	reply, err := deliveries[indexes[0]].settle(ctx, subjects.Ack{Kind: subjects.AckDone, Also: tokens(others)})
	if lost := lostOf(reply, err, len(indexes)); lost != nil { // the others are not acknowledged
		var held []int
		for n, i := range indexes {
			if slices.Contains(lost, n) {
				errs[i] = &Error{Code: subjects.CodeConflict, Text: ErrLeaseLost.Error()}
			} else {
				held = append(held, i)
			}
		}
		if len(held) > 0 {
			c.ackTogether(ctx, deliveries, held, errs)
		}
		return true
	}
	// Without a reply the error may be the cause of a context, which says nothing about the leases.
	again := reply != nil && len(indexes) > 1 && (errors.Is(err, ErrLeaseLost) || errors.Is(err, ErrBadRequest) || errors.Is(err, ErrInternal))
	for _, i := range indexes {
		if again { // each for itself; an earlier version of the bridge knows no other way
			err = deliveries[i].Ack(ctx)
		}
		errs[i] = err
		failed = failed || err != nil
	}
	return failed
}

// lostOf returns which of several leases are lost, nil if the reply to their acknowledgement does not say that.
func lostOf(reply *nats.Msg, err error, leases int) []int {
	if reply == nil || !errors.Is(err, ErrLeaseLost) || leases == 1 {
		return nil
	}
	lost, _ := subjects.ParseLost(reply.Header, leases) // else each is acknowledged for itself
	return lost
}

// token returns the token of the lease. Clients of another account than the bridge's may have none.
func (d *Delivery) token() (token string, ok bool) {
	i := strings.LastIndex(d.ack, ackInfix)
	if i < 0 || strings.Contains(d.ack[i+len(ackInfix):], ".") {
		return "", false
	}
	return d.ack[i+len(ackInfix):], true
}

// ackInfix stands before the token in the subject of acknowledgements.
const ackInfix = ".ack."

// tokens returns the tokens of deliveries that have one.
func tokens(list []*Delivery) []string {
	texts := make([]string, len(list))
	for i, d := range list {
		texts[i], _ = d.token()
	}
	return texts
}

// mostTogether is how many leases one request can acknowledge.
func (c *Client) mostTogether() int {
	const each, rest = 84, 1024 // at most, in bytes
	return int(min(max((c.maxPayload()-rest)/each, 1), subjects.MaxAlso+1))
}
