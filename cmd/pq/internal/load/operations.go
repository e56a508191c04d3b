package load

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/pqbridge/pqbridge/client"
)

// Names of the operations that a load mixes. Others have the name of the mode.
const opPush, opPop = string(Push), string(Pop)

// operations are the names of the operations of the load.
func (o *Options) operations() []string {
	if o.Mode == Mixed {
		return []string{opPush, opPop}
	}
	return []string{string(o.Mode)}
}

// request does one step of a client, and notes it.
func (r *run) request(ctx context.Context, q *queue, name string) error {
	sent := time.Since(r.begun)
	var items int
	var err error
	switch Mode(name) {
	case Push:
		items, err = r.push(ctx, q)
	case Lease:
		items, err = r.lease(ctx, q)
	default:
		items, err = r.pop(ctx, q)
	}

	if errors.Is(err, client.ErrEmpty) {
		if r.Mode.takes() {
			r.dry.Store(true)
		}
		return nil
	}

	r.note(name, items, sent, time.Since(r.begun), err)
	return err
}

func (r *run) push(ctx context.Context, q *queue) (int, error) {
	items := make([]client.PushItem, r.Batch)
	for i := range items {
		items[i].Priority = r.pushed.Add(1) % int64(r.Priorities)
		items[i].Message.Value = r.value
	}

	var err error
	if r.Batch > 1 {
		_, err = q.PushMany(ctx, items)
	} else {
		_, err = q.Push(ctx, items[0].Priority, items[0].Message)
	}

	return r.Batch, err
}

// pop pops items of any load. It puts back those of other programs.
func (r *run) pop(ctx context.Context, q *queue) (n int, err error) {
	popped, err := q.PopItems(ctx, r.Batch)
	for _, item := range popped {
		if isOurs(item) {
			n++
			continue
		}
		err = errForeign
		if _, failed := q.Push(ctx, item.Priority, item.Message); failed != nil {
			err = fmt.Errorf("%w: item %s could not be put back: %w", err, item.ID, failed)
		}
	}

	return n, err
}

// lease leases items and acknowledges them.
func (r *run) lease(ctx context.Context, q *queue) (int, error) {
	leased, err := q.LeaseItems(ctx, r.Batch, false)
	if err != nil {
		return 0, err
	}

	for _, d := range leased {
		if !isOurs(&d.Item) {
			return 0, errors.Join(errForeign, d.Snooze(ctx, 0))
		}
	}

	return len(leased), errors.Join(q.client.AckAll(ctx, leased...)...)
}

// work runs a Worker until ended ends. The latency of a job is the time since the one before it was
// done.
func (r *run) work(ended context.Context, q *queue, concurrency int) error {
	ended, stop := context.WithCancelCause(ended)
	defer stop(nil)

	// When those without a job were done with the last.
	idle := make(chan time.Duration, concurrency)
	for range concurrency {
		idle <- 0
	}

	do := func(_ context.Context, job *client.Job) error {
		if !isOurs(&job.Item) {
			stop(errForeign)
			return client.Snooze(0)
		}
		if !r.next(ended) {
			stop(nil)
			return client.Snooze(0)
		}

		sent, replied := <-idle, time.Since(r.begun)
		r.note(string(Work), 1, sent, replied, nil)
		idle <- replied
		if r.Count > 0 && r.answered.Load() >= r.Count {
			stop(nil)
		}
		return nil
	}

	worker, err := q.NewWorker(do,
		client.WorkerOptions{Concurrency: concurrency, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}

	err = worker.Run(ended)
	if err == nil && errors.Is(context.Cause(ended), errForeign) {
		err = errForeign
	}
	return err
}
