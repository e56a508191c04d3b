package load

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/pqbridge/pqbridge/client"
)

// Run puts the load on the queues and returns what it measured. If ctx ends early,
// Run finishes the requests under way and returns what it has measured so far.
// Mixed then removes as many items as it has left in each queue. If that fails, or
// some requests had an unknown outcome, Run returns both a report and an error.
//
// Errors: any from Options.Validate and Dial, a queue with items of other programs, and requests
// that would fail every time. The report counts requests refused because of overload or because the
// store was unavailable.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}

	if o.FIFO {
		o.Priorities = 1
	}

	r := &run{Options: o, shares: o.shares(), value: value(o.Size), ops: map[string]*measured{}}
	for _, name := range o.operations() {
		latency := hdrhistogram.New(int64(time.Microsecond), int64(time.Minute), 3)
		r.ops[name] = &measured{latency: latency}
	}

	if o.Rate > 0 {
		r.limiter = rate.NewLimiter(rate.Limit(o.Rate), o.Batch)
	}

	var clients []*client.Client
	for range o.Connections {
		nc, err := o.Dial()
		if err != nil {
			return nil, err
		}
		defer nc.Close()
		clients = append(clients,
			client.New(nc, client.WithGrammar(o.Grammar), client.WithTimeout(o.Timeout)))
	}

	if err := r.check(ctx, clients[0]); err != nil {
		return nil, err
	}

	failed := r.clients(ctx, clients)
	left := r.clear(context.WithoutCancel(ctx), clients[0])
	if failed != nil {
		return nil, errors.Join(failed, left)
	}
	return r.report(), left
}

// run is one load.
type run struct {
	Options
	shares  []*share      // a queue each
	value   []byte        // of all items
	limiter *rate.Limiter // nil without a limit
	begun   time.Time

	asked, answered atomic.Int64 // items
	turns           atomic.Int64 // of queues
	dried           atomic.Int64 // queues that were empty

	mu      sync.Mutex
	elapsed time.Duration // until the last answer
	ops     map[string]*measured
}

// measured is the result of one operation.
type measured struct {
	latency *hdrhistogram.Histogram // nanoseconds, of requests that succeeded
	items   int64
	errors  int64
}

// clients runs the clients until the load is over.
func (r *run) clients(ctx context.Context, clients []*client.Client) error {
	r.begun = time.Now()

	ctx, end := context.WithCancel(ctx)
	defer end()
	if r.Duration > 0 {
		defer time.AfterFunc(r.Duration, end).Stop()
	}

	running, ended := errgroup.WithContext(ctx)
	start := func(client func() error) {
		running.Go(func() error {
			err := client()
			if r.dry() || r.Mode == Work { // the others would wait for items
				end()
			}
			return err
		})
	}

	if r.Mode == Work {
		for i, c := range clients {
			jobs := (r.Clients + len(clients) - 1 - i) / len(clients)
			start(func() error { return r.work(ended, r.open(c, 0), jobs) })
		}
		return running.Wait()
	}

	for i := range r.Clients {
		start(func() error { return r.client(ended, clients[i%len(clients)]) })
	}
	return running.Wait()
}

// client makes one request after another until ended ends. It finishes the request
// under way: that has a context of its own.
func (r *run) client(ended context.Context, c *client.Client) error {
	names, again := r.operations(), false
	var q queue
	for i := 0; !r.dry() && (again && ended.Err() == nil || r.next(ended)); i++ {
		if i%len(names) == 0 { // what Mixed pushes to a queue it leases there
			q = r.open(c, r.turn())
		}
		err := r.request(context.WithoutCancel(ended), q, names[i%len(names)])
		again = errors.Is(err, errDry) // another queue may have items

		switch {
		case again:
		case passes(err):
			if r.Mode == Mixed && names[i%2] == opPush {
				i-- // a lease would take an item that was there before
			}
			time.Sleep(20 * time.Millisecond)
		case err != nil:
			return err
		}
	}

	return nil
}

// next waits until the next request is due, and returns false after the last.
func (r *run) next(ended context.Context) bool {
	n := r.Batch
	if ended.Err() != nil || r.Count > 0 && r.asked.Add(int64(n)) > r.Count+int64(n)-1 {
		return false
	}
	return r.limiter == nil || r.limiter.WaitN(ended, n) == nil
}

// passes reports whether the same request may succeed later.
func passes(err error) bool {
	return errors.Is(err, client.ErrOverloaded) || errors.Is(err, client.ErrUnavailable) ||
		errors.Is(err, client.ErrUnknownOutcome)
}

// note counts a request.
func (r *run) note(name string, items int, sent, replied time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.elapsed = max(r.elapsed, replied)
	m := r.ops[name]
	if err == nil {
		r.answered.Add(int64(items))
		m.items += int64(items)
		_ = m.latency.RecordValue(int64(min(replied-sent, time.Minute))) // more it has no room for
	} else {
		m.errors++
	}
}
