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
