package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/fdbpq/settings"
	"github.com/pqbridge/pqbridge/subjects"
)

// Job is an item that a Worker has leased.
type Job struct {
	Item
	// Queue is the name of the queue.
	Queue string
	// Deliveries is how many times the item was delivered, this time included; 0 if the message left
	// no room for that in the reply.
	Deliveries int64
}

// Work does a job. If it returns nil, the job is acknowledged. If it returns an error, that is a negative
// acknowledgement: the job comes back as the queue's backoff says or, after the last delivery that max_deliver
// allows, becomes a dead letter with the text of the error, cut at 1,024 bytes. [Snooze], [Drop] and
// [RetryAfter] return errors that do something else; they may be wrapped. A panic is an error whose text has the stack, innermost
// call first. A Work must return or panic: runtime.Goexit, as testing.T.FailNow calls it, would end the Worker's own goroutine.
//
// The context ends when the lease is lost, or may be because it could not be extended in time, so that somebody
// else may do the job already: its cause is [ErrLeaseLost]. It also ends when [Worker.Stop] is called for the second
// time: then its cause is [ErrStopped]. The job belongs to the Work.
//
// A job may be done more than once, for instance if its acknowledgement does not arrive before the lease is over. If
// that matters, have the Work note the ID of what it has done, which stays the same.
type Work func(ctx context.Context, job *Job) error

// Snooze returns an error for Work that gives the job back for that long, up to ten years, and does not count
// the delivery. 0 or less is at once.
func Snooze(delay time.Duration) error { return &snoozed{max(delay, 0)} }

type snoozed struct{ delay time.Duration }

func (s *snoozed) Error() string { return fmt.Sprintf("again in %v", s.delay) }

// Drop returns an error for Work that makes the job a dead letter, with a reason, which is cut at
// 256 bytes.
func Drop(reason string) error { return &dropped{reason} }

type dropped struct{ reason string }

func (d *dropped) Error() string { return "dropped: " + d.reason }

// Worker does the jobs of a queue. It leases them one after the other, waits while there is none,
// and rides through restarts of bridges and NATS servers. Each job is done at least once, and by one
// worker at a time as long as that extends its lease in time.
//
// The connection should reconnect indefinitely: nats.MaxReconnects(-1). Otherwise the NATS client closes
// it after two minutes without a server, and Run returns.
//
// Without Prefetch, a worker that has work to do makes one request for each job: it acknowledges the one that is done and
// leases the next. With Concurrency, jobs that end while two such requests are under way share the next one: it acknowledges
// them together and leases as many. With Prefetch, such jobs share an acknowledgement. If a bridge of an earlier version refuses that,
// each is acknowledged by itself.
type Worker struct {
	queue *queue
	verb  subjects.Verb
	o     WorkerOptions
	work  Work
	log   *slog.Logger

	jobs             context.Context // parent of those of all jobs
	stopping, killed context.Context
	stop             context.CancelFunc
	kill             context.CancelCauseFunc

	// waits has room for one: only one of those who have nothing to do waits for a job.
	waits     chan struct{}
	heartbeat time.Duration // of that wait
	shared    sharedAcks

	mu      sync.Mutex
	running bool
	err     error // why Run ends
}

// ErrStopped is the cause of the context of jobs that a second call of Worker.Stop ends.
var ErrStopped = errors.New("the worker was stopped")

// NewWorker returns a Worker of this queue, for Run. The error is [ErrBadRequest], and says of each option that is out
// of bounds what would be right.
func (q *PriorityQueue) NewWorker(work Work, o WorkerOptions) (*Worker, error) {
	verb := subjects.PopMin
	if o.Max {
		verb = subjects.PopMax
	}
	return newWorker(&q.q, verb, work, o)
}

// NewWorker returns a Worker of this queue, as PriorityQueue.NewWorker does.
func (q *Queue) NewWorker(work Work, o WorkerOptions) (*Worker, error) {
	return newWorker(&q.q, subjects.Dequeue, work, o)
}

func newWorker(q *queue, verb subjects.Verb, work Work, o WorkerOptions) (*Worker, error) {
	if _, err := q.subject(verb); err != nil {
		return nil, err
	}
	if err := o.check(verb, work); err != nil {
		return nil, err
	}
	work, err := o.wrap(work)
	if err != nil {
		return nil, err
	}
	if o.Concurrency == 0 {
		o.Concurrency = 1
	}
	w := &Worker{queue: q, verb: verb, o: o, work: work, log: o.Logger, waits: make(chan struct{}, 1), heartbeat: idleHeartbeat}
	if w.log == nil {
		w.log = slog.Default()
	}
	w.log = w.log.With("queue", q.name)
	w.stopping, w.stop = context.WithCancel(context.Background())
	w.killed, w.kill = context.WithCancelCause(context.Background())
	return w, nil
}

// Stop lets Run return once the jobs under way are done, and does not wait. The second call cancels their
// contexts; those that then return an error are given back, and the delivery does not count. While there is nothing to
// do, Run returns once the bridge has confirmed that nothing more comes, after two seconds at the latest. If Run has not begun, it
// returns at once.
func (w *Worker) Stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopping.Err() != nil {
		w.kill(ErrStopped)
	}
	w.stop()
}

// Run does jobs until Stop is called, or ctx ends, which is like the first call of Stop. The contexts
// of the jobs have the values of ctx. A worker runs once.
//
// Run returns nil then. Otherwise the error says why there is no point in going on: nats.ErrConnectionClosed or
// nats.ErrConnectionDraining; or [ErrBadRequest], if the bridge knows other bounds than this package. Everything else it
// tries again, and logs.
func (w *Worker) Run(ctx context.Context) error {
	w.mu.Lock()
	again := w.running
	w.running = true
	w.mu.Unlock()
	if again {
		return errors.New("this worker has run before")
	}
	if ctx.Err() != nil {
		w.stop() // before anything is leased
	}
	defer context.AfterFunc(ctx, w.stop)()
	if err := w.findAckWait(); err != nil {
		return err
	}
	w.shared.slow = cmp.Or(w.shared.slow, w.patience()/4)
	jobs, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer context.AfterFunc(w.killed, func() { end(context.Cause(w.killed)) })()
	w.jobs = jobs
	var all sync.WaitGroup
	if w.o.Prefetch > 0 {
		w.runPrefetched(&all)
	} else {
		for range w.o.Concurrency {
			all.Go(w.runStrictly)
		}
	}
	all.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// findAckWait asks for the length of leases unless it is given.
func (w *Worker) findAckWait() error {
	if w.o.AckWait != 0 {
		return nil
	}
	w.o.AckWait = settings.DefaultLease
	unanswered := 0
	for p := new(pause); w.stopping.Err() == nil; p.take(w.stopping) {
		ctx, cancel := context.WithTimeout(w.stopping, w.patience())
		set, err := w.queue.config(ctx, nil)
		cancel()
		switch {
		case err == nil:
			w.o.AckWait = set.LeaseWait()
			return nil
		case hopeless(err):
			return err
		case w.stopping.Err() != nil:
			return nil
		}
		w.log.Warn("cannot read the settings of the queue", "error", err)
		if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrNotSent) {
			unanswered++
		}
		if unanswered == 2 { // NATS says nothing to those who may not ask
			w.log.Warn("takes the default length of leases, since the settings of the queue cannot be read: is it allowed to?", "ack_wait", w.o.AckWait)
			return nil
		}
	}
	return nil
}

// hopeless reports whether trying again cannot help.
func hopeless(err error) bool {
	for _, end := range []error{ErrBadRequest, nats.ErrConnectionClosed, nats.ErrConnectionDraining, nats.ErrInvalidConnection} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}

// runStrictly does one job after the other. It acknowledges a job and leases the next in one request.
func (w *Worker) runStrictly() {
	var l *lease
	for {
		if l == nil {
			list := w.lease(1)
			if len(list) == 0 {
				return
			}
			l = list[0]
		}
		if w.stopping.Err() != nil {
			w.giveBack(l)
			return
		}
		l = w.finish(l, w.call(l), true)
	}
}

// fail ends the worker because of an error that will not go away.
func (w *Worker) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	w.stop()
}

// runPrefetched leases jobs ahead of those who do them.
func (w *Worker) runPrefetched(all *sync.WaitGroup) {
	room := make(chan struct{}, w.o.Concurrency+w.o.Prefetch)
	leased := make(chan *lease, cap(room))
	all.Go(func() {
		defer close(leased)
		for w.stopping.Err() == nil {
			select {
			case room <- struct{}{}:
			case <-w.stopping.Done():
				return
			}
			n := 1
			for ; n < cap(room) && len(room) < cap(room); n++ {
				room <- struct{}{} // nobody else adds any
			}
			list := w.lease(n)
			for _, l := range list {
				leased <- l
			}
			for range n - len(list) {
				<-room
			}
		}
	})
	for range w.o.Concurrency {
		all.Go(func() {
			for l := range leased {
				if w.stopping.Err() != nil || l.ctx.Err() != nil { // or it has waited for too long
					all.Go(func() { // all at once, since each may take long if NATS is away
						w.giveBack(l)
						<-room
					})
					continue
				}
				err := w.call(l)
				all.Go(func() { // while the next one is done
					w.finish(l, err, false)
					<-room
				})
			}
		})
	}
}

// pause is the time between attempts. It grows.
type pause struct{ last time.Duration }

const (
	firstPause   = 50 * time.Millisecond
	longestPause = 2 * time.Second
)

// take waits until the time is over or ctx ends.
func (p *pause) take(ctx context.Context) {
	p.last = min(max(2*p.last, firstPause), longestPause)
	timer := time.NewTimer(p.last)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
