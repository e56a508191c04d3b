package peers

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverLevels are the priorities that River has, from 1.
const riverLevels = 4

// riverQueue is River, a library for jobs in PostgreSQL, with the server as for postgreSQL. It has
// no pop and no lease without its worker, which fetches jobs for all clients of a connection and
// completes them together. Insert, and InsertManyFast for batches.
func riverQueue() Peer {
	p := postgreSQL()
	p.Name, p.dial, p.Does = "River", dialRiver, []string{Push, WorkShared, PushMany}
	return p
}

// dialRiver creates River's tables if necessary.
func dialRiver(s *Server, queue string, priorities int) (func() (*Client, error), error) {
	pool, err := dialPool(s, poolSize+1) // one listens
	if err != nil {
		return nil, err
	}

	driver := riverpgxv5.New(pool)
	tables, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: silent})
	if err != nil {
		return nil, err
	}
	if _, err = tables.Migrate(s.tb.Context(), rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}

	r := &riverConnection{driver: driver, queue: queue, priorities: priorities}
	r.inserter, err = river.NewClient(driver, &river.Config{Logger: silent})
	worker := newWorker(r.startWorker)
	return func() (*Client, error) {
		r.clients++
		c := &Client{Push: r.push, Work: worker.work, Rest: worker.rest}
		c.Shared = c
		return c, nil
	}, err
}

var silent = slog.New(slog.DiscardHandler)

// riverConnection is what the clients of a connection share.
type riverConnection struct {
	driver     *riverpgxv5.Driver
	queue      string
	priorities int
	clients    int
	inserter   *river.Client[pgx.Tx]
}

// riverItem is an item as River has it.
type riverItem struct {
	Value []byte `json:"value"`
}

func (riverItem) Kind() string { return "item" }

func (r *riverConnection) push(ctx context.Context, items []Item) error {
	jobs := make([]river.InsertManyParams, len(items))
	for i, item := range items {
		jobs[i].Args = riverItem{item.Value}
		jobs[i].InsertOpts = &river.InsertOpts{
			Queue: r.queue, Priority: 1 + item.Priority*riverLevels/r.priorities,
		}
	}

	if len(jobs) == 1 {
		_, err := r.inserter.Insert(ctx, jobs[0].Args, jobs[0].InsertOpts)
		return err
	}
	_, err := r.inserter.InsertManyFast(ctx, jobs)
	return err
}

func (r *riverConnection) startWorker(ctx context.Context, give giver) (func() error, error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(_ context.Context, j *river.Job[riverItem]) error {
		if !give(j.Args.Value) {
			return river.JobSnooze(0)
		}
		return nil
	}))

	c, err := river.NewClient(r.driver, &river.Config{
		FetchCooldown: time.Millisecond, // the shortest
		Logger:        silent,
		Queues:        map[string]river.QueueConfig{r.queue: {MaxWorkers: r.clients}},
		Workers:       workers,
	})
	if err == nil {
		err = c.Start(context.WithoutCancel(ctx))
	}
	return func() error { return c.Stop(context.Background()) }, err
}
