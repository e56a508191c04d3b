package fdbpq

import "fmt"

// OpKind is what an Op does.
type OpKind uint8

// The operations. On a Queue, OpPush enqueues and OpPop dequeues.
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
	// Front is the end with the smallest priority and, among equals, the oldest item.
	Front End = iota
	// Back is the end with the largest priority and, among equals, the newest item. A
	// Queue is not served from its back.
	Back
)

// Op is one operation on one queue.
type Op struct {
	Kind OpKind
	// Queue is a *PriorityQueue or a *Queue.
	Queue Target
	// End is for OpPop and OpPeek.
	End End
	// Priority and Message are for OpPush. A FIFO queue ignores Priority.
	Priority int64
	Message  Message
}

var errFIFOEnd = fmt.Errorf("%w: a FIFO queue has pops and peeks at its front only", ErrOp)

// check returns an error if the queue does not support the operation.
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
			return fmt.Errorf("%w: no end %d", ErrOp, op.End)
		}
		if l.fifo && op.End == Back {
			return errFIFOEnd
		}
		return nil
	default:
		return fmt.Errorf("%w: no operation %d", ErrOp, op.Kind)
	}
}

// Target is a queue: a *PriorityQueue or a *Queue.
type Target interface {
	layout() *layout
}

// Result is the result of one Op.
type Result struct {
	// Item is the item of OpPop and OpPeek. For OpPush only its ID and PushedAt are set.
	Item Item
	// Len is the number of items, for OpLen.
	Len int64
	// Err is the error of this operation alone: ErrEmpty, ErrMessageTooLarge, ErrOp or
	// ErrCorrupt. It does not affect the other operations.
	Err error
}
