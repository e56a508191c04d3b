// Package due handles what falls due in a queue. There is one way back, [BringBack]: it reads the
// time index up to now, and handles the entries by what they stand for.
//
//	bringback.go   reads the time index, and sorts its entries by kind
//	due.go         due entries of a queue, and the budget for them; rates and consumers
//	held.go        brings back held items, and removes expired ones
//	schedule.go    pushes the items of schedules
//	staged.go      brings back what staged pops have left, and removes their claims
//	deadletter.go  makes dead letters of items that failed too often
//	outgoing.go    adds items to other queues: dead letters, redriven items, items of schedules
package due
