// Package due handles what falls due in a queue. There is one way back, [BringBack]: it reads the
// time index up to now, and handles the entries by what they stand for.
//
//	bringback.go   what is due in a queue, the room for it, and the entries by kind
//	held.go        brings back what is held, and removes what has expired
//	schedule.go    pushes the items of schedules
//	staged.go      brings back what staged pops have left, and removes their claims
//	deadletter.go  moves items that are given up to their dead-letter queues
package due
