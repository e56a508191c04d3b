package client

import (
	"context"
	"time"
)

// PushFuture is a push that is under way, or was. Its methods are safe for concurrent use.
type PushFuture struct {
	priority int64
	frame    []byte
	value    []byte // part of frame
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
	select {
	case <-f.done: // even if ctx has ended
		return f.ack, f.err
	default:
	}

	select {
	case <-f.done:
		return f.ack, f.err
	case <-ctx.Done():
		return PushAck{}, endOf(ctx)
	}
}

// Priority returns the priority of the item.
func (f *PushFuture) Priority() int64 { return f.priority }

// Value returns the value of the item. It must not be changed.
func (f *PushFuture) Value() []byte { return f.value }
