package discovery

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// ErrUncounted means that what a bridge has counted of a queue cannot be known.
var ErrUncounted = errors.New("a bridge has too many queues to count each by itself")

// Traffic returns what all bridges have counted of a queue, together, since the last of them began
// to. Errors: ErrUncounted, and any that Bridges returns.
func Traffic(
	ctx context.Context, nc *nats.Conn, g subjects.Grammar, kind subjects.Kind, queue string,
) (sum subjects.QueueTraffic, err error) {
	ready := 0
	isLast := func(b *Bridge) bool {
		if b.BridgeStats == nil || !b.Ready {
			return false // it may not know the others, nor they it
		}
		ready++
		return ready >= b.Bridges
	}

	all, err := ask(ctx, nc, g, StatsSubject, subjects.StatsOfQueue(kind, queue), isLast)
	for _, b := range all {
		if b.BridgeStats == nil || len(b.Queues) != 1 {
			return sum, ErrUncounted
		}

		q := &b.Queues[0]
		sum.Waiters += q.Waiters
		sum.Add(&q.Windows)
		if q.Since.After(sum.Since) {
			sum.Since = q.Since
		}
	}
	return sum, err
}
