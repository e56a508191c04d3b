// Package due handles what falls due in a queue. There is one way back, [BringBack]: it reads the
// time index up to now, and handles the entries by what they stand for.
//
//	bringback.go   reads the time index, and sorts its entries by kind
//	due.go         what is due in a queue, and the room for it; rates and consumers
//	held.go        brings back what is held, and removes what has expired
//	schedule.go    pushes the items of schedules
//	staged.go      brings back what staged pops have left, and removes their claims
//	deadletter.go  moves items that are given up to their dead-letter queues
package due
