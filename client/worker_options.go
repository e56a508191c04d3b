package client

import (
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/settings"
	"github.com/pqbridge/pqbridge/subjects"
)

// WorkerOptions are the options of a Worker. The zero value is ready to use.
type WorkerOptions struct {
	// Concurrency is the number of jobs that are done at the same time, up to 100,000 together with
	// Prefetch; 0 means 1.
	Concurrency int

	// Prefetch is how many jobs are leased beyond those that are being done: before there is
	// somebody to do them, or while they are acknowledged. That hides the time that requests take,
	// but a more urgent job may be pushed meanwhile, or another worker idle. 0, the default, keeps
	// the order strict.
	Prefetch int

	// AckWait is the length of a lease, 100 ms to 12 h. The worker extends it whenever a third of it
	// is over, so a job may take as long as it wants, and others get the job of a worker that has
	// died after this time. 0 means as the settings of the queue say when Run begins, or 30 s if
	// they do not. Set it if this connection may not read them (pq.<name>.info): otherwise Run waits
	// for two requests to time out, and takes 30 s.
	AckWait time.Duration

	// Holder is the name that the leases are taken with, which pq busy and the dashboard show: up to
	// 128 bytes of UTF-8 without control characters. "" means DefaultHolder.
	Holder Holder

	// JobTimeout is how long a job may take. Then the context of its Work ends: its cause is
	// [ErrTimedOut], and its Deadline says so in advance. If the Work returns an error after that, the
	// job failed because it "timed out", which is the reason that is noted. If it returns nil, however
	// late, the job is done. The lease is not extended after the timeout, so if the Work does not
	// return, others get the job at most one AckWait later; jobs that were leased ahead still wait for
	// it. 0 means no limit.
	JobTimeout time.Duration

	// Max takes the jobs from the other end of a priority queue. A FIFO queue has none.
	Max bool

	// Middleware wraps the Work; the first is outermost.
	Middleware []func(Work) Work

	// Logger gets what goes wrong; nil means slog.Default().
	Logger *slog.Logger
}

// maxHeldJobs bounds what one worker leases.
const maxHeldJobs = 100_000

// check returns an error that lists all that is wrong with the options for a queue of this kind.
func (o *WorkerOptions) check(kind subjects.Kind, work Work) error {
	var problems []string
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }

	if work == nil {
		add("the Work is nil: want a function")
	}
	if o.Concurrency < 0 {
		add("Concurrency is %d: want 1 or more, or 0 for 1", o.Concurrency)
	}
	if o.Prefetch < 0 {
		add("Prefetch is %d: want 0 or more", o.Prefetch)
	}
	if o.Concurrency > maxHeldJobs || o.Prefetch > maxHeldJobs-max(o.Concurrency, 1) {
		add("Concurrency %d and Prefetch %d: want at most %d together", o.Concurrency, o.Prefetch, maxHeldJobs)
	}
	if o.AckWait != 0 && (o.AckWait < subjects.MinAckWait || o.AckWait > subjects.MaxAckWait) {
		add("AckWait is %v: want %v to %v, or 0 for what the settings of the queue say", o.AckWait, subjects.MinAckWait, subjects.MaxAckWait)
	}
	if err := settings.CheckHolder(string(o.Holder)); err != nil {
		add("Holder: %v", err)
	}
	if o.JobTimeout < 0 {
		add("JobTimeout is %v: want more than 0, or 0 for none", o.JobTimeout)
	}
	if o.Max && kind == subjects.FIFO {
		add("Max with a FIFO queue, which is served from one end: want false, or a priority queue")
	}
	for i, wrap := range o.Middleware {
		if wrap == nil {
			add("Middleware[%d] is nil: want a function", i)
		}
	}
	return badOptions(problems)
}

// wrap returns the Work with its middleware around it.
func (o *WorkerOptions) wrap(work Work) (Work, error) {
	for i, wrap := range slices.Backward(o.Middleware) {
		if work = wrap(work); work == nil {
			return nil, badRequest("Middleware[%d] returned nil: want a function", i)
		}
	}
	return work, nil
}
