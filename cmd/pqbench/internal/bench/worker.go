package bench

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
)

// workerConn is a Worker of package client whose jobs do nothing. Each of its clients is one job
// at a time, so a step is from the end of one job to the end of the next.
type workerConn struct {
	nc      *nats.Conn
	grammar subjects.Grammar
	queue   string
	clients int
}

// newWorkerLoad connects Workers that share the clients.
func (r *rig) newWorkerLoad(s *service, queue string) (*load, error) {
	return newLoadOf(func() (*nats.Conn, error) { return nats.Connect(r.url) }, r.Clients, r.Connections,
		func(nc *nats.Conn, clients int) (conn, error) {
			return &workerConn{nc: nc, grammar: s.grammar, queue: queue, clients: clients}, nil
		})
}

func (c *workerConn) close() { c.nc.Close() }

// run works until next returns no more, or the time is over.
func (c *workerConn) run(ctx context.Context, r *loadRun) {
	w := &workerRun{loadRun: r, idle: make(chan time.Duration, c.clients), out: newOutcome()}
	for range c.clients {
		w.idle <- 0
	}
	worker, err := client.New(c.nc, client.WithGrammar(c.grammar)).PriorityQueue(c.queue).NewWorker(w.do,
		client.WorkerOptions{Concurrency: c.clients, AckWait: leaseTime, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		r.fail(err)
		return
	}
	w.stop = sync.OnceFunc(worker.Stop) // a second call would end the jobs
	if r.limit.duration > 0 {
		timer := time.AfterFunc(r.limit.duration-time.Since(r.start), w.stop) // also of a Worker that waits
		defer timer.Stop()
	}
	if err := worker.Run(ctx); err != nil {
		r.fail(fmt.Errorf("worker: %w", err))
	}
	r.add(w.out)
}

// workerRun is one run of a Worker.
type workerRun struct {
	*loadRun
	stop func()
	idle chan time.Duration // when the clients that have no job ended the one before

	mu  sync.Mutex
	out outcome
}

// do is the Work.
func (w *workerRun) do(context.Context, *client.Job) error {
	began := <-w.idle
	now := time.Since(w.start)
	w.mu.Lock()
	w.out.note(1, began, now)
	w.mu.Unlock()
	if _, more := w.next(now); !more {
		w.stop()
	}
	w.idle <- now
	return nil
}
