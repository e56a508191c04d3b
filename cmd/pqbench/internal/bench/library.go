package bench

import (
	"context"
	"errors"

	"github.com/pqbridge/pqbridge/client"
)

// serviceLoads returns what is measured of the service, by the names of the rows of a comparison
// with peers. Single items go through package client as programs in Go use it, with a Producer and a
// Worker for each connection, and once more with a request for each step.
func (r *rig) serviceLoads(ctx context.Context, s *service) (loads map[string]load, stop func(), err error) {
	clients, stop, err := r.libraryClients(ctx, s, queueName)
	if err != nil {
		return nil, nil, err
	}
	workers, err := r.newWorkers(ctx, s, queueName)
	if err != nil {
		stop()
		return nil, nil, err
	}

	q := r.newQueue(s, queueName)
	loads = peerLoads(clients, r.Payload, r.Priorities)
	loads[rowWork] = workers
	loads[rowPushEach], loads[rowPopEach] = q.pushing(), r.asking(nil, q.subject("pop.min"))
	loads[rowWorkEach], loads[rowWorkNext] = q.leasing(), q.chaining()
	return loads, stop, nil
}

// libraryClients returns clients of a queue that use package client. Those of a connection share a
// Producer. Stop ends the pushes under way.
func (r *rig) libraryClients(ctx context.Context, s *service, queue string) (all []*PeerClient, stop func(), err error) {
	conns, err := r.connectAll(ctx)
	if err != nil {
		return nil, nil, err
	}

	var producers []*client.Producer
	stop = func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		for _, p := range producers {
			_ = p.Close(ended) // pushes that nobody waits for any more
		}
	}
	for i, nc := range conns {
		c := client.New(nc, client.WithGrammar(s.grammar))
		q := c.PriorityQueue(queue)
		producer, err := q.NewProducer(client.ProducerOptions{})
		if err != nil {
			stop()
			return nil, nil, err
		}

		producers = append(producers, producer)
		for n := i; n < r.Clients; n += r.Connections {
			all = append(all, newLibraryClient(c, q, producer))
		}
	}
	return all, stop, nil
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
	pop := func(ctx context.Context, n int) ([][]byte, error) {
		if n == 1 {
			item, err := q.PopMin(ctx)
			if err != nil {
				return nil, emptyOf(err)
			}
			return [][]byte{item.Value}, nil
		}

		items, err := q.PopMinBatch(ctx, n)
		values := make([][]byte, len(items))
		for i, item := range items {
			values[i] = item.Value
		}
		return values, emptyOf(err)
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
	return &PeerClient{Push: push, Pop: pop, Work: work, Pushes: One | Many, Pops: One | Many, Works: Many}
}

// emptyOf returns ErrEmpty for that of package client.
func emptyOf(err error) error {
	if errors.Is(err, client.ErrEmpty) {
		return ErrEmpty
	}
	return err
}
