package client

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// RetryAfter changes when a job comes back, and not what its error says.
func TestRetryAfter(t *testing.T) {
	full := errors.New("the disk is full")
	for delay, want := range map[time.Duration]time.Duration{time.Second: time.Second, 0: 0, -time.Second: 0} {
		err := RetryAfter(delay, full)
		if got := delayOf(fmt.Errorf("write: %w", err)); got != want || err.Error() != full.Error() || !errors.Is(err, full) {
			t.Errorf("%v: comes back after %v, %v", delay, got, err)
		}
	}
	if got := delayOf(full); got != Backoff {
		t.Errorf("without RetryAfter it comes back after %v", got)
	}
}
