package requests

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/results"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
)

// Inspector answers questions about many queues or items, and all questions over HTTP: see package
// web. They run beside the lanes, a few at a time, in transactions that only read. The exception is
// a bulkEdit, which changes items through the lanes. A question over NATS sweeps the queue first.
// HTTP needs no login, so it writes nothing.
type Inspector struct {
	config *Config

	slots  chan struct{} // an element for each question that runs, except browses
	browse chan struct{} // an element while a part of a browse runs

	nextPart time.Time // when the next part of a browse may begin; guarded by browse

	// Batches is how many batches the lanes have run. The bridge counts them.
	Batches atomic.Int64

	ctx    context.Context
	cancel context.CancelFunc

	lists, browses, bulkEdits, results inspectionLimit

	mu        sync.Mutex
	ending    context.Context // ends, with the lock held, when no more over NATS may begin
	refuse    context.CancelFunc
	answering sync.WaitGroup // questions over NATS
}

// inspection is a question that came over NATS.
type inspection struct {
	limit inspectionLimit
	// reply returns the payload of the reply.
	reply func(ctx context.Context) ([]byte, error)
	// header is the headers of the reply if reply sets it, and changed how many items it changed.
	header  nats.Header
	changed int64

	// awaits is what the request waits for, nil if it does not wait; known says that it names the
	// job, and so need not look first.
	awaits *results.Wait
	known  bool
}

// inspectionLimit bounds how many questions over NATS wait or run.
type inspectionLimit struct {
	places chan struct{} // an element for each
	err    error
}

func newLimit(most int, what string) inspectionLimit {
	err := fmt.Errorf("%w: %d %s: try again", dispatch.ErrOverloaded, most, what)
	return inspectionLimit{make(chan struct{}, most), err}
}

const (
	// maxInspections limits how many questions run at a time, beside one browse.
	maxInspections = 4
	// maxLists and maxBrowses limit how many questions over NATS wait or run.
	maxLists, maxBrowses = 256, 64
	// maxResultRequests limits requests for the result of a job, which take little time.
	maxResultRequests = 1024
	// maxBulkEdits limits how many purges and redrives run.
	maxBulkEdits = 8
)

func newInspector(c *Config) *Inspector {
	i := &Inspector{
		config:    c,
		slots:     make(chan struct{}, maxInspections),
		browse:    make(chan struct{}, 1),
		lists:     newLimit(maxLists, "lists are waiting"),
		browses:   newLimit(maxBrowses, "requests for items, ranks and schedules are waiting"),
		results:   newLimit(maxResultRequests, "requests for results are waiting"),
		bulkEdits: newLimit(maxBulkEdits, "purges and redrives are running"),
	}
	i.ctx, i.cancel = context.WithCancel(context.Background())
	i.ending, i.refuse = context.WithCancel(i.ctx)
	return i
}

var errEnded = fmt.Errorf("%w: the service is shutting down: try again", dispatch.ErrUnavailable)

// End ends the questions over NATS. They have until ctx ends.
func (i *Inspector) End(ctx context.Context) {
	i.mu.Lock()
	i.refuse()
	i.mu.Unlock()

	defer context.AfterFunc(ctx, i.cancel)()
	i.answering.Wait()
	i.cancel()
}

// answer calls reply with the answer from a goroutine of its own, unless too many wait.
func (i *Inspector) answer(asked *inspection, reply func(payload []byte, err error)) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ending.Err() != nil {
		return errEnded
	}

	select {
	case asked.limit.places <- struct{}{}:
	default:
		return asked.limit.err
	}

	// Under the lock, so End waits for it.
	i.answering.Go(func() {
		defer func() { <-asked.limit.places }()
		ctx, cancel := context.WithTimeout(i.ctx, i.config.RequestTimeout)
		defer cancel()
		reply(asked.reply(ctx))
	})

	return nil
}

// list returns a page of a list of queues. If sweeps is set, it sweeps them first.
func (i *Inspector) list(
	ctx context.Context, kind subjects.Kind, o subjects.ListOptions, sweeps bool,
) (list subjects.QueueList, err error) {
	of := i.config.Keyspace.ListPriorityQueues
	if kind == subjects.FIFO {
		of = i.config.Keyspace.ListQueues
	}

	err = i.run(ctx, i.slots, func() error {
		page, err := of(ctx, i.config.DB, o.After, o.Limit, i.config.Now())
		due := err == nil && sweeps && len(page.Due) > 0
		if due && i.config.Dispatcher.Sweeper().Sweep(ctx, page.Due) == nil {
			page, err = of(ctx, i.config.DB, o.After, o.Limit, i.config.Now())
		}

		for _, q := range page.Queues {
			list.Queues = append(list.Queues, subjects.QueueCounts{
				Queue: q.Name, Ready: q.Ready, Leased: q.Leased, Delayed: q.Delayed,
			})
		}
		if page.Next != "" {
			list.Next = &page.Next
		}
		return err
	})

	return list, err
}

// List returns a page of a list of queues as they are.
func (i *Inspector) List(
	ctx context.Context, kind subjects.Kind, o subjects.ListOptions,
) (subjects.QueueList, error) {
	return i.list(ctx, kind, o, false)
}

// Info returns the figures of a queue as it is stored, and their time. It does not add the queue to
// the queues in use.
func (i *Inspector) Info(
	ctx context.Context, kind subjects.Kind, name string,
) (info *fdbpq.Info, at time.Time, err error) {
	q, err := dispatch.TargetOf(i.config.Keyspace, kind, name)
	if err != nil {
		return nil, at, err
	}

	err = i.run(ctx, i.slots, func() error {
		at = i.config.Now()
		result, err := i.read(ctx, fdbpq.Op{Kind: fdbpq.OpInfo, Queue: q})
		info = result.Info
		return err
	})

	return info, at, err
}

// read runs an operation that only reads, by the clock of the bridge.
func (i *Inspector) read(ctx context.Context, op fdbpq.Op) (fdbpq.Result, error) {
	results, err := kv.ReadTransact(ctx, i.config.DB, func(r kv.Reader) ([]fdbpq.Result, error) {
		return fdbpq.ReadSome(r, []fdbpq.Op{op}, i.config.Now(), partBytes)
	})
	if err != nil {
		return fdbpq.Result{}, err
	}
	return results[0], results[0].Err
}

// run calls f when there is a slot for it.
func (i *Inspector) run(ctx context.Context, slots chan struct{}, f func() error) error {
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-ctx.Done():
		return i.ended(ctx.Err())
	}
	return i.ended(f())
}

// ended explains an error that is due to the end of the context. A store may say so before the
// context does, in a process that stood still.
func (i *Inspector) ended(err error) error {
	switch {
	case !isTimeOver(err):
		return err
	case i.ctx.Err() != nil:
		return errEnded
	default:
		return fmt.Errorf("%w: the store did not answer in time: try again",
			dispatch.ErrUnavailable)
	}
}

// errWaits says that a request is not answered yet.
var errWaits = errors.New("the request waits")
