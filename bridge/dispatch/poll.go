package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// poller looks at queues where requests wait, for the sake of programs that write to the store and
// call no Wake.
type poller struct {
	d       *shared
	lanes   []*lane
	batcher *fdbpq.Batcher
}

func newPoller(d *shared, lanes []*lane) *poller {
	p := &poller{d, lanes, fdbpq.NewBatcher(d.options.DB, d.options.Keyspace)}
	if d.options.Now != nil {
		p.batcher.SetNow(d.options.Now)
	}
	return p
}

// run looks whether there are items every PollEvery. It returns when the lanes have ended.
func (p *poller) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ticker := time.NewTicker(p.d.options.PollEvery)
	defer ticker.Stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for _, l := range p.lanes {
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
		for _, l := range p.lanes {
			p.pollLane(ctx, l)
		}
	}
}

// pollLane looks at the queues of one lane. Errors do not matter: the next round comes soon.
func (p *poller) pollLane(ctx context.Context, l *lane) {
	looks := l.quietLooks()
	for len(looks) > 0 {
		var ops []fdbpq.Op
		n := 0
		for n < len(looks) && len(ops) < p.d.options.MaxBatch {
			ops = looks[n].appendOps(ops)
			n++
		}
		page := looks[:n]
		looks = looks[n:]

		attempt, cancel := context.WithTimeout(ctx, p.d.options.RequestTimeout)
		pending := p.batcher.Start(attempt, ops)
		results, err := pending.Wait()
		cancel()
		p.d.noteLook(pending)
		wakeQueues(p.d, p.d.filledQueues(pending))
		if err != nil {
			return
		}

		now := p.d.now()
		for i := range page {
			if page[i].serves(&results, now) {
				page[i].queue.lane.wakeLine(page[i].queue)
			}
		}
	}
}

// look is at a queue whose line nothing else looks at.
type look struct {
	queue *Queue
	// limited says that what the line waits for may be the end of a pause, or a place under
	// max_leased, and not items; paused that it was told of a pause; leases that all in it want
	// leases.
	limited, paused, leases bool
}

// appendOps appends what finds out whether the line can be served.
func (k *look) appendOps(ops []fdbpq.Op) []fdbpq.Op {
	ops = append(ops, fdbpq.Op{Kind: fdbpq.OpPeek, Queue: k.queue.Target})
	if k.limited {
		ops = append(ops, fdbpq.Op{Kind: fdbpq.OpSettings, Queue: k.queue.Target},
			fdbpq.Op{Kind: fdbpq.OpInfo, Queue: k.queue.Target, MaxPriorities: fdbpq.NoPriorities})
	}
	return ops
}

// serves takes the results of the operations from rest, and reports whether a batch may find
// something for the line. If that is not known, one has to look.
func (k *look) serves(rest *[]fdbpq.Result, now time.Time) bool {
	n := 1
	if k.limited {
		n = 3
	}
	own := (*rest)[:n]
	*rest = (*rest)[n:]

	if k.paused && own[1].Err == nil && !own[1].Settings.PauseUntil.After(now) {
		return true // if only to find that the queue is empty
	}
	if errors.Is(own[0].Err, fdbpq.ErrEmpty) && !hasNoRoom(own[0].Err) {
		return false
	}
	if !k.limited || own[1].Err != nil || own[2].Err != nil {
		return true
	}
	settings, info := own[1].Settings, own[2].Info
	full := settings.MaxLeased > 0 && info.Leased >= settings.MaxLeased
	return !settings.PauseUntil.After(now) && !(full && k.leases)
}

// quietLooks returns the looks to be had at queues whose lines nothing looks at.
func (l *lane) quietLooks() (looks []look) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ln := range l.mu.lines {
		if ln.inFlight == 0 && ln.budget == 0 {
			paused := errors.Is(ln.nothing, fdbpq.ErrPaused)
			looks = append(looks, look{ln.queue, ln.limit != limitUnmet || paused, paused, ln.leases == ln.waiters})
		}
	}
	return looks
}
