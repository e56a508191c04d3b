// Package codec is what is stored: the keys of a queue, ids and tokens, messages, records of items
// that are held, dead letters, settings, and the record of a store. It reads and writes bytes, and
// no transaction.
//
//	layout.go                 the table of all keys of a queue, and the list of queues
//	keyspace.go               the keys of a Keyspace, and what a store says of itself
//	id.go                     ids, tokens, and the states of items
//	message.go, deadletter.go messages as users see them and as they are stored, and how they died
//	held.go                   items that are leased or delayed, that expire, and the time index
//	group.go                  the index of groups, turns and rates
//	dedup.go                  message ids and unique keys
//	staged_keys.go            staged pops
//	config.go                 the settings of a queue, and its records of consumers, schedules and its source
//	errors.go, elements.go    errors, and what the others have in common
package codec
