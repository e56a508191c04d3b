// Package codec is what is stored: the keys of a queue, ids and tokens, messages, records of items
// that are held, dead letters, settings, and the record of a store. It reads and writes bytes, and
// no transaction.
//
//	layout.go, list.go, keyspace.go  the table of all keys of a queue, the list of queues, a Keyspace
//	id.go, item.go, token.go         what users see of items
//	message.go, deadletter.go        the stored form of a message, and of how it died
//	held.go, expiry.go, due.go       items that are leased or delayed, that expire, and the time index
//	dedup.go                         message ids and unique keys
//	staged_keys.go                   staged pops
//	config.go, store.go              the settings of a queue, and what a store says of itself
//	errors.go                        the errors of package fdbpq
//	elements.go, text.go, times.go   what the others have in common
package codec
