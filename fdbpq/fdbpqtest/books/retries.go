package books

import (
	"slices"
	"strings"
	"time"
)

// In mortal queues, and in those whose names begin with r- or fifo-r-, items that fail come back
// after Backoff, the later the more deliveries they had. The test that runs the operations must
// configure these queues so. A Nak without a delay names in Delay what RetryAfter says.

// backoffs are after the first delivery, the second, and so on; the last is after all later ones.
var backoffs = []time.Duration{
	20 * time.Millisecond, 120 * time.Millisecond, 250 * time.Millisecond, LongestBackoff,
}

// LongestBackoff is the last of Backoff.
const LongestBackoff = 500 * time.Millisecond

// Backoff returns the setting backoff of such a queue.
func Backoff() []time.Duration { return slices.Clone(backoffs) }

// HasBackoff reports whether the queue is such a queue, and not its dead-letter queue.
func HasBackoff(queue string) bool {
	return IsMortal(queue) ||
		strings.HasPrefix(strings.TrimPrefix(queue, "fifo-"), "r-") && !isDead(queue)
}

// RetryAfter returns how long a Nak without a delay keeps an item back after that delivery: for the
// backoff of its queue, or else for the retry delay of the Nak, doubled with each further delivery.
func RetryAfter(queue string, deliveries int64, first time.Duration) time.Duration {
	if HasBackoff(queue) {
		return backoffAfter(deliveries)
	}
	return first << min(deliveries-1, 32)
}

func backoffAfter(deliveries int64) time.Duration {
	return backoffs[min(max(deliveries, 1), int64(len(backoffs)))-1]
}

// backAfter returns when the item is back if its newest lease, which ends then, runs out, in
// milliseconds.
func (e *entry) backAfter(until int32) int32 {
	last := e.isMortal() && e.deliveries >= MaxDeliver
	if e.marks&retried == 0 || e.life() == 1 || last {
		return until
	}
	return until + millis(int64(backoffAfter(int64(e.deliveries))))
}
