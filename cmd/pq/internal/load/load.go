package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/time/rate"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/target"
)

const (
	// progressEvery is the time between two reports of progress.
	progressEvery = 200 * time.Millisecond
	// pause is how long a client waits after an error that may pass.
	pause = 20 * time.Millisecond
)

// Run puts the load on the queue and returns what it measured. If ctx ends early,
// Run finishes the requests under way and returns what it has measured so far.
//
// Errors: those of Options.Validate and Dial, a queue with items of other
// programs, and requests that would fail every time. The report counts requests
// refused because of overload or because the store was unavailable.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}

	if o.FIFO {
		o.Priorities = 1
	}
	r := &run{Options: o, name: newRun(), ops: map[string]*measured{}}
	for _, name := range []string{opPush, opPop} {
		r.ops[name] = &measured{latency: hdrhistogram.New(int64(time.Microsecond), int64(time.Minute), 3)}
	}
	if o.Rate > 0 {
		r.limiter = rate.NewLimiter(rate.Limit(o.Rate), 1)
	}

	var targets []target.Queue
	for range o.Connections {
		nc, err := o.Dial()
		if err != nil {
			return nil, err
		}
		defer nc.Close()
		targets = append(targets, target.New(client.New(nc, client.WithGrammar(o.Grammar)), o.FIFO, o.Queue))
	}

	if err := o.check(ctx, targets[0]); err != nil {
		return nil, fmt.Errorf("queue %s: %w", o.Queue, err)
	}
	if err := r.clients(ctx, targets); err != nil {
		return nil, err
	}

	report := r.report()
	if o.Verify {
		// Also after an interrupt: what was pushed must not stay behind.
		if err := r.drain(context.WithoutCancel(ctx), targets[0]); err != nil {
			return nil, err
		}
		report.Verify = r.events.verify()
	}
	return report, nil
}

// Names of the operations.
const (
	opPush = "push"
	opPop  = "pop"
)

// run is one load.
type run struct {
	Options
	name    string
	limiter *rate.Limiter // nil without a limit
	begun   time.Time

	asked, answered atomic.Int64
	pushed          atomic.Int64 // number of the last item
	dry             atomic.Bool  // the queue was empty
	elapsed         time.Duration

	mu     sync.Mutex
	ops    map[string]*measured
	events events
}

// measured is the result of one operation.
type measured struct {
	latency *hdrhistogram.Histogram // nanoseconds, of requests that succeeded
	errors  int64
}

// clients runs the clients until the load is over.
func (r *run) clients(ctx context.Context, targets []target.Queue) error {
	r.begun = time.Now()

	ended, cancel := context.WithCancel(ctx)
	defer cancel()
	if r.Duration > 0 {
		timer := time.AfterFunc(r.Duration, cancel)
		defer timer.Stop()
	}

	var running sync.WaitGroup
	failures := make(chan error, r.Clients)
	for i := range r.Clients {
		q := targets[i%len(targets)]
		running.Go(func() {
			if err := r.client(ended, q); err != nil {
				failures <- err
				cancel()
			}
			if r.dry.Load() {
				cancel()
			}
		})
	}

	stop := make(chan struct{})
	var reporting sync.WaitGroup
	if r.Progress != nil {
		reporting.Go(func() { r.reportProgress(stop) })
	}

	running.Wait()
	r.elapsed = time.Since(r.begun)
	close(stop)
	reporting.Wait()
	close(failures)
	return <-failures // the first, or nil
}

func (r *run) reportProgress(stop <-chan struct{}) {
	ticker := time.NewTicker(progressEvery)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticker.C:
			r.Progress(r.answered.Load(), time.Since(r.begun))
		}
	}
}

// client makes one request after another until ended ends. It finishes the request
// under way: that has a context of its own.
func (r *run) client(ended context.Context, q target.Queue) error {
	pushes := r.Mode != Pop
	for r.next(ended) {
		err := r.request(context.WithoutCancel(ended), q, pushes)
		switch {
		case passes(err):
			rest(ended)
		case err != nil:
			return err
		}

		if r.dry.Load() {
			return nil
		}
		if r.Mode == Mixed {
			pushes = !pushes
		}
	}
	return nil
}

// next waits until the next request is due, and returns false after the last.
func (r *run) next(ended context.Context) bool {
	if ended.Err() != nil || r.Count > 0 && r.asked.Add(1) > r.Count {
		return false
	}
	return r.limiter == nil || r.limiter.Wait(ended) == nil
}

func (r *run) request(ctx context.Context, q target.Queue, pushes bool) error {
	e := event{sent: time.Since(r.begun)}
	var err error
	name := opPop
	if pushes {
		name = opPush
		e.number = r.pushed.Add(1)
		e.priority = e.number % int64(r.Priorities)
		_, err = q.Push(ctx, e.priority, client.Message{Value: value(r.name, e.number, r.size())})
	} else {
		e.number, e.priority, err = r.popOwn(ctx, q)
	}

	e.replied = time.Since(r.begun)
	if errors.Is(err, client.ErrEmpty) {
		if r.Mode == Pop {
			r.dry.Store(true)
		}
		return nil
	}

	r.answered.Add(1)
	r.note(name, e, err)
	return err
}

// passes reports whether the same request may succeed later.
func passes(err error) bool {
	return errors.Is(err, client.ErrOverloaded) || errors.Is(err, client.ErrUnavailable) || errors.Is(err, client.ErrUnknownOutcome)
}

// rest waits before a client tries again.
func rest(ended context.Context) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ended.Done():
	}
}

func (r *run) size() int { return r.MinSize + rand.IntN(r.MaxSize-r.MinSize+1) }

// popOwn pops an item of this run; with the mode Pop, one of any run.
func (r *run) popOwn(ctx context.Context, q target.Queue) (number, priority int64, err error) {
	item, err := q.Pop(ctx, false)
	if err != nil {
		return 0, 0, err
	}

	name, number, err := parse(item.Value)
	if err == nil && r.Verify && name != r.name {
		err = errForeign
	}

	if err != nil {
		if _, back := q.Push(ctx, item.Priority, item.Message); back != nil {
			err = fmt.Errorf("%w: item %s could not be put back: %w", err, item.ID, back)
		}
		return 0, 0, err
	}
	return number, item.Priority, nil
}

// note counts a request.
func (r *run) note(name string, e event, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	m := r.ops[name]
	unknown := errors.Is(err, client.ErrUnknownOutcome)
	if err == nil {
		_ = m.latency.RecordValue(int64(e.replied - e.sent)) // a minute at most: requests end before
	}
	if r.Verify && (err == nil || unknown) {
		e.unknown = unknown
		r.events.add(name, e)
	}
	if err != nil {
		m.errors++
	}
}

// drain pops what is left, one item at a time.
func (r *run) drain(ctx context.Context, q target.Queue) error {
	for {
		e := event{sent: time.Since(r.begun)}
		var err error
		e.number, e.priority, err = r.popOwn(ctx, q)
		e.replied = time.Since(r.begun)

		if errors.Is(err, client.ErrEmpty) {
			return nil
		}

		e.unknown = errors.Is(err, client.ErrUnknownOutcome)
		switch {
		case err == nil || e.unknown:
			r.events.add(opPop, e)
		case passes(err):
			rest(ctx)
		default:
			return err
		}
	}
}
