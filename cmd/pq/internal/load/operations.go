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
const (
	opPush = string(Push)
	opPop  = string(Pop)
)

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
	var items []event
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

func (r *run) push(ctx context.Context, q *queue) ([]event, error) {
	items, pushed := make([]event, r.Batch), make([]client.PushItem, r.Batch)
	for i := range items {
		number := r.pushed.Add(1)
		items[i] = event{number: number, priority: number % int64(r.Priorities)}
		pushed[i].Priority = items[i].priority
		pushed[i].Message.Value = value(r.name, number, r.Size)
	}

	if r.Batch > 1 {
		_, err := q.PushMany(ctx, pushed)
		return items, err
	}

	_, err := q.Push(ctx, pushed[0].Priority, pushed[0].Message)
	return items, err
}

// pop pops items of this load or, without Verify, of any.
func (r *run) pop(ctx context.Context, q *queue) (items []event, err error) {
	popped, err := q.PopItems(ctx, r.Batch)
	for _, item := range popped {
		e, foreign := r.own(item)
		if foreign == nil {
			items = append(items, e)
			continue
		}
		err = foreign
		if _, failed := q.Push(ctx, item.Priority, item.Message); failed != nil {
			err = fmt.Errorf("%w: item %s could not be put back: %w", err, item.ID, failed)
		}
	}

	return items, err
}

// lease leases items and acknowledges them.
func (r *run) lease(ctx context.Context, q *queue) (items []event, err error) {
	leased, err := q.LeaseItems(ctx, r.Batch, false)
	if err != nil {
		return nil, err
	}

	for _, d := range leased {
		e, err := r.own(&d.Item)
		if err != nil {
			return nil, errors.Join(err, d.Snooze(ctx, 0))
		}
		items = append(items, e)
	}

	return items, errors.Join(q.client.AckAll(ctx, leased...)...)
}

// own returns what an item says, or an error if it is not the load's.
func (r *run) own(item *client.Item) (event, error) {
	name, number, err := parse(item.Value)
	if err == nil && r.Verify && name != r.name {
		err = errForeign
	}
	return event{number: number, priority: item.Priority}, err
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
		e, err := r.own(&job.Item)
		if err != nil || !r.next(ended) {
			stop(err)
			return client.Snooze(0)
		}

		sent, replied := <-idle, time.Since(r.begun)
		r.note(string(Work), []event{e}, sent, replied, nil)
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

	if err := worker.Run(ended); err != nil {
		return err
	}

	if err := context.Cause(ended); errors.Is(err, errForeign) {
		return err
	}

	return nil
}

// drain pops what is left, one item at a time.
func (r *run) drain(ctx context.Context, q *queue) error {
	for {
		sent := time.Since(r.begun)
		items, err := r.pop(ctx, q)
		if errors.Is(err, client.ErrEmpty) {
			return nil
		}

		r.events.add(opPop, items, sent, time.Since(r.begun), err)
		if passes(err) {
			rest(ctx)
		} else if err != nil {
			return err
		}
	}
}
