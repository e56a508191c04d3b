package client

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/subjects"
)

// Worker does the jobs of a queue. It leases them one after the other, waits while there is none,
// and rides through restarts of bridges and NATS servers. Each job is done at least once, and by
// one worker at a time as long as that extends its lease in time.
//
// The connection should reconnect indefinitely: nats.MaxReconnects(-1). Otherwise the NATS client
// closes it after two minutes without a server, and Run returns.
//
// Without Prefetch, a worker that has work to do makes one request for each job: it acknowledges
// the one that is done and leases the next. With Concurrency, jobs that end while two such requests
// are under way share the next one: it acknowledges them together and leases as many. With
// Prefetch, such jobs share an acknowledgement.
type Worker struct {
	queue *handle
	verb  subjects.Verb // that leases
	o     WorkerOptions
	work  Work
	log   *slog.Logger

	jobs             context.Context // parent of the contexts of jobs
	stopping, killed context.Context // end with the first and the second call of Stop
	stop             context.CancelFunc
	kill             context.CancelCauseFunc

	// waits has room for one: of those who have nothing to do, only one waits for a job.
	waits     chan struct{}
	heartbeat time.Duration // of that wait
	acks      sharedAcks

	mu      sync.Mutex
	running bool
	err     error // why Run ends
}

// ErrStopped is the cause of the context of jobs that a second call of Worker.Stop ends.
var ErrStopped = errors.New("the worker was stopped")

// idleHeartbeat is how often the bridge confirms that a worker waits. A worker that hears nothing
// for twice that long gives the request up.
const idleHeartbeat = 5 * time.Second

// NewWorker returns a Worker of this queue, for Run. The error is [ErrBadRequest], and says of each
// option that is out of bounds what would be right.
func (q *handle) NewWorker(work Work, o WorkerOptions) (*Worker, error) {
	if _, err := q.subject(q.popVerb()); err != nil {
		return nil, err
	}
	if err := o.check(q.kind, work); err != nil {
		return nil, err
	}
	work, err := o.wrap(work)
	if err != nil {
		return nil, err
	}

	o.Concurrency = cmp.Or(o.Concurrency, 1)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	w := &Worker{
		queue:     q,
		verb:      q.popVerb(),
		o:         o,
		work:      work,
		log:       o.Logger.With("queue", q.name),
		waits:     make(chan struct{}, 1),
		heartbeat: idleHeartbeat,
	}
	if o.Max {
		w.verb = subjects.PopMax
	}
	w.stopping, w.stop = context.WithCancel(context.Background())
	w.killed, w.kill = context.WithCancelCause(context.Background())
	return w, nil
}

// Stop lets Run return once the jobs under way are done, and does not wait. The second call cancels
// their contexts; those that then return an error are given back, and the delivery does not count.
// While there is nothing to do, Run returns once the bridge has confirmed that nothing more comes,
// after two seconds at the latest. If Run has not begun, it returns at once.
func (w *Worker) Stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopping.Err() != nil {
		w.kill(ErrStopped)
	}
	w.stop()
}

// fail stops the worker because of an error that will not go away.
func (w *Worker) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	w.stop()
}

// patience is how long to wait for the answer to an acknowledgement: so that there is time for
// another one before the lease is over, but not so short that a slow answer counts as lost. The job
// that comes with it would then be leased to nobody, and that delivery counts.
func (w *Worker) patience() time.Duration {
	return min(max(w.o.AckWait/3, lateReply), w.queue.client.timeout)
}
