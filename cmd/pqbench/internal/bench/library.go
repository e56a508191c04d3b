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
	return &PeerClient{
		Push: func(ctx context.Context, item PeerItem) error {
			pushed, err := producer.PushAsync(ctx, int64(item.Priority), client.Message{Value: item.Value})
			if err != nil {
				return err
			}
			_, err = pushed.Wait(ctx)
			return err
		},
		Pop: func(ctx context.Context) ([]byte, error) {
			item, err := q.PopMin(ctx)
			if errors.Is(err, client.ErrEmpty) {
				return nil, ErrEmpty
			}
			if err != nil {
				return nil, err
			}
			return item.Value, nil
		},
		PushMany: func(ctx context.Context, items []PeerItem) error {
			batch := make([]client.PushItem, len(items))
			for i, item := range items {
				batch[i] = client.PushItem{Priority: int64(item.Priority), Message: client.Message{Value: item.Value}}
			}
			_, err := q.PushBatch(ctx, batch)
			return err
		},
		WorkMany: func(ctx context.Context, n int) (int, error) {
			leased, err := q.LeaseMinBatch(ctx, n, client.AckWait(leaseTime))
			if errors.Is(err, client.ErrEmpty) {
				return 0, ErrEmpty
			}
			if err != nil {
				return 0, err
			}
			return len(leased), errors.Join(c.AckAll(ctx, leased...)...)
		},
	}
}

// close ends the pushes under way.
func (l *libraryClients) close() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, p := range l.producers {
		_ = p.Close(ended) // pushes that nobody waits for any more
	}
}
