package main

import (
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/cmd/pq/internal/exit"
	"github.com/pqbridge/pqbridge/subjects"
)

// inBounds returns a usage error unless a flag is 0 or within its bounds, which the bridge would check too.
func inBounds(flag string, value, least, most time.Duration) error {
	if value == 0 || least <= value && value <= most {
		return nil
	}
	return exit.UsageError{Err: fmt.Errorf("--%s is %v: want %v to %v", flag, value, least, most)}
}

// checkAckWait checks the length of a lease.
func checkAckWait(d time.Duration) error {
	return inBounds("ack-wait", d, subjects.MinAckWait, subjects.MaxAckWait)
}
