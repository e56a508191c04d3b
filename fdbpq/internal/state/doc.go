// Package state owns the states of items: nothing else writes their keys and counters.
//
// A [Ledger] is the state of one queue in one transaction. It has one method for each move of an
// item, and the table of them. A [Cursor] finds items in their order, an [ItemRead] is one being
// read, and a [Lookup] finds one by its id. [QueueCache] carries what a transaction has learned to
// the next one.
//
//	ledger.go               what a ledger holds: the states of items, what falls due, and what has
//	                        left the queue
//	moves.go                the moves of items
//	cursor.go, itemread.go  items in their order, from either end; an item being read
//	lookup.go               an item by its id, wherever it is
//	turn.go, turns.go       how far a group reaches; which count its next item gets
//	groups.go               the index of groups, and the hashes of groups
//	groupsecrets.go         what hashes of groups depend on
//	queuecache.go           what is known of a queue without a read
//	readahead.go            its first items, of which the same holds
//	counters.go, bytes.go   counters, and what Flush adds to them; the bytes of all items
//	settings.go             settings, records, rates and the list entry of a queue
//	cachedsettings.go       settings that a Batcher has read, in a store that others change
//	budget.go               how much a transaction may return, and the errors of what had no room
//	dedup.go                message ids and unique keys
//	expiries.go             expired items, removed in runs
//	restore.go              popped items on their way back; all items removed at once
//	browse.go               items wherever they are, in their order, to be looked at
package state
