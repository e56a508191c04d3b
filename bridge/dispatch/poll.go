package dispatch

import (
	"context"
	"errors"
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// poll looks every PollEvery at queues where requests wait, until ctx ends, for the sake of programs
// that write to the store and call no Wake.
func (d *Dispatcher) poll(ctx context.Context) {
	for pause(ctx, d.options.PollEvery) {
		for _, l := range d.lanes {
			d.pollLane(ctx, l)
		}
	}
}

// pollLane looks at the queues of one lane. Errors do not matter: the next round comes soon.
func (d *Dispatcher) pollLane(ctx context.Context, l *lane) {
	for page := range slices.Chunk(l.takeQuiet(), d.options.MaxBatch) {
		ops := make([]fdbpq.Op, len(page))
		for i, q := range page {
			ops[i] = fdbpq.Op{Kind: fdbpq.OpPeek, Queue: q.Target}
		}

		attempt, cancel := context.WithTimeout(ctx, d.options.RequestTimeout)
		pending := d.poller.Start(attempt, ops)
		results, err := pending.Wait()
		cancel()
		d.sweeper.noteAhead(pending.Ahead())
		d.sweeper.noteBehind(pending.Behind())
		wakeQueues(d.shared, d.filledQueues(pending), nil)
		if err != nil {
			return
		}

		for i, q := range page {
			if err := results[i].Err; !errors.Is(err, fdbpq.ErrEmpty) || hasNoRoom(err) {
				q.lane.wakeLine(q)
			}
		}
	}
}

// takeQuiet returns the queues whose lines nothing looks at and wait for items. It wakes those that
// wait for the end of a pause or because of another limit, of which a peek knows nothing.
func (l *lane) takeQuiet() (queues []*Queue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var limit limitError
	for _, ln := range l.mu.lines {
		switch {
		case ln.state != lineQuiet:
		case errors.Is(ln.nothing, fdbpq.ErrPaused) || errors.Is(ln.nothing, fdbpq.ErrGroupLimits) || errors.As(ln.nothing, &limit):
			l.wakeLineLocked(ln, 1)
		default:
			queues = append(queues, ln.queue)
		}
	}
	return queues
}
