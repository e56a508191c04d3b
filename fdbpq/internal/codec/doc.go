// Package codec is what is stored: the keys of a queue, ids and tokens, messages, records of items that are
// held, dead letters, settings, and the record of a store. It reads and writes bytes, and no transaction.
//
//	layout.go, keyspace.go               the table of all keys of a queue, and those of a Keyspace
//	id.go, token.go, item.go, errors.go  what users see of items, and the errors of package fdbpq
//	message.go, deadletter.go            the stored form of a message, and of how it died
//	held.go, expiry.go, due.go           items that are leased or delayed, that expire, and the time index
//	dedup.go                             message ids and unique keys
//	config.go                            the settings of a queue
//	list.go, store.go                    the list of queues, and what a store says of itself
//	staged_keys.go                       staged pops
//	times.go                             times as they are stored, and their bounds
package codec
