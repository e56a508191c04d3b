package fdbpq

import "fmt"

// OpKind is what an Op does.
type OpKind uint8

// The operations. On a Queue, OpPush enqueues, OpPop dequeues and OpPeek peeks at
// the oldest item.
const (
	OpPush OpKind = iota + 1
	OpPop
	OpPeek
	OpLen
)

// writes reports whether the operation can change the queue.
func (k OpKind) writes() bool { return k == OpPush || k == OpPop }

// End is an end of a queue.
type End uint8

const (
	// Front is where the smallest priority is, and the oldest of those that share it.
	Front End = iota
	// Back is where the largest priority is, and the newest of those that share it. A
	// Queue is not served from there.
	Back
)

// Op is one operation of a batch.
type Op struct {
	Kind OpKind
	// Queue is what it works on: a *PriorityQueue or a *Queue.
	Queue Target
	// End is for OpPop and OpPeek.
	End End
	// Priority and Message are for OpPush. A FIFO queue ignores Priority.
	Priority int64
	Message  Message
}

var errFIFOEnd = fmt.Errorf("%w: a FIFO queue is read from its oldest end only", ErrOp)

// check returns an error if the queue does not have the operation.
func (op *Op) check(l *layout) error {
	switch op.Kind {
	case OpLen:
		return nil
	case OpPush:
		if size := op.Message.size(); size > MaxMessageSize {
			return fmt.Errorf("%w: value and headers are %d bytes: want at most %d", ErrMessageTooLarge, size, MaxMessageSize)
		}
		return nil
	case OpPop, OpPeek:
		if op.End > Back {
			return fmt.Errorf("%w: a queue has no end %d", ErrOp, op.End)
		}
		if l.fifo && op.End == Back {
			return errFIFOEnd
		}
		return nil
	default:
		return fmt.Errorf("%w: there is no operation %d", ErrOp, op.Kind)
	}
}

// Target is a queue that operations can be applied to: a *PriorityQueue or a
// *Queue.
type Target interface {
	layout() *layout
}

// Result is what one Op of a batch gave.
type Result struct {
	// Item is what was popped or peeked at. For OpPush only its ID and
	// PushedAt are set.
	Item Item
	// Len is the number of items, for OpLen.
	Len int64
	// Err is the error of this operation alone: ErrEmpty, ErrMessageTooLarge,
	// ErrOp or ErrCorrupt. The other operations of the batch are not touched by it.
	Err error
}
