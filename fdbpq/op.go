package fdbpq

// OpKind is what an Op does.
type OpKind uint8

// The operations. On a Queue, OpPush enqueues, OpPopMin dequeues and OpPeekMin
// peeks at the oldest item; OpPopMax and OpPeekMax give ErrOp there.
const (
	OpPush OpKind = iota + 1
	OpPopMin
	OpPopMax
	OpPeekMin
	OpPeekMax
	OpLen
)

// writes reports whether the operation can change the queue.
func (k OpKind) writes() bool { return k == OpPush || k == OpPopMin || k == OpPopMax }

// The ends of a queue.
const (
	frontEnd = iota
	backEnd
)

// end is the end of the queue that a pop or peek is for.
func (k OpKind) end() int {
	if k == OpPopMax || k == OpPeekMax {
		return backEnd
	}
	return frontEnd
}

// Op is one operation of a batch.
type Op struct {
	Kind OpKind
	// Queue is what it works on: a *PriorityQueue or a *Queue.
	Queue Target
	// Priority and Message are for OpPush. A FIFO queue ignores Priority.
	Priority int64
	Message  Message
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
