package peers

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// pqbridge has for each connection a Producer and a Worker, for pop Pop, and for batches PushBatch,
// PopBatch, and LeaseBatch with AckAll.
func pqbridge(program string) Peer {
	return Peer{
		Name: "pqbridge", dial: dialPqbridge,
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
	p := &pqConnection{client: c, queue: c.PriorityQueue(queue), jobs: make(chan []byte)}
	if _, err := p.queue.Len(s.tb.Context()); err != nil {
		return nil, err
	}
	if p.producer, err = p.queue.NewProducer(client.ProducerOptions{}); err != nil {
		return nil, err
	}

	s.onStop(func() { _ = p.producer.Close(s.tb.Context()) })
	return func() (*Client, error) {
		p.clients++
		return &Client{Push: p.push, Pop: p.pop, Work: p.work, Rest: p.rest}, nil
	}, nil
}

// pqConnection is what the clients of a connection share.
type pqConnection struct {
	client   *client.Client
	queue    *client.Queue
	producer *client.Producer
	clients  int

	jobs chan []byte // of the Worker

	mu   sync.Mutex
	stop func() error // stops the Worker; nil if none runs
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
	if n == 1 {
		return p.workOne(ctx)
	}

	leased, err := p.queue.LeaseBatch(ctx, n, client.AckWait(leaseTime))
	if err == nil {
		err = errors.Join(p.client.AckAll(ctx, leased...)...)
	}
	return values(leased, err, func(d *client.Delivery) []byte { return d.Value })
}

// workOne takes a job from the Worker of the connection, which it starts if none runs.
func (p *pqConnection) workOne(ctx context.Context) ([][]byte, error) {
	if err := p.startWorker(); err != nil {
		return nil, err
	}
	value, err := receive(ctx, p.jobs)
	return [][]byte{value}, err
}

func (p *pqConnection) startWorker() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop != nil {
		return nil
	}

	ctx, cancel := context.WithCancel(context.Background())
	worker, err := p.queue.NewWorker(func(_ context.Context, job *client.Job) error {
		select {
		case p.jobs <- job.Value:
			return nil
		case <-ctx.Done():
			return client.Snooze(0)
		}
	}, client.WorkerOptions{Concurrency: p.clients, AckWait: leaseTime,
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		cancel()
		return err
	}

	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	p.stop = func() error {
		cancel()
		return <-ended
	}

	return nil
}

// rest stops the Worker, so that the queue gets back what nobody has taken.
func (p *pqConnection) rest() (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop != nil {
		err = p.stop()
	}
	p.stop = nil
	return err
}
