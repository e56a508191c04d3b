package bench

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// grace limits how long a reply may take.
const grace = 15 * time.Second

// ErrEmpty ends a turn early: there is nothing to pop.
var ErrEmpty = errors.New("the queue is empty")

// limit ends a turn after a number of steps or a time, whichever comes first. Zero means no
// such limit.
type limit struct {
	steps    int
	duration time.Duration
}

// load is a closed loop of clients: each does a step, and then the next.
type load interface {
	// run returns when the turn is over and no step is under way.
	run(ctx context.Context, t *turn)
}

// actor is one client of a load.
type actor struct {
	// do does step n of the turn, and returns how many items that completed.
	do func(ctx context.Context, n int) (items int, err error)
	// end, if not nil, gives back at the end of a turn what the client still has.
	end func(ctx context.Context) error
}

// actors is a load with a goroutine for each client, as in an ordinary program.
type actors []actor

func (a actors) run(ctx context.Context, t *turn) {
	var running sync.WaitGroup
	for _, client := range a {
		running.Go(func() { t.loop(ctx, client) })
	}
	running.Wait()
}

// turn is one run of a load.
type turn struct {
	limit   limit
	start   time.Time
	started atomic.Int64 // number of the next step
	stopped atomic.Bool  // no more steps

	mu  sync.Mutex
	out outcome
	err error
}

// runLoad has the clients do steps until lim is reached or a queue is empty.
func runLoad(ctx context.Context, l load, lim limit) (outcome, error) {
	t := &turn{limit: lim, start: time.Now(), out: newOutcome()}
	l.run(ctx, t)

	if ctx.Err() != nil {
		return outcome{}, context.Cause(ctx)
	}
	return t.out, t.err
}

// loop does the steps of one client: at least one, however late it gets to run, so that there is
// something to measure.
func (t *turn) loop(ctx context.Context, client actor) {
	var now time.Duration
	for ctx.Err() == nil {
		n, more := t.next(now)
		if !more {
			break
		}
		began := time.Since(t.start)
		items, err := client.do(ctx, n)
		now = time.Since(t.start)
		if t.good(err) {
			t.note(items, began, now)
		}
	}

	if client.end != nil {
		t.good(client.end(ctx))
	}
}

// next returns the number of the next step, or false if there is none.
func (t *turn) next(now time.Duration) (int, bool) {
	if t.stopped.Load() || t.limit.duration > 0 && now >= t.limit.duration {
		return 0, false
	}
	n := int(t.started.Add(1) - 1)
	return n, t.limit.steps == 0 || n < t.limit.steps
}

// good reports whether a step went well. Any other ends the turn.
func (t *turn) good(err error) bool {
	if err == nil {
		return true
	}
	t.stopped.Store(true)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case errors.Is(err, ErrEmpty):
		t.out.dry = true
	case t.err == nil:
		t.err = err
	}
	return false
}

// note adds a step that went well.
func (t *turn) note(items int, began, now time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.out.items += int64(items)
	t.out.elapsed = max(t.out.elapsed, now)
	_ = t.out.latency.RecordValue(int64(now - began)) // fails above a minute: requests end before that
}

// outcome is the result of one turn, or of several.
type outcome struct {
	items   int64                   // completed
	elapsed time.Duration           // until the last step was done
	latency *hdrhistogram.Histogram // of the steps, in nanoseconds
	dry     bool                    // a queue was empty
}

// newOutcome records latencies from a microsecond to a minute, to three digits.
func newOutcome() outcome {
	return outcome{latency: hdrhistogram.New(int64(time.Microsecond), int64(time.Minute), 3)}
}

// append adds the outcome of a later turn.
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
