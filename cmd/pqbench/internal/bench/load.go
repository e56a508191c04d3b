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

// step is one request of a load.
type step struct {
	subject string
	payload []byte
}

// limit ends a run after a number of requests or a time, whichever comes first. Zero
// means no such limit.
type limit struct {
	requests int
	duration time.Duration
}

// load is a closed loop of clients: each sends a request, waits for the reply and sends
// the next. How clients do that is up to their connection.
type load struct {
	conns []conn
}

// conn is the clients of one connection.
type conn interface {
	// run sends the requests of all its clients until next returns no more.
	run(ctx context.Context, r *loadRun)
	close()
}

// loadRun is one run of the load.
type loadRun struct {
	steps []step
	limit
	start   time.Time
	started atomic.Int64 // number of the next request
	dry     atomic.Bool  // a queue was empty
	stopped atomic.Bool  // no more requests

	mu struct {
		sync.Mutex
		err error
		out outcome
	}
}

// outcome is the result of a run.
type outcome struct {
	requests int64
	elapsed  time.Duration           // until the last good reply
	latency  *hdrhistogram.Histogram // nanoseconds
	dry      bool                    // a queue was empty
}

// newOutcome records latencies from a microsecond to a minute, to three digits.
func newOutcome() outcome {
	return outcome{latency: hdrhistogram.New(int64(time.Microsecond), int64(time.Minute), 3)}
}

// note adds a good reply to a request.
func (o *outcome) note(sent, now time.Duration) {
	o.requests++
	o.elapsed = now
	_ = o.latency.RecordValue(int64(now - sent)) // fails only above a minute, and requests time out before that
}

// append adds the outcome of a later run.
func (o *outcome) append(later outcome) {
	o.requests += later.requests
	o.elapsed += later.elapsed
	o.latency.Merge(later.latency)
	o.dry = o.dry || later.dry
}

// rate is in requests per second.
func (o *outcome) rate() float64 {
	if o.elapsed <= 0 {
		return 0
	}
	return float64(o.requests) / o.elapsed.Seconds()
}

// newLoad connects the clients. With lean they are those of leanConn.
func newLoad(dial func() (*nats.Conn, error), clients, connections int, lean bool) (*load, error) {
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
		if !lean {
			l.conns = append(l.conns, &requestConn{nc, share})
			continue
		}
		c, err := newLeanConn(nc, share)
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

// run repeats the steps until lim is reached or a queue is empty. Request number k is
// step k modulo their number, whichever client sends it. When ctx ends the load is closed.
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

// next returns the next request to send, or false if there is none.
func (r *loadRun) next(now time.Duration) (step, bool) {
	if r.stopped.Load() || r.duration > 0 && now >= r.duration {
		return step{}, false
	}
	number := int(r.started.Add(1) - 1)
	if r.requests > 0 && number >= r.requests {
		return step{}, false
	}
	return r.steps[number%len(r.steps)], true
}

// replied reports whether a reply is good. Any other reply ends the run.
func (r *loadRun) replied(m *nats.Msg) bool {
	err := replyError(m)
	switch {
	case errors.Is(err, errEmpty):
		r.ranDry()
	case err != nil:
		r.fail(err)
	}
	return err == nil
}

// ranDry ends the run because a queue is empty.
func (r *loadRun) ranDry() {
	r.dry.Store(true)
	r.stopped.Store(true)
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
	r.mu.out.requests += o.requests
	r.mu.out.elapsed = max(r.mu.out.elapsed, o.elapsed)
	r.mu.out.latency.Merge(o.latency)
}

var errEmpty = errors.New("the queue is empty")

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
		return errEmpty
	default:
		return failure
	}
}
