package peers

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

// pqbridge has for each connection a Producer and a Worker, for pop PopMin, and for batches
// PushBatch, PopMinBatch, and LeaseMinBatch with AckAll.
func pqbridge(program string) Peer {
	_, missing := find(program)
	return Peer{
		Name: "pqbridge", Missing: missing,
		Start: func(tb testing.TB, folder string) *Server {
			env := testenv.New(tb, testenv.Options{Stopped: true})
			env.NATS.Start()
			s := start(tb, freePort(tb), func(cmd *exec.Cmd) {
				cmd.Env = append(os.Environ(), "PQ_NATS_URL="+env.NATS.URL(),
					"PQ_HTTP_ADDR=off", "PQ_DATA_DIR="+folder, "PQ_STORE=embedded")
			}, program)

			nc := env.Connect()
			s.await(func() error {
				_, err := client.New(nc).PriorityQueue("any").Len(tb.Context())
				return err
			})

			nc.Close()

			s.Connect = func(clients, connections, priorities int) []*Client {
				return connectPqbridge(s, env.NATS.URL(), clients, connections, priorities)
			}

			return s
		},
	}
}

func connectPqbridge(s *Server, url string, clients, connections, priorities int) (all []*Client) {
	shared := make([]*pqConnection, connections)
	for i := range shared {
		nc, err := nats.Connect(url)
		must(s.tb, err)
		s.onStop(nc.Close)

		c := client.New(nc)
		p := &pqConnection{client: c, queue: c.PriorityQueue(queueName(priorities))}
		p.clients = (clients + connections - 1) / connections
		p.producer, err = p.queue.NewProducer(client.ProducerOptions{})
		must(s.tb, err)
		s.onStop(func() { _ = p.producer.Close(s.tb.Context()) }) // Nothing is under way.
		shared[i] = p
	}

	for i := range clients {
		p := shared[i%connections]
		all = append(all, &Client{Push: p.push, Pop: p.pop, Work: p.work, Rest: p.rest})
	}

	return all
}

// pqConnection is what the clients of a connection share.
type pqConnection struct {
	client   *client.Client
	queue    *client.PriorityQueue
	producer *client.Producer
	clients  int

	mu   sync.Mutex
	jobs chan []byte // of the Worker; nil if none runs
	stop func() error
}

func (p *pqConnection) push(ctx context.Context, items []Item) error {
	if len(items) == 1 {
		m := client.Message{Value: items[0].Value}
		pushed, err := p.producer.PushAsync(ctx, int64(items[0].Priority), m)
		if err == nil {
			_, err = pushed.Wait(ctx)
		}
		return err
	}

	batch := make([]client.PushItem, len(items))
	for i, item := range items {
		batch[i].Priority = int64(item.Priority)
		batch[i].Message.Value = item.Value
	}

	_, err := p.queue.PushBatch(ctx, batch)
	return err
}

func (p *pqConnection) pop(ctx context.Context, n int) ([][]byte, error) {
	var items []*client.Item
	var err error
	if n == 1 {
		items = make([]*client.Item, 1)
		items[0], err = p.queue.PopMin(ctx)
	} else {
		items, err = p.queue.PopMinBatch(ctx, n)
	}

	if err != nil {
		return nil, emptyOf(err)
	}

	return values(items, func(item *client.Item) []byte { return item.Value })
}

func (p *pqConnection) work(ctx context.Context, n int) ([][]byte, error) {
	if n == 1 {
		return p.workOne(ctx)
	}

	leased, err := p.queue.LeaseMinBatch(ctx, n, client.AckWait(leaseTime))
	if err == nil {
		err = errors.Join(p.client.AckAll(ctx, leased...)...)
	}
	if err != nil {
		return nil, emptyOf(err)
	}

	return values(leased, func(d *client.Delivery) []byte { return d.Value })
}

// workOne takes a job from the Worker of the connection, which it starts if none runs.
func (p *pqConnection) workOne(ctx context.Context) ([][]byte, error) {
	jobs, err := p.startWorker()
	if err != nil {
		return nil, err
	}

	select {
	case value := <-jobs:
		return [][]byte{value}, nil
	case <-time.After(emptyAfter):
		return nil, ErrEmpty
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (p *pqConnection) startWorker() (chan []byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.jobs != nil {
		return p.jobs, nil
	}

	jobs := make(chan []byte)
	ctx, cancel := context.WithCancel(context.Background())
	worker, err := p.queue.NewWorker(func(_ context.Context, job *client.Job) error {
		select {
		case jobs <- job.Value:
			return nil
		case <-ctx.Done():
			return client.Snooze(0)
		}
	}, client.WorkerOptions{Concurrency: p.clients, AckWait: leaseTime,
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		cancel()
		return nil, err
	}

	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	p.jobs = jobs
	p.stop = func() error {
		cancel()
		return <-ended
	}

	return jobs, nil
}

// rest stops the Worker, so that the queue gets back what nobody has taken.
func (p *pqConnection) rest() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.jobs == nil {
		return nil
	}
	p.jobs = nil
	return p.stop()
}

// emptyOf returns ErrEmpty for that of package client.
func emptyOf(err error) error {
	if errors.Is(err, client.ErrEmpty) {
		return ErrEmpty
	}
	return err
}
