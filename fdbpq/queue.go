package fdbpq

import "github.com/pqbridge/pqbridge/fdbpq/internal/codec"

// Target is a queue: a *PriorityQueue or a *Queue.
type Target interface {
	Layout() *codec.Layout
}

// handle is what PriorityQueue and Queue have in common.
type handle struct{ l *codec.Layout }

// Layout is where the keys of the queue are, for other packages of this module.
func (q *handle) Layout() *codec.Layout { return q.l }

// PriorityQueue is a queue ordered by priority, then by order of pushing. Its methods work inside
// the caller's transaction: nothing has happened until that commits, and if it does not, discard
// what they returned. A PriorityQueue is cheap to make and safe for concurrent use.
type PriorityQueue struct{ handle }

// NewPriorityQueue returns the priority queue in s, which must hold nothing else. The recipe's
// items are in its subspace ("i"). NewPriorityQueue reads and writes nothing: a queue exists from
// its first push on.
//
// A queue of a Keyspace is reached through the Keyspace, which has a secret for the groups of its
// items.
func NewPriorityQueue(s Subspace, format ValueFormat) *PriorityQueue {
	return &PriorityQueue{handle{codec.NewLayout(s, format, false)}}
}

// DeadLetters returns the dead-letter queue, unless Settings.DeadLetter names another: in a
// Keyspace the queue with "-dead" appended to the name, otherwise one inside this queue's own
// subspace.
func (q *PriorityQueue) DeadLetters() *PriorityQueue {
	return &PriorityQueue{handle{q.l.DeadLetters("")}}
}

// Queue is a first-in first-out queue. Its methods work inside the caller's transaction, like the
// methods of PriorityQueue.
type Queue struct{ handle }

// NewQueue returns the FIFO queue in s, as NewPriorityQueue returns a priority queue.
func NewQueue(s Subspace, format ValueFormat) *Queue {
	return &Queue{handle{codec.NewLayout(s, format, true)}}
}

// DeadLetters returns the dead-letter queue, unless Settings.DeadLetter names another: in a
// Keyspace the queue with "-dead" appended to the name, otherwise one inside this queue's own
// subspace.
func (q *Queue) DeadLetters() *Queue { return &Queue{handle{q.l.DeadLetters("")}} }
