// Package state owns the states of items: nothing else writes their keys and counters. Ledger has
// one method for each move of an item, and the table of them.
//
//	ledger.go, moves.go             the ledger with its counters; the moves of items
//	restore.go                      popped items on their way back
//	timeindex.go, unique.go         what moves with an item: its entry of the time index, its unique key
//	settings.go, bytes.go           the settings as one transaction sees them; the bytes of all items
//	limits.go, counter.go, room.go  how much a queue has, and what a transaction has room for
//	stored.go, lookup.go            an item being read, in full; the keys where it may be
//	cursor.go                       items in their order, from either end
//	browse.go, browse_page.go       items wherever they are, in their order, to be looked at
//	expiry.go, expiries.go, strip.go
//	                                many expired items, removed together
//	dedup.go                        message ids and unique keys of the pushes of a transaction
//	counts.go, known.go             the next counts, and what else a Batcher knows from its last transaction
//	group.go, turns.go, bucket.go   groups: their index, whose turn it is, and rates
//	list.go, written.go             the list of queues; what a transaction says of itself
package state
