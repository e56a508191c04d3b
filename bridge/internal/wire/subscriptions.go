package wire

import "github.com/nats-io/nats.go"

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
