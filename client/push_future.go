package client

import (
	"context"
	"time"
)

// PushFuture is a push that is under way, or was. Its methods are safe for concurrent use.
type PushFuture struct {
	priority int64
	frame    []byte
	hasMsgID bool

	room     int64     // bytes that it takes of MaxBytes
	retryEnd time.Time // when to stop trying again
	unknown  bool      // an attempt may have counted

	done chan struct{} // closed when ack and err are set
	ack  PushAck
	err  error
}

// Done is closed when the outcome is there.
func (f *PushFuture) Done() <-chan struct{} { return f.done }

// Wait waits for the outcome. If ctx ends first, the error is that of ctx, and the push goes on.
// Otherwise a nil error means that the item is in the queue, durably; with [ErrUnknownOutcome] it
// may or may not be; with any other error it is not. Of a duplicate, the acknowledgement has the ID
// of the item that was pushed before, and the priority of this push.
func (f *PushFuture) Wait(ctx context.Context) (PushAck, error) {
	if err := await(ctx, f.done); err != nil {
		return PushAck{}, err
	}
	return f.ack, f.err
}
