// Package state owns the states of items: nothing else writes their keys and counters. Ledger has
// one method for each move of an item, and the table of them.
//
//	ledger.go                  the ledger of a queue, and its entries of the time index
//	moves.go, counters.go      the moves of items, and what they count, group by group
//	turns.go                   whose turn a group's next item has
//	known.go                   what is known of a queue from the last transaction
//	settings.go                the settings, records, rates and list entry of a queue
//	stored.go                  an item being read, and the keys where it may be
//	cursor.go, room.go         items in their order, from either end; what a transaction has room for
//	dedup.go                   message ids and unique keys
//	restore.go, purge.go       popped items on their way back; all items at once
//	bytes.go                   the bytes of all items
//	browse.go                  items wherever they are, in their order, to be looked at
//	expiries.go                expired items, removed in runs
package state
