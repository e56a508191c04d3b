package client

import (
	"log/slog"
	"time"

	"github.com/pqbridge/pqbridge/subjects/settings"
)

// WorkerOptions are the options of a [Worker]. The zero value is ready to use.
type WorkerOptions struct {
	// Concurrency is the number of jobs done at the same time, up to 100,000; 0 means 1.
	Concurrency int

	// AckWait is the length of a lease, 100 ms to 12 h. The worker extends a lease whenever a third
	// of it has passed, so a job may take as long as it needs. If the worker dies, others get its
	// jobs after this time. 0 means the setting of the queue, or 30 s if it has none.
	AckWait time.Duration

	// Holder is the name that the leases are taken with: up to 128 bytes of UTF-8 without control
	// characters. "" means DefaultHolder.
	Holder string

	// JobTimeout is how long a job may take; 0 means no limit. After that, the context of its Work
	// ends with the cause [ErrTimedOut]; its Deadline says so in advance. If Work then returns an
	// error, the job fails with the reason "timed out". If it returns nil, however late, the job is
	// done. After the timeout only Job.Progress extends the lease. So if Work hangs, others get the
	// job at most one AckWait later.
	JobTimeout time.Duration

	// RetryDelay is after how long a job that failed comes back, if its queue has no backoff: after
	// the first delivery, and twice as long after each further one, up to a minute or RetryDelay
	// itself, whichever is longer. 0 means 1 s; the most is ten years. Below 0, it is at once.
	RetryDelay time.Duration

	// Max takes the jobs with the largest priority first. FIFO queues do not have it.
	Max bool

	// Middleware wraps the Work; the first is outermost.
	Middleware []func(Work) Work

	// Logger logs what goes wrong; nil means slog.Default(). It gets a line for each job that
	// fails, is dropped or timed out, and for each that the worker loses or cannot settle. What the
	// worker tries again, such as to extend a lease, to lease a job or to settle one, it logs at
	// most once a minute for each of these and each queue.
	Logger *slog.Logger
}

// defaultRetryDelay keeps a job that fails at once from being delivered a hundred times a second.
const defaultRetryDelay = time.Second

// maxConcurrency is the most jobs that one worker does at a time.
const maxConcurrency = 100_000

// check adds the problems of the options that do not depend on the queues.
func (o *WorkerOptions) check(wrong *problems, work Work) {
	if work == nil {
		wrong.add("the Work is nil: want a function")
	}
	if o.Concurrency < 0 || o.Concurrency > maxConcurrency {
		wrong.add("Concurrency is %d: want 1 to %d, or 0 for 1", o.Concurrency, maxConcurrency)
	}
	if o.AckWait != 0 && (o.AckWait < settings.MinLease || o.AckWait > settings.MaxLease) {
		wrong.add("AckWait is %v: want %v to %v, or 0 for what the settings of the queue say",
			o.AckWait, settings.MinLease, settings.MaxLease)
	}
	if err := settings.CheckHolder(o.Holder); err != nil {
		wrong.add("Holder: %v", err)
	}
	if o.RetryDelay > settings.MaxDelay {
		wrong.add("RetryDelay is %v: want up to %v, 0 for %v, or less than 0 for at once",
			o.RetryDelay, settings.MaxDelay, defaultRetryDelay)
	}
	if o.JobTimeout < 0 {
		wrong.add("JobTimeout is %v: want more than 0, or 0 for none", o.JobTimeout)
	}

	for i, wrap := range o.Middleware {
		if wrap == nil {
			wrong.add("Middleware[%d] is nil: want a function", i)
		}
	}
}
