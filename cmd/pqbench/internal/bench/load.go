package bench

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// grace limits how long a reply may take.
const grace = 15 * time.Second

// limit ends a run after a number of steps or a time, whichever comes first. Zero means no
// such limit.
type limit struct {
	steps    int
	duration time.Duration
}

// load is a closed loop of clients: each does a step, which takes one reply or more, and then
// the next. How clients do that is up to their connection.
type load struct {
	conns []conn
}

// conn is the clients of one connection.
type conn interface {
	// run does the steps of all its clients until next returns no more.
	run(ctx context.Context, r *loadRun)
	close()
}

// loadRun is one run of the load.
type loadRun struct {
	steps   []step
	limit   limit
	start   time.Time
	started atomic.Int64 // number of the next step
	dry     atomic.Bool  // a queue was empty
	stopped atomic.Bool  // no more steps

	mu struct {
		sync.Mutex
		err error
		out outcome
	}
}

// outcome is the result of a run.
type outcome struct {
	items   int64                   // completed; without items, the good steps
	elapsed time.Duration           // until the last good step was done
	latency *hdrhistogram.Histogram // of the steps, in nanoseconds
	dry     bool                    // a queue was empty
}

// newOutcome records latencies from a microsecond to a minute, to three digits.
func newOutcome() outcome {
	return outcome{latency: hdrhistogram.New(int64(time.Microsecond), int64(time.Minute), 3)}
}

// note adds a good step.
func (o *outcome) note(items int, sent, now time.Duration) {
	o.items += int64(items)
	o.elapsed = now
	_ = o.latency.RecordValue(int64(now - sent)) // fails only above a minute, and requests time out before that
}

// append adds the outcome of a later run.
func (o *outcome) append(later outcome) {
	o.items += later.items
	o.elapsed += later.elapsed
	o.latency.Merge(later.latency)
	o.dry = o.dry || later.dry
}

// rate is in items per second.
func (o *outcome) rate() float64 {
	if o.elapsed <= 0 {
		return 0
	}
	return float64(o.items) / o.elapsed.Seconds()
}

// newLoad connects the clients. With lean they are those of leanConn.
func newLoad(dial func() (*nats.Conn, error), clients, connections int, lean bool) (*load, error) {
	return newLoadOf(dial, clients, connections, func(nc *nats.Conn, clients int) (conn, error) {
		if lean {
			return newLeanConn(nc, clients)
		}
		return &requestConn{nc, clients}, nil
	})
}

// newLoadOf connects clients, which share the connections evenly.
func newLoadOf(dial func() (*nats.Conn, error), clients, connections int, newConn func(nc *nats.Conn, clients int) (conn, error)) (*load, error) {
	l := &load{}
	for i := range connections {
		nc, err := dial()
		if err != nil {
			l.close()
			return nil, err
		}
		share := clients / connections
		if i < clients%connections {
			share++
		}
		c, err := newConn(nc, share)
		if err != nil {
			nc.Close()
			l.close()
			return nil, err
		}
		l.conns = append(l.conns, c)
	}
	return l, nil
}

func (l *load) close() {
	for _, c := range l.conns {
		c.close()
	}
}

// run repeats the steps until lim is reached or a queue is empty, whichever client does them.
// When ctx ends the load is closed.
func (l *load) run(ctx context.Context, steps []step, lim limit) (outcome, error) {
	r := &loadRun{steps: steps, limit: lim, start: time.Now()}
	r.mu.out = newOutcome()
	// Closing the connections ends requests that wait for a reply.
	defer context.AfterFunc(ctx, l.close)()
	var running sync.WaitGroup
	for _, c := range l.conns {
		running.Go(func() { c.run(ctx, r) })
	}
	running.Wait()
	if ctx.Err() != nil {
		return outcome{}, context.Cause(ctx)
	}
	r.mu.out.dry = r.dry.Load()
	return r.mu.out, r.mu.err
}

// next returns the next step to do, or false if there is none.
func (r *loadRun) next(now time.Duration) (step, bool) {
	if r.stopped.Load() || r.limit.duration > 0 && now >= r.limit.duration {
		return step{}, false
	}
	number := int(r.started.Add(1) - 1)
	if r.limit.steps > 0 && number >= r.limit.steps {
		return step{}, false
	}
	return r.steps[number%len(r.steps)], true
}

// good reports whether a step went well. Any other ends the run.
func (r *loadRun) good(err error) bool {
	switch {
	case errors.Is(err, ErrEmpty):
		r.dry.Store(true)
		r.stopped.Store(true)
	case err != nil:
		r.fail(err)
	}
	return err == nil
}

// fail ends the run with err, unless it already has an error.
func (r *loadRun) fail(err error) {
	r.stopped.Store(true)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.err == nil {
		r.mu.err = err
	}
}

// add adds the outcome of some clients.
func (r *loadRun) add(o outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.out.items += o.items
	r.mu.out.elapsed = max(r.mu.out.elapsed, o.elapsed)
	r.mu.out.latency.Merge(o.latency)
}

// ErrEmpty ends a turn early: there is nothing to pop.
var ErrEmpty = errors.New("the queue is empty")

// replyError returns the error that a reply carries, or nil.
func replyError(m *nats.Msg) error {
	if len(m.Header) == 0 {
		return nil
	}
	switch failure := subjects.ErrorFromHeaders(m.Header); {
	case failure == nil:
		if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
			return nats.ErrNoResponders
		}
		return nil
	case failure.Code == subjects.CodeNotFound:
		return ErrEmpty
	default:
		return failure
	}
}
