package peers

import (
	"context"
	"sync"
)

// worker is a worker of a client library, which calls a function for each job. It hands the jobs to
// clients that ask for them. It runs from the first that asks until rest.
type worker struct {
	start func(ctx context.Context, give giver) (wait func() error, err error)
	jobs  chan []byte

	mu   sync.Mutex
	stop func() error // nil if it does not run
}

// giver hands a job to a client that waits for one. It returns false if the worker stops before
// that; then the queue has to get the job back.
type giver func(value []byte) bool

// newWorker returns a worker that does not run. To start it is to have the library call the giver
// for each job until the context ends; wait returns after the last call.
func newWorker(
	start func(ctx context.Context, give giver) (wait func() error, err error),
) *worker {
	return &worker{start: start, jobs: make(chan []byte)}
}

// work is Client.Work.
func (w *worker) work(ctx context.Context, _ int) ([][]byte, error) {
	if err := w.run(); err != nil {
		return nil, err
	}
	value, err := receive(ctx, w.jobs)
	return [][]byte{value}, err
}

func (w *worker) run() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stop != nil {
		return nil
	}

	ctx, cancel := context.WithCancel(context.Background())
	wait, err := w.start(ctx, func(value []byte) bool {
		select {
		case w.jobs <- value:
			return true
		case <-ctx.Done():
			return false
		}
	})
	if err != nil {
		cancel()
		return err
	}

	w.stop = func() error {
		cancel()
		return wait()
	}
	return nil
}

// rest stops the worker, so that the queue gets back what nobody has taken.
func (w *worker) rest() (err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stop != nil {
		err = w.stop()
	}
	w.stop = nil
	return err
}
