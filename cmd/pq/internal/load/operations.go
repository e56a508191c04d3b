package load

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
)

// Names of the operations that a load mixes. Others have the name of the mode.
const opPush, opLease = string(Push), string(Lease)

// operations are the names of the operations of the load.
func (o *Options) operations() []string {
	if o.Mode == Mixed {
		return []string{opPush, opLease}
	}
	return []string{string(o.Mode)}
}

// request does one step of a client, and notes it. If there was nothing to take it returns errDry.
func (r *run) request(ctx context.Context, q queue, name string) error {
	sent := time.Since(r.begun)
	var items int
	var err error
	switch Mode(name) {
	case Push:
		items, err = r.push(ctx, q)
	case Lease:
		items, err = r.lease(ctx, q, r.Batch)
	default:
		items, err = r.pop(ctx, q)
	}

	if errors.Is(err, client.ErrEmpty) {
		if !r.Mode.takes() {
			return nil
		}
		if !q.dry.Swap(true) {
			r.dried.Add(1)
		}
		return errDry
	}

	r.note(name, items, sent, time.Since(r.begun), err)
	return err
}

func (r *run) push(ctx context.Context, q queue) (int, error) {
	items := make([]client.PushItem, r.Batch)
	for i := range items {
		n := q.number*int64(r.Batch) + int64(i)
		items[i].Priority = n % int64(r.Priorities)
		items[i].Message.Value = r.value
		if r.Groups > 0 {
			group := strconv.FormatInt(n%int64(r.Groups), 10)
			items[i].Message.Headers = map[string][]string{subjects.HeaderGroup: {group}}
		}
	}

	if r.Batch > 1 {
		results, err := q.PushMany(ctx, items)
		for i := range results {
			r.countPush(q, results[i].Err)
		}
		return r.Batch, err
	}

	_, err := q.PushMsg(ctx, items[0].Priority, items[0].Message)
	r.countPush(q, err)
	return r.Batch, err
}

// countPush counts an item whose push has ended.
func (r *run) countPush(q queue, err error) {
	switch {
	case err == nil:
		q.pushed.Add(1)
	case errors.Is(err, client.ErrUnknownOutcome):
		q.doubtful.Add(1)
	}
}

// pop pops items of any load. What another program has pushed to a queue of loads meanwhile goes to
// the end of its priority.
func (r *run) pop(ctx context.Context, q queue) (n int, err error) {
	popped, err := q.PopBatch(ctx, r.Batch)
	for _, item := range popped {
		if isOurs(item) {
			n++
			continue
		}

		err = errForeign
		delete(item.Headers, subjects.HeaderMsgID) // with which it would be a duplicate
		var options []client.PushOption
		if item.Group != "" {
			options = append(options, client.Group(item.Group))
		}
		if item.Unique != "" {
			options = append(options, client.Unique(item.Unique))
		}
		_, failed := q.PushMsg(ctx, item.Priority, item.Message, options...)
		if failed != nil {
			err = fmt.Errorf("%w: item %s could not be put back: %v", err, item.ID, failed)
		}
	}

	return n, err
}

// clear removes what Mixed has left in the queues. Items of an earlier load stay: somebody may want
// that backlog.
func (r *run) clear(ctx context.Context, c *client.Client) (err error) {
	if r.Mode != Mixed {
		return nil
	}

	var left int64
	for i, s := range r.shares {
		q := r.open(c, int64(i))
		for n := s.surplus(); n > 0 && err == nil; n = s.surplus() {
			_, err = r.lease(ctx, q, int(min(n, subjects.MaxPopBatch)))
		}

		var reply *client.Error
		if errors.As(err, &reply) && reply.Reason == subjects.ReasonEmpty { // others took them
			err = nil
		} else {
			left += s.surplus() + s.doubtful.Load()
		}
	}

	if left > 0 && err == nil {
		err = errors.New("the outcome of some requests is unknown")
	}
	if err != nil {
		err = fmt.Errorf("%s: up to %d items were left there: %w", where(r.Queue, r.Queues), left,
			err)
	}
	return err
}

// lease leases up to most items of any load, and acknowledges them. If one of another program is
// among them, all go back to their places, and the delivery does not count.
func (r *run) lease(ctx context.Context, q queue, most int) (n int, err error) {
	leased, err := q.LeaseBatch(ctx, most)
	if err != nil {
		return 0, err
	}

	if slices.ContainsFunc(leased, func(d *client.Delivery) bool { return !isOurs(&d.Item) }) {
		err = errForeign
		for _, d := range leased {
			if failed := d.Snooze(ctx, 0); failed != nil {
				err = fmt.Errorf("%w; item %s comes back when its lease ends: %v", errForeign, d.ID,
					failed)
			}
		}
		return 0, err
	}

	if r.Result > 0 {
		for _, d := range leased {
			d.SetResult(make([]byte, r.Result), "")
		}
	}
	errs := q.client.AckAll(ctx, leased...)
	n = len(leased)
	for _, err := range errs {
		switch {
		case errors.Is(err, client.ErrUnknownOutcome): // so that clear takes none too many
			q.doubtful.Add(1)
		case err != nil:
			n--
		}
	}
	q.popped.Add(int64(n))
	return n, errors.Join(errs...)
}

// work runs a Worker until ended ends. The latency of a job is the time since the one before it was
// done.
func (r *run) work(ended context.Context, q queue, concurrency int) error {
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

		if r.Result > 0 {
			job.SetResult(make([]byte, r.Result), "")
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
