// Package due handles what falls due in a queue. There is one way back, BringBack.
//
//	bringback.go   reads the time index, and hands on what its entries stand for
//	held.go        brings back what is held, and removes what has expired
//	schedule.go    pushes the items of schedules
//	staged.go      brings back what staged pops have left, and removes their claims
//	due.go         what has fallen due in one queue, and the room that a transaction has for it
//	deadletter.go  moves items that are given up to their dead-letter queues
package due
