// Package codec has the stored form of everything: keys, ids and tokens, messages, held items, dead
// letters, settings, and the record of a store. It reads and writes bytes, and no transaction.
//
// A [Layout] makes the keys of one queue. The table of all keys is above it.
//
//	layout.go                 the table of all keys of a queue, and the list of queues
//	id.go                     ids, tokens, and the states of items
//	held.go                   items that are leased or delayed, that expire, and the time index
//	message.go, deadletter.go messages, and how they died
//	group.go                  the index of groups, turns and rates
//	dedup.go                  message ids and unique keys
//	staged_keys.go            staged pops
//	config.go                 settings, consumers, schedules and the source of a queue
//	keyspace.go               the keys of a Keyspace, and what a store says of itself
//	elements.go               errors, elements of tuples, and what else the files have in common
package codec
