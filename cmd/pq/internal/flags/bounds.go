package flags

import (
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/cmd/pq/internal/exit"
	"github.com/pqbridge/pqbridge/subjects"
)

// InBounds returns a usage error unless a flag is 0 or within its bounds, which the bridge would
// check too.
func InBounds(flag string, value, least, most time.Duration) error {
	if value == 0 || least <= value && value <= most {
		return nil
	}
	return exit.UsageError{Err: fmt.Errorf("--%s is %v: want %v to %v", flag, value, least, most)}
}

// CheckAckWait checks the length of a lease.
func CheckAckWait(d time.Duration) error {
	return InBounds("ack-wait", d, subjects.MinAckWait, subjects.MaxAckWait)
}
