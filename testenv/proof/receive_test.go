package proof_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest/books"
	"github.com/pqbridge/pqbridge/subjects"
)

// encodePop returns the message of a pop or lease.
func (c *caller) encodePop(op *books.Operation, frames bool) *nats.Msg {
	verb, options := subjects.Pop, subjects.PopOptions{
		Batch:    op.Batch,
		Expires:  time.Duration(op.Expires),
		MaxBytes: int(op.MaxBytes),
		Frames:   frames,
	}

	if op.Kind.Back() {
		verb = subjects.PopMax
	}

	if op.Wait > 0 {
		options.Lease, options.AckWait = true, time.Duration(op.Wait)
	}

	return &nats.Msg{Subject: c.subject(op.Queue, verb), Data: options.Encode()}
}

// readOne reads one of the replies. It reports whether there are no more.
func (c *caller) readOne(op *books.Operation, reply *nats.Msg) (ended bool, err error) {
	if len(reply.Data) == 0 && reply.Header.Get("Status") == "503" {
		return true, client.ErrNoBridge
	}

	sent, ends, err := subjects.ParseBatchEnd(reply.Header)
	failure := subjects.ErrorFromHeaders(reply.Header)
	some := len(op.Items) > 0
	cutOff := some && ends && sent == len(op.Items) && failure != nil

	switch {
	case err != nil:
		return true, errors.Join(client.ErrBadReply, err)
	case cutOff && failure.Code == subjects.CodeTooLarge:
		op.Cut = true
		return true, nil
	case cutOff && hasUsedUp(op, failure.Code):
		return true, nil
	case ends && sent != len(op.Items), failure != nil && some:
		return true, fmt.Errorf("%w: %d items arrived of %d: %v",
			client.ErrUnknownOutcome, len(op.Items), sent, failure)
	case failure != nil:
		return true, refused(op, reply, failure)
	case ends && sent == 0:
		return true, client.ErrEmpty
	case ends:
		return true, nil
	}

	info, err := subjects.ParseItemHeaders(reply.Header)
	item := client.Item{
		ItemInfo: info.ItemInfo,
		Message:  client.Message{Value: reply.Data, Headers: reply.Header},
	}

	if !op.Kind.Leases() {
		return false, errors.Join(err, popped(op, &item))
	}

	d := c.client.Delivery(reply.Reply)
	d.Item, d.LeaseInfo = item, info.Lease
	return false, errors.Join(err, c.got(op, d))
}
