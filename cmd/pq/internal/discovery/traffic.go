package discovery

import (
	"cmp"
	"context"
	"errors"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// ErrUncounted means that what a bridge has counted of a queue cannot be known.
var ErrUncounted = errors.New("a bridge has too many queues to count each by itself")

// Traffic returns what all bridges have counted of a queue, together, and since when nothing is
// missing. Errors: ErrUncounted, and any that Bridges returns.
func Traffic(
	ctx context.Context, nc *nats.Conn, g subjects.Grammar, kind subjects.Kind, queue string,
) (sum subjects.QueueTraffic, err error) {
	all, err := askStats(ctx, nc, g, subjects.StatsOfQueue(kind, queue))
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

// Counts are what all bridges have counted of the queues that they name, together.
type Counts struct {
	More   bool // some do not name all
	queues map[queueName]*subjects.Windows
}

type queueName struct{ kind, name string }

// Of returns what was counted of a queue, of a kind as Kind.Short writes it.
func (c *Counts) Of(kind, queue string) *subjects.Windows {
	return cmp.Or(c.queues[queueName{kind, queue}], &subjects.Windows{})
}

// Busiest returns what the bridges have counted of their busiest queues. Errors are as for Traffic.
func Busiest(ctx context.Context, nc *nats.Conn, g subjects.Grammar) (Counts, error) {
	c := Counts{queues: map[queueName]*subjects.Windows{}}
	all, err := askStats(ctx, nc, g, []byte(subjects.StatsOfQueues))
	for _, b := range all {
		if b.BridgeStats == nil {
			return c, ErrUncounted
		}
		c.More = c.More || b.More
		for _, q := range b.Queues {
			name := queueName{q.Kind, q.Queue}
			c.queues[name] = c.Of(q.Kind, q.Queue)
			c.queues[name].Add(&q.Windows)
		}
	}
	return c, err
}

// askStats returns what the bridges reply to a STATS request.
func askStats(
	ctx context.Context, nc *nats.Conn, g subjects.Grammar, payload []byte,
) ([]*Bridge, error) {
	ready := 0
	return ask(ctx, nc, g, StatsSubject, payload, func(b *Bridge) bool {
		if b.BridgeStats == nil || !b.Ready {
			return false // it may not know the others, nor they it
		}
		ready++
		return ready >= b.Bridges
	})
}
