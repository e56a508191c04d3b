// Package results has the requests on one bridge that wait for outcomes of jobs.
//
// # The life of a wait
//
// [Waits.Add] enters a wait under its queue and job, and only then is the store looked at. So a job
// that ends before the look is found by it, and one that ends later is told: by the batches of this
// bridge, and by the other bridges that share the store (package peers). A tell says which job, not
// what became of it. It only makes the bridge look, so one that is late, repeated or made up does
// no harm. One that is lost is noticed, and then all waits look. See
// docs/decisions/2026-11-27-waiting-for-outcomes.md.
//
// A wait is answered once, with what the store says in a look that began after Add: as soon as
// that is an outcome, or an error such as that there is no such job; otherwise with the state in
// the look at its end. Besides, each job is looked at every lookEvery, for what no bridge tells.
//
// # Looks
//
// One goroutine looks, at up to lookPage jobs in a transaction that only reads. After each it rests
// for as long as it took, so that requests have at least half of the store. A job is looked at once
// for all who wait for it. Jobs that were told, waits that are new and waits that end come before
// those that look again because something was missed.
package results

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/internal/signal"
	"github.com/pqbridge/pqbridge/fdbpq"
)

// Config is what Waits need of their bridge, which makes it in newResults (bridge/run.go).
type Config struct {
	// Read runs operations that only read, in one transaction that conflicts with nobody, and
	// returns a result for each. What has no room (fdbpq.ErrNoRoom) is read again; the first always
	// has some.
	Read func(ctx context.Context, ops []fdbpq.Op) ([]fdbpq.Result, error)
	// Timeout limits a Read.
	Timeout time.Duration
	// Admit counts a wait, or returns why there must not be another one. Release ends the count.
	Admit   func() error
	Release func()
	// Waiting is called for each wait before its first look: from now on peers have to tell. It
	// must be quick.
	Waiting func()
	// Warn logs problems with the store. It may drop messages.
	Warn func(message string, args ...any)
}

// Wait is a request that waits for the outcome of a job.
type Wait struct {
	// Job is what the request waits for, and Queue its queue.
	Job   fdbpq.QueueJob
	Queue fdbpq.Target
	// Until is when it waits no longer. It has a monotonic reading.
	Until time.Time
	// Answer is called once, with what a look has found or with an error. Others may get the same
	// result, so it must not be changed. It must be quick.
	Answer func(r *fdbpq.Result, err error)
}

// IsOutcome reports whether the result of an OpGet, without an error, is the outcome of a job: it
// is done, or a dead letter.
func IsOutcome(r *fdbpq.Result) bool {
	return r.State == fdbpq.Done || r.Item.DeadLetter != nil
}

// Waits has the waits of one bridge. All methods are safe for concurrent use.
type Waits struct {
	config Config
	woken  chan struct{} // has an element when Run may have something to do
	page   int           // how many jobs the next look is for; only Run uses it

	mu struct {
		sync.Mutex
		jobs   map[fdbpq.QueueJob]*job
		due    [2][]*job // those that are looked at next, see urgent and again
		waits  int       // of all jobs
		closed bool
	}
}

// The lists of jobs that are due.
const (
	urgent = iota // told, new, or at an end
	again         // something was missed
)

// job is a job that somebody waits for.
type job struct {
	id    fdbpq.QueueJob
	queue fdbpq.Target
	waits []*Wait // none once it has left Waits
	state state
	seen  int         // how many of the waits, the first ones, the look in flight began after
	timer *time.Timer // wakes it when nobody else does
}

// state says whether a job is looked at.
type state int

const (
	quiet   state = iota // not before somebody wakes it
	due                  // it is in a list
	looking              // a look is in flight
	stale                // a look is in flight, and another one follows
)

// New returns Waits. They are answered while Run runs.
func New(c Config) *Waits {
	w := &Waits{config: c, woken: make(chan struct{}, 1), page: lookPage}
	w.mu.jobs = map[fdbpq.QueueJob]*job{}
	return w
}

var errClosed = fmt.Errorf("%w: the service is shutting down: try again", dispatch.ErrUnavailable)

// Add adds a wait. The error is of Config.Admit, or wraps dispatch.ErrUnavailable after Close; then
// Answer is not called.
func (w *Waits) Add(wait *Wait) error {
	if err := w.config.Admit(); err != nil {
		return err
	}
	w.config.Waiting()

	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.closed {
		w.config.Release()
		return errClosed
	}

	j := w.mu.jobs[wait.Job]
	if j == nil {
		j = &job{id: wait.Job, queue: wait.Queue}
		w.mu.jobs[wait.Job] = j
		j.timer = time.AfterFunc(lookEvery, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.wakeLocked(j, urgent)
		})
	}

	j.waits = append(j.waits, wait)
	w.mu.waits++
	w.wakeLocked(j, urgent)
	return nil
}

// Len returns how many waits there are.
func (w *Waits) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.waits
}

// Told has the waits for these jobs look: the jobs may have ended.
func (w *Waits) Told(jobs []fdbpq.QueueJob) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range jobs {
		if j := w.mu.jobs[jobs[i]]; j != nil {
			w.wakeLocked(j, urgent)
		}
	}
}

// LookAll has all waits look: any of their jobs may have ended.
func (w *Waits) LookAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, j := range w.mu.jobs {
		w.wakeLocked(j, again)
	}
}

// wakeLocked has a job looked at, by a look that begins from now on.
func (w *Waits) wakeLocked(j *job, list int) {
	switch {
	case len(j.waits) == 0: // its timer went off too late
	case j.state == looking, j.state == stale:
		j.state = stale
	case j.state == quiet, list == urgent: // if it is in the other list as well, that does no harm
		j.state = due
		w.mu.due[list] = append(w.mu.due[list], j)
		signal.To(w.woken)
	}
}

// Close answers all waits with an error that wraps dispatch.ErrUnavailable, and has Run return.
func (w *Waits) Close() {
	w.mu.Lock()
	w.mu.closed = true
	var answers []answer
	for _, j := range w.mu.jobs {
		all := func(*Wait) bool { return true }
		answers = append(answers, w.takeLocked(j, len(j.waits), all, nil, errClosed)...)
	}
	w.mu.Unlock()

	signal.To(w.woken)
	w.send(answers)
}

// answer is what a wait is answered with.
type answer struct {
	to  *Wait
	r   *fdbpq.Result
	err error
}

// takeLocked takes those of the first n waits of a job that are over, and returns the answers to
// them. A job without waits leaves.
func (w *Waits) takeLocked(
	j *job, n int, over func(*Wait) bool, r *fdbpq.Result, err error,
) (answers []answer) {
	left := j.waits[:0]
	for i, wait := range j.waits {
		if i < n && over(wait) {
			answers = append(answers, answer{wait, r, err})
		} else {
			left = append(left, wait)
		}
	}

	clear(j.waits[len(left):])
	w.mu.waits -= len(answers)
	if j.waits = left; len(left) == 0 && len(answers) > 0 {
		delete(w.mu.jobs, j.id)
		j.state = quiet
		j.timer.Stop()
	}
	return answers
}

// send sends answers.
func (w *Waits) send(answers []answer) {
	for _, a := range answers {
		w.config.Release()
		a.to.Answer(a.r, a.err)
	}
}
