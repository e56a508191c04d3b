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
// and memkv keeps one in memory, for tests.
//
//   - [PriorityQueue] and [Queue] push and pop in a transaction of the caller.
//   - [Keyspace] gives queues names, and lists them. pqbridge serves a Keyspace.
//   - [Apply] runs any operations, each an [Op], in a transaction of the caller.
//   - [Batcher] runs the operations of many callers in one transaction, and finds out
//     what became of a commit of unknown outcome.
//
// # Guarantees
//
// Order: PopMin returns the smallest (priority, count, random) in the queue, PopMax the largest.
// The count grows with each push at a priority, so PopMin serves equal priorities oldest first, and
// PopMax newest first. Items of a group, see [GroupHeader], get the counts of turns instead: at
// equal priority they are served group by group, each oldest first. Concurrent transactions push in
// either order; a slow push may still sort before pushes that committed while it ran.
//
// Once: each item is returned by one pop whose transaction commits.
//
// Leases: a leased item has one holder, until it is acknowledged or released, or the lease is over.
// An acknowledgement never touches a later delivery. An item that comes back gets its old place.
// One that is given up moves to a dead-letter queue in the same transaction. Each process goes by
// its own clock: skew moves the moment at which a lease is over, or anything else falls due, and
// affects nothing else.
//
// Conflicts: pushes never conflict with pushes, unless they have the same MsgID or Unique
// key, or their queue has Settings.MaxItems or Settings.MaxBytes. A pop conflicts with
// other pops from the same end, and with pushes of items that would have come before the
// one it returned.
//
// # How it works
//
// The operations of a transaction are sorted by family, such as pushes or pops, and by queue. The
// families run one after the other, in a fixed order; each owns what it reads, and how it begins
// and finishes. Each step starts the reads of all queues before it waits for the first: a hundred
// queues cost no more round trips than one.
//
// A push reads the last item of its priority, without conflict, to find the next count; then the
// ledger adds the item. In a Keyspace it also makes sure that the queue is in the list of queues.
//
// A pop walks the queue with a cursor that reads as many items as there are pops. If anything is
// due, a share of it comes back first, and the pop reads again. Then it reads the rest of each
// item, and the ledger removes it, or holds it if it is leased.
//
// # Files
//
// The public face, from the top:
//
//	batcher_report.go, batcher.go    Batcher: what it reports, and group commit
//	receipt.go                       receipts; Settle: commits of unknown outcome
//	handle.go                        the methods of queues, each one operation
//	apply.go, read.go                Apply, the families and their order; Read for what only reads
//	browse.go                        items where they stand, in transactions of its own
//	retire.go                        leaving the list of queues; the list with counts
//	op.go, kinds.go                  operations, and the table of their kinds
//	result.go, errors.go             what they return, and their errors
//	keyspace.go, queue.go            the names and the store of a Keyspace; queues
//	names.go                         types and constants of internal packages, documented here
//
// Between apply.go and op.go, what runs in a transaction. Each file knows those below it:
//
//	op_check.go                      what makes an operation impossible, and how large it is
//	pop.go, pop_side.go, pop_search.go, limits_pop.go, pops.go
//	                                 pops and leases: find the next item from an end that may be
//	                                 served, or search for it where walking would pass over too
//	                                 many; check it, take it
//	settle.go, settle_reads.go, settle_find.go, next.go, keep.go, nak.go, settlements.go
//	                                 operations with tokens: what they read; whose lease still
//	                                 holds; successors, jobs kept, items given back or up
//	edit.go, edit_finished.go, edit_find.go
//	                                 purges; items by id: removes, moves, releases, redrives
//	push.go, limits_push.go          pushes: duplicates, limits, evictions
//	restore.go                       items of pops that nobody received
//	look.go, get.go, info.go, peek.go
//	                                 lengths, the rank of an item, a job by its id; infos; peeks
//	config.go, records_list.go, records.go, sweep.go
//	                                 settings and the source; consumers and schedules; what falls
//	                                 due in queues that are not used
//	txn.go, budget.go                the transaction as all of these see it, and what it may move
//
// Below these are internal/due (the time index, the one way back, dead letters), internal/state
// (the states of items: all writes of their keys and counters) and internal/codec (keys, ids,
// stored records: no transaction). Package settings is the table of settings. Package staged pops
// where many processes pop from one queue; package migrate copies a Keyspace to another store.
//
// # Bytes
//
// The slices of a Message are read until the push returns; with a Batcher, until Wait
// returns. The slices of an Item belong to the caller until it restores the item; do not change
// them after that.
//
// # Concurrency
//
// PriorityQueue, Queue and Keyspace are safe for concurrent use. A Batcher, and
// a transaction, is used by one goroutine at a time.
package fdbpq
