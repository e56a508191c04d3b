package peers

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// pqbridge has PushMsg, Pop, and Lease with Ack; for the shared operations a Producer and a Worker
// for each connection; and for batches PushBatch, PopBatch, and LeaseBatch with AckAll.
func pqbridge(program string) Peer {
	return Peer{
		Name: "pqbridge", dial: dialPqbridge,
		Does: []string{Push, Pop, Work, PushShared, WorkShared, PushMany, PopMany, WorkMany},
		command: func(s *Server, folder, _ string) *exec.Cmd {
			env := testenv.New(s.tb, testenv.Options{Stopped: true})
			env.NATS.Start()
			s.address = env.NATS.URL()
			cmd := harness.Command(program)
			cmd.Env = append(os.Environ(), "PQ_NATS_URL="+s.address, "PQ_REQUEST_TIMEOUT=1m",
				"PQ_HTTP_ADDR=off", "PQ_DATA_DIR="+folder, "PQ_STORE=embedded")
			return cmd
		},
	}
}

func dialPqbridge(s *Server, queue string, _ int) (func() (*Client, error), error) {
	nc, err := nats.Connect(s.address, nats.Timeout(leaseTime))
	if err != nil {
		return nil, err
	}

	s.onStop(nc.Close)
	c := client.New(nc, client.WithTimeout(leaseTime))
	p := &pqConnection{client: c, queue: c.PriorityQueue(queue)}
	if _, err := p.queue.Len(s.tb.Context()); err != nil {
		return nil, err
	}
	if p.producer, err = p.queue.NewProducer(client.ProducerOptions{}); err != nil {
		return nil, err
	}

	s.onStop(func() { _ = p.producer.Close(s.tb.Context()) })
	worker := newWorker(p.startWorker)
	shared := &Client{Push: p.pushShared, Work: worker.work}
	return func() (*Client, error) {
		p.clients++
		return &Client{
			Push: p.push, Pop: p.pop, Work: p.work, Rest: worker.rest, Shared: shared,
		}, nil
	}, nil
}

// pqConnection is what the clients of a connection share.
type pqConnection struct {
	client   *client.Client
	queue    *client.Queue
	producer *client.Producer
	clients  int
}

func (p *pqConnection) pushShared(ctx context.Context, items []Item) error {
	m := client.Message{Value: items[0].Value}
	pushed, err := p.producer.PushAsync(ctx, int64(items[0].Priority), m)
	if err == nil {
		_, err = pushed.Wait(ctx)
	}
	return err
}

func (p *pqConnection) push(ctx context.Context, items []Item) error {
	if len(items) == 1 {
		_, err := p.queue.Push(ctx, int64(items[0].Priority), items[0].Value)
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
	items := make([]*client.Item, 1)
	var err error
	if n == 1 {
		items[0], err = p.queue.Pop(ctx)
	} else {
		items, err = p.queue.PopBatch(ctx, n)
	}

	return values(items, err, func(item *client.Item) []byte { return item.Value })
}

func (p *pqConnection) work(ctx context.Context, n int) ([][]byte, error) {
	leased := make([]*client.Delivery, 1)
	var err error
	if n == 1 {
		if leased[0], err = p.queue.Lease(ctx, client.AckWait(leaseTime)); err == nil {
			err = leased[0].Ack(ctx)
		}
	} else {
		leased, err = p.queue.LeaseBatch(ctx, n, client.AckWait(leaseTime))
		if err == nil {
			err = errors.Join(p.client.AckAll(ctx, leased...)...)
		}
	}

	return values(leased, err, func(d *client.Delivery) []byte { return d.Value })
}

func (p *pqConnection) startWorker(ctx context.Context, give giver) (func() error, error) {
	worker, err := p.queue.NewWorker(func(_ context.Context, job *client.Job) error {
		if !give(job.Value) {
			return client.Snooze(0)
		}
		return nil
	}, client.WorkerOptions{Concurrency: p.clients, AckWait: leaseTime,
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}

	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	return func() error { return <-ended }, nil
}
