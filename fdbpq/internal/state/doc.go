// Package state owns the states of items: nothing else writes their keys and counters. Ledger has one method
// for each move of an item, and the table of them.
//
//	ledger.go, bytes.go, expiry.go, dedup.go    moves, and what moves with an item: counters, expiry, unique key
//	expiries.go, strip.go                       many expired items, removed together
//	cursor.go, stored.go, whole.go, held_read.go, history.go
//	                                            items being read: in their order, in full, where a token names them
//	config.go, limits.go, room.go, last.go      settings as one transaction sees them; what it has room for; where a
//	                                            push goes
//	known.go, written.go                        what a Batcher knows from its last transaction, and says of this one
//	restore.go, staged_return.go                popped items on their way back
package state
