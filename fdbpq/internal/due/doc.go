// Package due handles what falls due in a queue: due.go reads the time index, due_held.go brings back what is
// held and removes what has expired, staged_due.go does the same for staged pops, and deadletter.go moves items
// that are given up to their dead-letter queues.
package due
