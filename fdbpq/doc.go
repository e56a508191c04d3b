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
// queue is listed (list.go).
//
// A pop (pop.go) walks the queue with a cursor (cursor.go) that reads as many items as
// there are pops. If anything is due, a share of it comes back first (due.go), and the pop reads again.
// Then it reads the rest of each item, and the ledger removes them, or holds them
// elsewhere if they are leased (lease.go, held.go). Pops of one transaction are served in
// their order, from whichever ends. One that waits for items (Op.Waits) and finds none learns
// when the next item falls due.
//
//	apply.go, op.go                   operations and their stages
//	push.go, pop.go, peek.go, len.go  one kind of operation each; read.go runs those that only read
//	info.go                           how many items there are in each state, for operators
//	inspect.go, rank.go               an item by its id, and how many come before it
//	edit.go, sweep.go, purge.go, redrive.go, manage.go
//	                                  items by id, and many at once: removes, moves, purges, dead letters sent home
//	cursor.go, stored.go              walking a queue from its ends; an item as read
//	room.go                           what a transaction has room for, in memory and in the store
//	lease.go, lease_read.go, held.go, token.go
//	                                  leases, acknowledgements, and items that are held
//	delay.go, expiry.go               pushes of items that come later, or that expire
//	expiries.go, strip.go             removing items that have expired, and runs of their keys
//	restore.go                        popped items that nobody received, on their way back
//	config.go, deadletter.go          settings; items that are given up
//	dedup.go                          pushes that are done once
//	whole.go                          an item that is written again elsewhere, being read
//	limits.go                         what settings keep pushes and pops from
//	ledger.go                         the states of an item: all writes of items and counters
//	due.go, due_held.go               the time index: what falls due, and when; doing it
//	due_sweep.go, ahead.go            the same for queues that nobody asks
//	layout.go, id.go, message.go      the table of keys; ids; the stored form of a message
//	keyspace.go, list.go, retire.go   named queues, the list of them, and leaving it
//	queuelist.go                      the list with counts, for operators
//	migrate.go, digest.go             copying a Keyspace to another store, and comparing the two
//	batcher.go, receipt.go            group commit, and commits of unknown outcome
//	staged_*.go                       Popper, on the same ledger, cursor and time index
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
