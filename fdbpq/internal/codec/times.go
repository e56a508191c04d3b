package codec

import (
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/settings"
)

// Forever is after all times that are stored.
var Forever = time.UnixMicro(1<<62 - 1)

// Earliest returns the earlier of two times; zero is none.
func Earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Micros is t as it is stored.
func Micros(t time.Time) time.Time { return time.UnixMicro(t.UnixMicro()).UTC() }

// CheckLease returns an error if the duration cannot be the length of a lease. 0 means the default.
func CheckLease(d time.Duration) error {
	if err := settings.CheckBounds(d, settings.MinLease, settings.MaxLease); err != nil {
		return fmt.Errorf("%w: a lease of %w", ErrOp, err)
	}
	return nil
}
