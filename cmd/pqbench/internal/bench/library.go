package bench

import (
	"context"
	"errors"

	"github.com/pqbridge/pqbridge/client"
)

// libraryClients are clients of a queue of the service that use package client, as programs
// in Go do.
type libraryClients struct {
	producers []*client.Producer
	clients   []*PeerClient
}

// newLibraryClients connects the clients. Those of a connection share a Producer.
func (r *rig) newLibraryClients(ctx context.Context, s *service, queue string) (*libraryClients, error) {
	l := &libraryClients{}
	conns, err := r.connectAll(ctx)
	if err != nil {
		return nil, err
	}

	for i, nc := range conns {
		c := client.New(nc, client.WithGrammar(s.grammar))
		q := c.PriorityQueue(queue)
		producer, err := q.NewProducer(client.ProducerOptions{})
		if err != nil {
			l.close()
			return nil, err
		}

		l.producers = append(l.producers, producer)
		for n := i; n < r.Clients; n += r.Connections {
			l.clients = append(l.clients, newLibraryClient(c, q, producer))
		}
	}
	return l, nil
}

func newLibraryClient(c *client.Client, q *client.PriorityQueue, producer *client.Producer) *PeerClient {
	push := func(ctx context.Context, items []PeerItem) error {
		if len(items) == 1 {
			message := client.Message{Value: items[0].Value}
			pushed, err := producer.PushAsync(ctx, int64(items[0].Priority), message)
			if err == nil {
				_, err = pushed.Wait(ctx)
			}
			return err
		}

		batch := make([]client.PushItem, len(items))
		for i, item := range items {
			batch[i] = client.PushItem{Priority: int64(item.Priority), Message: client.Message{Value: item.Value}}
		}
		_, err := q.PushBatch(ctx, batch)
		return err
	}
	pop := func(ctx context.Context, _ int) ([][]byte, error) {
		item, err := q.PopMin(ctx)
		if err != nil {
			return nil, emptyOf(err)
		}
		return [][]byte{item.Value}, nil
	}
	work := func(ctx context.Context, n int) ([][]byte, error) {
		leased, err := q.LeaseMinBatch(ctx, n, client.AckWait(leaseTime))
		if err != nil {
			return nil, emptyOf(err)
		}
		values := make([][]byte, len(leased))
		for i, d := range leased {
			values[i] = d.Value
		}
		return values, errors.Join(c.AckAll(ctx, leased...)...)
	}
	return &PeerClient{Push: push, Pop: pop, Work: work, Pushes: One | Many, Pops: One, Works: Many}
}

// emptyOf returns ErrEmpty for that of package client.
func emptyOf(err error) error {
	if errors.Is(err, client.ErrEmpty) {
		return ErrEmpty
	}
	return err
}

// close ends the pushes under way.
func (l *libraryClients) close() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, p := range l.producers {
		_ = p.Close(ended) // pushes that nobody waits for any more
	}
}
