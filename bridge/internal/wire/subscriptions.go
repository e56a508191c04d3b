package wire

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
)

// Backlog returns what was delivered to subscriptions but not yet handled by a callback.
func Backlog(subscriptions []*nats.Subscription) (messages, bytes int) {
	for _, s := range subscriptions {
		if m, n, err := s.Pending(); err == nil { // else it has ended
			messages += m
			bytes += n
		}
	}
	return messages, bytes
}

// Await returns when callbacks have handled everything that was delivered. If ctx ends first, it
// returns how many messages are left.
func Await(ctx context.Context, subscriptions []*nats.Subscription) (left int) {
	for {
		if left, _ = Backlog(subscriptions); left == 0 || ctx.Err() != nil {
			return left
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Millisecond):
		}
	}
}

// Dropped returns how many messages the subscriptions have dropped.
func Dropped(subscriptions []*nats.Subscription) (total int) {
	for _, s := range subscriptions {
		if n, err := s.Dropped(); err == nil {
			total += n
		}
	}
	return total
}

// Drain ends subscriptions. Messages already delivered to them are still handled.
func Drain(subscriptions []*nats.Subscription) {
	for _, s := range subscriptions {
		_ = s.Drain() // fails if it has ended with its connection
	}
}
