package client

import (
	"context"
	"time"

	"github.com/pqbridge/pqbridge/subjects"
)

// PushFuture is the outcome of a push that is under way. Its methods are safe for concurrent use.
type PushFuture struct {
	frame    subjects.Frame
	hasMsgID bool

	room     int64     // its bytes of MaxBytes
	retryEnd time.Time // when to stop retrying
	unknown  bool      // an attempt may have counted

	done chan struct{} // closed when ack and err are set
	ack  PushAck
	err  error
}

// Done returns a channel that is closed once the outcome is known.
func (f *PushFuture) Done() <-chan struct{} { return f.done }

// Wait waits for the outcome. A nil error means that the item is durable. With [ErrUnknownOutcome]
// it may or may not be in the queue, and with any other error of the push it is not. If ctx ends
// first, Wait returns its error, and the push goes on.
//
// The acknowledgement of a duplicate has the ID of the item that was pushed before, and the
// priority of this push.
func (f *PushFuture) Wait(ctx context.Context) (PushAck, error) {
	if err := await(ctx, f.done); err != nil {
		return PushAck{}, err
	}
	return f.ack, f.err
}
