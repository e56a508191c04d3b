package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// poll looks, every PollEvery, whether there are items in queues where requests wait, for
// the sake of programs that write to the store and call no Wake. It returns when the lanes
// have ended.
func (d *Dispatcher) poll(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ticker := time.NewTicker(d.options.PollEvery)
	defer ticker.Stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for _, l := range d.lanes {
			<-l.over
		}
		cancel()
	}()
	defer func() { <-ended }()
	for {
		select {
		case <-ticker.C:
		case <-ended:
			return
		}
		for _, l := range d.lanes {
			d.pollLane(ctx, l)
		}
	}
}

// pollLane looks at the queues of one lane. Errors do not matter: the next round comes soon.
func (d *Dispatcher) pollLane(ctx context.Context, l *lane) {
	queues := l.quietQueues()
	for len(queues) > 0 {
		page := queues[:min(len(queues), d.options.MaxBatch)]
		queues = queues[len(page):]
		ops := make([]fdbpq.Op, len(page))
		for i, q := range page {
			ops[i] = fdbpq.Op{Kind: fdbpq.OpPeek, Queue: q.Target}
		}
		attempt, cancel := context.WithTimeout(ctx, d.options.RequestTimeout)
		pending := d.poller.Start(attempt, ops)
		results, err := pending.Wait()
		cancel()
		d.sweeper.note(pending.Ahead())
		d.sweeper.noteBehind(pending.Behind())
		for _, q := range d.filledQueues(pending) {
			d.Wake(q)
			if filled := d.options.Filled; filled != nil {
				filled(q)
			}
		}
		if err != nil {
			return
		}
		for i := range results {
			if !errors.Is(results[i].Err, fdbpq.ErrEmpty) {
				d.Wake(page[i])
			}
		}
	}
}

// quietQueues returns the queues whose lines nothing looks at.
func (l *lane) quietQueues() (queues []*Queue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ln := range l.mu.lines {
		if ln.inFlight == 0 && ln.budget == 0 {
			queues = append(queues, ln.queue)
		}
	}
	return queues
}
