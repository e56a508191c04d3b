// Package fdbpq keeps durable, strictly ordered queues in an ordered
// transactional key-value store, on the data model of FoundationDB's
// priority-queue and queue recipes: any program that uses the recipes on the
// same keys can push to these queues and pop from them.
//
// [PriorityQueue] and [Queue] work inside a transaction of the caller, together
// with whatever else that does. [Batcher] runs many operations of many callers
// in one transaction of its own and knows how to deal with commits of unknown
// outcome.
//
// # Guarantees
//
// Order: PopMin returns the smallest (priority, count, random) there is, PopMax
// the largest. count grows with each push at a priority, so PopMin serves equal
// priorities in the order of their pushes, and PopMax the newest of them first.
// Pushes of different transactions that run at the same time come in either
// order; one that takes long may still come before others that were done, and
// seen, while it ran.
//
// Once: an item is returned by one pop whose transaction commits, and by no
// other.
//
// Pushes never conflict with pushes. A pop conflicts with other pops of the
// same end, and with pushes of items that would have been served before what
// it got.
//
// # How it works
//
// A transaction that works on queues goes through apply.go: it sorts the operations
// by queue and runs them in stages, each of which begins the reads of all queues
// before it waits for the first. One operation or many, it is the same way.
//
// A push (push.go) reads the last item of its priority, without conflict, to know
// the next count, and has the ledger add the item. If the queue is in a Keyspace it
// also sees to it that the queue is in the list of queues (list.go).
//
// A pop (pop.go) walks the queue with a cursor (cursor.go), which reads as many items
// as there are pops. If it finds too few it brings back what is due (due.go) and
// reads again. Then it reads the rest of the items, and has the ledger take them.
//
//	apply.go, op.go                   operations on their way through a transaction
//	push.go, pop.go, peek.go, len.go  one operation each; read.go for those that only read
//	cursor.go, stored.go              walks from the ends of a queue; an item as it was read
//	ledger.go                         the states of an item; nothing else writes its keys
//	                                  or the numbers of items
//	due.go                            the time index: what falls due, and when
//	layout.go, id.go, message.go      the table of keys; ids; the stored form of a message
//	keyspace.go, list.go, retire.go   named queues, the list of them, and leaving it
//	batcher.go, receipt.go            group commit, and commits of unknown outcome
//	staged_*.go                       Popper, beside all that: it uses the same ledger,
//	                                  cursor and time index
//
// # Bytes
//
// Slices in a Message are read until the push returns (until Wait returns, for
// a Batcher). Slices in an Item belong to the caller.
//
// # Concurrency
//
// PriorityQueue, Queue and Keyspace are safe for concurrent use. The
// transactions they are given, and Batchers, are used by one goroutine at a time.
package fdbpq
