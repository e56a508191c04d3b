package fdbpq

import (
	"fmt"
	"time"
)

// OpKind is what an Op does.
type OpKind uint8

// The operations. On a Queue, OpPush enqueues and OpPop dequeues.
const (
	OpPush OpKind = iota + 1
	OpPop
	OpPeek
	OpLen
	// OpLease is OpPop, but the item stays leased until OpAck removes it: it comes back
	// to its old place when the lease is over.
	OpLease
	// OpAck removes a leased item.
	OpAck
	// OpNak gives a leased item back, after Delay. Its token is worth nothing then.
	OpNak
	// OpExtend has a lease begin anew.
	OpExtend
)

// Writes reports whether the operation can change the queue.
func (k OpKind) Writes() bool { return k != OpPeek && k != OpLen }

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
	// End is for OpPop, OpPeek and OpLease.
	End End
	// Priority and Message are for OpPush. A FIFO queue ignores Priority.
	Priority int64
	Message  Message

	// Lease is the length of the lease of OpLease, MinLease to MaxLease; 0 means
	// DefaultLease, or the length of the lease before if it follows an OpAck or OpLease. For
	// OpExtend 0 means the length that the lease had.
	Lease time.Duration
	// Token says which lease OpAck, OpNak and OpExtend are about.
	Token Token
	// Delay is how long OpNak keeps the item back, 0 to MaxDelay.
	Delay time.Duration
	// Uncounted makes OpNak not count the delivery.
	Uncounted bool
	// Follows ties the operation to the one before it, on the same queue: if that failed,
	// this one fails with the same error. So an OpLease that follows an OpAck happens only
	// if that did, and pops that follow each other share MaxBytes.
	Follows bool
	// MaxBytes is the most bytes of values and headers that an OpPop or OpLease and
	// those that follow it return together; 0 means no limit. The first item that
	// exceeds it stays in the queue, with ErrMaxBytes. So does an item that an OpLease has
	// no room for, because a transaction can move about MaxMessageSize bytes: an item
	// counts with its first 90,000 bytes.
	MaxBytes int
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
	case OpAck, OpNak, OpExtend:
		if op.Delay < 0 || op.Delay > MaxDelay {
			return fmt.Errorf("%w: a delay of %v: want 0 to %v", ErrOp, op.Delay, MaxDelay)
		}
		return checkLease(op.Lease)
	case OpPop, OpPeek, OpLease:
		if err := checkLease(op.Lease); err != nil {
			return err
		}
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
	// Item is the item of OpPop, OpPeek and OpLease. For OpPush only its ID and PushedAt are
	// set.
	Item Item
	// Lease is that of OpLease and OpExtend.
	Lease Lease
	// wait is the length of the lease that an OpLease gave or an OpAck ended.
	wait time.Duration
	// Len is the number of items, for OpLen.
	Len int64
	// Err is the error of this operation alone: ErrEmpty, ErrMessageTooLarge, ErrLeaseLost,
	// ErrMaxBytes, ErrOp or ErrCorrupt. It does not affect the other operations.
	Err error
}
