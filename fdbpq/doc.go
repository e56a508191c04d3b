// Package fdbpq implements priority queues and FIFO queues on FoundationDB's
// published recipes. A queue lives in a subspace, works inside your own
// transactions, and keeps its items at the recipes' keys, so programs that use the
// bare recipes, in any language, can share it.
//
//	jobs := fdbpq.NewPriorityQueue(dir.Sub("jobs"), fdbpq.RawValues)
//	_, err := db.Transact(func(tr fdb.Transaction) (any, error) {
//		tr.Set(order, goods)
//		return jobs.Push(fdbkv.Wrap(tr), 5, fdbpq.Message{Value: []byte("pack it")})
//	})
//
// Here dir is a directory and db a database of the official Go binding. The package
// itself does not need FoundationDB: it works on any store with the transactions of
// package kv. Package fdbkv is FoundationDB, pebblekv keeps a store in a local folder,
// and memkv in memory, for tests.
//
//   - [PriorityQueue] and [Queue] push and pop in a transaction of the caller.
//   - [Keyspace] gives queues names, and lists them. pqbridge serves a Keyspace.
//   - [Popper] pops where many processes pop from one queue: the recipe's extension
//     for high contention.
//   - [Batcher] runs the operations of many callers in one transaction, and finds out
//     what became of a commit of unknown outcome.
//
// # Guarantees
//
// Order: PopMin returns the smallest (priority, count, random) in the queue, PopMax the
// largest. count grows with each push at a priority, so PopMin serves equal priorities
// oldest first, and PopMax newest first. Concurrent transactions push in either order; a
// slow push may still sort before pushes that committed while it ran.
//
// Once: each item is returned by one pop whose transaction commits.
//
// Leases: a leased item is with one holder at a time, until it is acknowledged or the
// lease is over. An acknowledgement never touches a later delivery. What comes back does so
// at its old place. What is given up moves to a dead-letter queue in the same transaction. Times are those of the clock of whoever looks: skew moves the moment at
// which a lease is over, and nothing else.
//
// Conflicts: pushes never conflict with pushes, unless they have the same MsgID or Unique key, or their queue
// has Settings.MaxItems or Settings.MaxBytes. A pop conflicts with other pops from the
// same end, and with pushes of items that would have come before the one it returned.
//
// # How it works
//
// Every operation goes through apply.go, alone or with others of its transaction. It
// groups operations by queue and runs them in stages. A stage starts the reads of all
// queues before it waits for the first, so many queues cost no more round trips than one.
//
// A push (push.go) reads the last item of its priority, without conflict, to find the
// next count; then the ledger adds the item. In a Keyspace it also makes sure that the
// queue is in the list of queues.
//
// A pop (pop.go) walks the queue with a cursor that reads as many items as there are pops. If
// anything is due, a share of it comes back first, and the pop reads again. Then it reads the rest
// of each item, and the ledger removes them, or holds them elsewhere if they are leased (lease.go). Pops of one transaction are served in
// their order, from whichever ends. One that waits for items (Op.Waits) and finds none learns
// when the next item falls due.
//
//	op.go, apply.go                   operations, and the stages in which a transaction runs them
//	push.go, pop.go, peek.go, len.go  one kind of operation each; read.go runs those that only read
//	lease.go, lease_read.go, lease_group.go
//	                                  leases and acknowledgements
//	info.go, inspect.go, rank.go      how many items there are; an item by its id, and how many come before it
//	edit.go, sweep.go, purge.go, redrive.go
//	                                  items by id, and many at once: removes, moves, purges, dead letters sent home
//	restore.go                        popped items that nobody received, on their way back
//	config.go, limits.go, limits_push.go, discard.go
//	                                  settings, and what they keep pushes and pops from
//	due_sweep.go                      what falls due in queues that nobody asks
//	batcher.go, receipt.go            group commit, and commits of unknown outcome
//	handle.go, keyspace.go, store.go  handles of queues, their names, and the store that they are in
//	retire.go, queuelist.go           leaving the list of queues; the list with counts
//	staged_*.go                       Popper
//
// Below it, each package knows those above it in this list:
//
//	internal/codec    keys, ids, stored records: no transaction
//	internal/state    the states of items: all writes of their keys and counters
//	internal/due      the time index, the one way back, dead letters
//
// Package settings is the table of settings; package migrate copies a Keyspace to another store.
//
// # Bytes
//
// The slices of a Message are read until the push returns; with a Batcher, until Wait
// returns. The slices of an Item belong to the caller, until it restores the item.
//
// # Concurrency
//
// PriorityQueue, Queue, Keyspace and Popper are safe for concurrent use. A Batcher, and
// a transaction, is used by one goroutine at a time.
package fdbpq
