// Package signal has the ways in which goroutines wait: until another one wakes them, or for a
// time.
package signal

import (
	"context"
	"time"
)

// To wakes the reader of a channel with room for one element.
func To(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // it has not read the last one
	}
}

// Pause waits, and returns false if ctx ended first.
func Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
