package bench

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/client"
)

// workers is a load of Workers of package client, one for each connection, whose jobs do nothing.
// Each of their clients is one job at a time, so a step is from the end of one job to the end of
// the next.
type workers struct {
	queues  []*client.PriorityQueue // one for each connection
	clients []int                   // of each
}

func (r *rig) newWorkers(ctx context.Context, s *service, queue string) (*workers, error) {
	conns, err := r.connectAll(ctx)
	if err != nil {
		return nil, err
	}
	w := &workers{clients: make([]int, len(conns))}
	for _, nc := range conns {
		w.queues = append(w.queues, client.New(nc, client.WithGrammar(s.grammar)).PriorityQueue(queue))
	}
	for i := range r.Clients {
		w.clients[i%len(conns)]++
	}
	return w, nil
}

// run works until the turn has no more steps, or the time is over.
func (w *workers) run(ctx context.Context, t *turn) {
	var running sync.WaitGroup
	for i, q := range w.queues {
		running.Go(func() { t.good(runWorker(ctx, t, q, w.clients[i])) })
	}
	running.Wait()
}

func runWorker(ctx context.Context, t *turn, q *client.PriorityQueue, clients int) error {
	idle := make(chan time.Duration, clients) // when the clients without a job ended the one before
	for range clients {
		idle <- 0
	}
	var stop context.CancelFunc
	do := func(context.Context, *client.Job) error {
		began := <-idle
		now := time.Since(t.start)
		t.note(1, began, now)
		if _, more := t.next(now); !more {
			stop()
		}
		idle <- now
		return nil
	}

	worker, err := q.NewWorker(do, client.WorkerOptions{
		Concurrency: clients, AckWait: leaseTime, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	ctx, stop = context.WithCancel(ctx)
	defer stop()
	if t.limit.duration > 0 {
		// A Worker that waits for items has no job that could look at the time.
		timer := time.AfterFunc(t.limit.duration-time.Since(t.start), stop)
		defer timer.Stop()
	}
	if err := worker.Run(ctx); err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	return nil
}
