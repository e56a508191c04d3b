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
//   - [Batcher] runs the operations of many callers in one transaction, and finds out
//     what became of a commit of unknown outcome.
//
// # Guarantees
//
// Order: PopMin returns the smallest (priority, count, random) in the queue, PopMax the
// largest. count grows with each push at a priority, so PopMin serves equal priorities
// oldest first, and PopMax newest first. Items that have a group, see [GroupHeader], get the counts
// of turns: those of equal priority are served group by group, each oldest first. Concurrent transactions push in either order; a
// slow push may still sort before pushes that committed while it ran.
//
// Once: each item is returned by one pop whose transaction commits.
//
// Leases: a leased item is with one holder at a time, until it is acknowledged or released,
// or the lease is over. An acknowledgement never touches a later delivery. What comes back does so
// at its old place. What is given up moves to a dead-letter queue in the same transaction.
// Times are those of the clock of the process that looks: skew moves the moment at which a lease is
// over, and nothing else.
//
// Conflicts: pushes never conflict with pushes, unless they have the same MsgID or Unique
// key, or their queue has Settings.MaxItems or Settings.MaxBytes. A pop conflicts with
// other pops from the same end, and with pushes of items that would have come before the
// one it returned.
//
// # How it works
//
// apply.go sorts the operations of a transaction by family, such as pushes or pops, and by queue, and
// runs one family after the other; each owns what it reads, and how it begins and
// finishes. It starts the reads of all queues before it waits for the first, so many queues cost
// no more round trips than one.
//
// A push reads the last item of its priority, without conflict, to find the next count; then the
// ledger adds the item. In a Keyspace it also makes sure that the queue is in the list of queues. A
// pop walks the queue with a cursor that reads as many items as there are pops. If anything is due,
// a share of it comes back first, and the pop reads again. Then it reads the rest of each item, and
// the ledger removes it, or holds it if it is leased.
//
// Each file knows mostly those below it:
//
//	handle.go, keyspace.go            handles of queues, their names, and the store of a Keyspace
//	retire.go                         leaving the list of queues; the list with counts
//	batcher.go, pending.go, receipt.go
//	                                  group commit
//	restore.go                        commits of unknown outcome; popped items on their way back
//	apply.go, read.go                 the operations by family, and the order of the families in a
//	                                  transaction, and in one that only reads
//	peek.go                           peeks
//	pop.go, pop_side.go, limits_pop.go
//	                                  pops and leases: the next item from an end that may be served, and
//	                                  what limits them
//	edit.go                           purges; items by id: removes, moves, releases, dead letters sent home
//	settle.go                         operations with tokens
//	push.go, limits_push.go           pushes: duplicates, limits, and what is evicted for them
//	look.go, info.go                  how many items there are; an item by its id, and how many come before it
//	browse.go                         items where they stand, in transactions of its own
//	sweep.go                          what falls due in queues that nobody uses
//	config.go, records.go             settings and the source; consumers and schedules
//	txn.go                            a transaction and its queues, as all families see them
//	op.go, result.go                  operations and results
//	names.go, errors.go               public names of what internal packages have; errors
//
// Below it are internal/due (the time index, the one way back, dead letters), internal/state (the
// states of items: all writes of their keys and counters) and internal/codec (keys, ids, stored
// records: no transaction). Package settings is the table of settings. Package staged pops where
// many processes pop from one queue; package migrate copies a Keyspace to another store.
//
// # Bytes
//
// The slices of a Message are read until the push returns; with a Batcher, until Wait
// returns. The slices of an Item belong to the caller, until it restores the item.
//
// # Concurrency
//
// PriorityQueue, Queue and Keyspace are safe for concurrent use. A Batcher, and
// a transaction, is used by one goroutine at a time.
package fdbpq
