package bridge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
)

// inspector answers questions about many queues, and those that come over HTTP: see package web.
// They run beside the lanes, a few at a time, in transactions that only read. Lists over NATS bring
// back what is due first. Whoever asks over HTTP has logged in nowhere, so that writes nothing.
type inspector struct {
	options    *Options
	dispatcher *dispatch.Dispatcher

	slots  chan struct{} // an element for each that runs
	ctx    context.Context
	cancel context.CancelFunc

	mu struct {
		sync.Mutex
		lists int // over NATS, that wait or run
		ended bool
	}
	answering sync.WaitGroup // these
}

const (
	// maxInspections run at a time.
	maxInspections = 4
	// maxLists over NATS wait or run.
	maxLists = 256
)

func newInspector(o *Options, d *dispatch.Dispatcher) *inspector {
	i := &inspector{options: o, dispatcher: d, slots: make(chan struct{}, maxInspections)}
	i.ctx, i.cancel = context.WithCancel(context.Background())
	return i
}

var (
	errTooManyLists = fmt.Errorf("%w: %d lists wait: try again", dispatch.ErrOverloaded, maxLists)
	errEnded        = fmt.Errorf("%w: the service is shutting down: try again", dispatch.ErrUnavailable)
)

// end ends the lists: they have until ctx ends.
func (i *inspector) end(ctx context.Context) {
	i.mu.Lock()
	i.mu.ended = true
	i.mu.Unlock()

	defer context.AfterFunc(ctx, i.cancel)()
	i.answering.Wait()
	i.cancel()
}

// start answers a list in a goroutine of its own, unless too many wait. ctx ends when answer has no
// more time.
func (i *inspector) start(answer func(ctx context.Context)) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.mu.ended {
		return errEnded
	}
	if i.mu.lists >= maxLists {
		return errTooManyLists
	}

	i.mu.lists++
	i.answering.Go(func() {
		ctx, cancel := context.WithTimeout(i.ctx, i.options.RequestTimeout)
		defer cancel()
		answer(ctx)

		i.mu.Lock()
		i.mu.lists--
		i.mu.Unlock()
	})
	return nil
}

// list returns a page of a list of queues, after what is due in them was swept, or as it is.
func (i *inspector) list(ctx context.Context, kind subjects.Kind, o subjects.ListOptions, sweeps bool) (list subjects.QueueList, err error) {
	of := i.options.Keyspace.ListPriorityQueues
	if kind == subjects.FIFO {
		of = i.options.Keyspace.ListQueues
	}

	err = i.run(ctx, func() error {
		page, err := of(ctx, i.options.DB, o.After, o.Limit, i.options.Now())
		if err == nil && sweeps && len(page.Due) > 0 && i.dispatcher.Sweeper().Sweep(ctx, page.Due) == nil {
			page, err = of(ctx, i.options.DB, o.After, o.Limit, i.options.Now())
		}

		for _, q := range page.Queues {
			list.Queues = append(list.Queues, subjects.QueueCounts{Queue: q.Name, Ready: q.Ready, Leased: q.Leased, Delayed: q.Delayed})
		}
		if page.More {
			list.Next = &list.Queues[len(list.Queues)-1].Queue
		}
		return err
	})
	return list, err
}

// info returns what there is to know of a queue as it is stored, without adding it to those in use,
// and when that was.
func (i *inspector) info(ctx context.Context, kind subjects.Kind, name string) (info *fdbpq.Info, at time.Time, err error) {
	var q fdbpq.Target
	if kind == subjects.FIFO {
		q, err = i.options.Keyspace.Queue(name)
	} else {
		q, err = i.options.Keyspace.PriorityQueue(name)
	}
	if err != nil {
		return nil, at, err
	}

	err = i.run(ctx, func() error {
		at = i.options.Now()
		results, err := kv.ReadTransact(ctx, i.options.DB, func(r kv.Reader) ([]fdbpq.Result, error) {
			return fdbpq.Read(r, []fdbpq.Op{{Kind: fdbpq.OpInfo, Queue: q}})
		})
		if err == nil {
			info, err = results[0].Info, results[0].Err
		}
		return err
	})
	return info, at, err
}

// run calls f when there is room for it.
func (i *inspector) run(ctx context.Context, f func() error) error {
	select {
	case i.slots <- struct{}{}:
		defer func() { <-i.slots }()
	case <-ctx.Done():
		return i.ended(ctx, ctx.Err())
	}
	return i.ended(ctx, f())
}

// ended explains an error that came because the context has ended.
func (i *inspector) ended(ctx context.Context, err error) error {
	switch {
	case err == nil || ctx.Err() == nil || !errors.Is(err, ctx.Err()):
		return err
	case i.ctx.Err() != nil:
		return errEnded
	default:
		return fmt.Errorf("%w: the store did not answer in time: try again", dispatch.ErrUnavailable)
	}
}
