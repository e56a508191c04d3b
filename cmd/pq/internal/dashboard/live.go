package dashboard

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
)

const (
	// tick is how often pages change. Queues are listed as often, but with thousands of them each
	// second costs listsPerSecond queues at most.
	tick           = time.Second
	listsPerSecond = 500
	// slowTick is how often there is a look after the last page was closed, for keepTime, so that
	// histories have no gap when somebody comes back.
	slowTick = 10 * time.Second
	keepTime = 5 * time.Minute
	// pollTime bounds each request of a look.
	pollTime = 3 * time.Second
	// A queue that a page shows in a table is looked at each viewTime, and others in turn, a few each
	// tick. The page of a queue looks by itself.
	viewTime      = 5 * time.Second
	othersPerTick = 10
	maxInfos      = 200 // each tick
	maxQueues     = 50_000
)

// live knows what the queues and bridges do now. All pages share it: it asks as often for twenty of
// them as for one, and not at all while nobody looks.
type live struct {
	g       *gateway
	answers *nats.Subscription
	wake    chan struct{}
	asked   memo[queueRef, error]

	mu      sync.Mutex
	queues  map[queueRef]*queueState
	bridges map[string]*bridgeState
	total   history
	listed  time.Time // when the list was last complete
	listErr error
	status  status
	changed chan struct{} // closed when something is new
	watched time.Time     // when somebody last looked
}

// queueState is what is known of a queue.
type queueState struct {
	subjects.QueueCounts
	listed  bool // it has items or settings
	history history
	info    *client.QueueInfo // nil until it was asked for
	infoAt  time.Time
	shown   time.Time // when a page last showed it in a table
}

func newLive(g *gateway) (*live, error) {
	l := &live{
		g: g, wake: make(chan struct{}, 1),
		queues: map[queueRef]*queueState{}, bridges: map[string]*bridgeState{},
		changed: make(chan struct{}), status: status{State: stateLive, Since: time.Now()},
	}
	var err error
	l.answers, err = g.nc.Subscribe(g.nc.NewInbox(), l.noteAnswer)
	return l, err
}

// run looks at the queues until ctx ends.
func (l *live) run(ctx context.Context) {
	defer func() { _ = l.answers.Unsubscribe() }() // fails only if the connection has ended
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { l.watchConnection(ctx) })

	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		case <-timer.C:
		}

		began := time.Now()
		pause := l.interest(began)
		if pause == 0 { // until somebody comes
			continue
		}
		l.look(ctx, began)
		timer.Reset(max(pause-time.Since(began), pause/4))
	}
}

// interest returns how often to look, 0 for not at all.
func (l *live) interest(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch age := now.Sub(l.watched); {
	case age < freshFor:
		return tick
	case age < keepTime:
		return slowTick
	}
	return 0
}

// look brings everything up to date that is due.
func (l *live) look(ctx context.Context, now time.Time) {
	if l.g.nc.IsConnected() {
		_ = l.askBridges() // the status says it if the connection is gone
		if l.isListDue(now) {
			l.list(ctx)
		}

		var asked errgroup.Group
		asked.SetLimit(4)
		for _, q := range l.due(now) {
			asked.Go(func() error { return l.ask(ctx, q) })
		}
		_ = asked.Wait() // what is not known, is shown as such
	}

	l.mu.Lock()
	l.forgetBridges(now)
	l.mu.Unlock()
	l.noteStatus()
}

func (l *live) isListDue(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	every := max(time.Duration(len(l.queues))*time.Second/listsPerSecond, tick)
	return l.listErr != nil || now.Sub(l.listed) >= every-tick/4
}

// list lists all queues.
func (l *live) list(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*pollTime)
	defer cancel()

	found := map[queueRef]subjects.QueueCounts{}
	var failed error
	var refusals []error
	for _, kind := range []string{"pq", "q"} {
		all, err := l.g.list(ctx, kind)
		if errors.As(err, new(*refusedError)) {
			refusals = append(refusals, err)
		} else {
			failed = errors.Join(failed, err)
		}
		for _, q := range all {
			found[queueRef{kind, q.Queue}] = q
		}
	}
	if len(refusals) == 2 { // who may see one kind of queues, may be meant to
		failed = refusals[0]
	}

	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listErr = failed; failed != nil && len(found) == 0 {
		return
	}
	l.listed = now
	for ref, q := range l.queues {
		if _, ok := found[ref]; !ok && failed == nil {
			if q.listed = false; now.Sub(q.infoAt) > viewTime { // nobody looks at its page
				delete(l.queues, ref)
			}
		}
	}
	l.record(now, found)
}

// record adds what was found to the histories. l.mu is held.
func (l *live) record(now time.Time, found map[queueRef]subjects.QueueCounts) {
	step := fineStep
	if len(found) > fineQueues {
		step = coarseStep
	}
	all := point{at: now, in: -1, out: -1}
	for ref, n := range found {
		q := l.queue(ref)
		q.QueueCounts, q.listed = n, true
		p := l.pointOf(now, ref, q)
		q.history.add(p, step)

		all.ready, all.leased, all.delayed = all.ready+p.ready, all.leased+p.leased, all.delayed+p.delayed
		if p.in >= 0 {
			all.in, all.out = max(all.in, 0)+p.in, max(all.out, 0)+p.out
		}
	}
	l.total.add(all, fineStep)
}

// queue returns what is known of a queue. If there are too many, it is not kept. l.mu is held.
func (l *live) queue(ref queueRef) *queueState {
	q := l.queues[ref]
	if q == nil {
		q = &queueState{}
		if len(l.queues) < maxQueues {
			l.queues[ref] = q
		}
	}
	return q
}

func (l *live) pointOf(now time.Time, ref queueRef, q *queueState) point {
	p := point{at: now, ready: q.Ready, leased: q.Leased, delayed: q.Delayed, in: -1, out: -1}
	if in, out := l.ratesOf(ref); in != nil {
		p.in, p.out = float32(*in), float32(*out)
	}
	return p
}

// due returns the queues to ask about: those that pages show, and some of the others, of which those
// come first that were asked longest ago.
func (l *live) due(now time.Time) []queueRef {
	l.mu.Lock()
	defer l.mu.Unlock()
	var shown, others []queueRef
	for ref, q := range l.queues {
		switch age := now.Sub(q.infoAt); {
		case !q.listed:
		case now.Sub(q.shown) < viewTime && age >= viewTime-tick/4:
			shown = append(shown, ref)
		case age >= 2*viewTime:
			others = append(others, ref)
		}
	}

	byAge := func(a, b queueRef) int { return l.queues[a].infoAt.Compare(l.queues[b].infoAt) }
	slices.SortFunc(shown, byAge)
	slices.SortFunc(others, byAge)
	return append(shown[:min(len(shown), maxInfos)], others[:min(len(others), othersPerTick)]...)
}

// ask brings a queue up to date. All who ask in the same tick share the answer.
func (l *live) ask(ctx context.Context, ref queueRef) error {
	return l.asked.get(ref, func(error) (error, time.Duration) {
		within, cancel := context.WithTimeout(ctx, pollTime)
		defer cancel()
		info, err := l.g.info(within, ref)
		if ctx.Err() != nil { // who asked is gone
			return err, 0
		}

		now := time.Now()
		l.mu.Lock()
		defer l.mu.Unlock()
		q := l.queue(ref)
		if q.infoAt = now; err == nil {
			q.info = info
			q.Ready, q.Leased, q.Delayed = info.Ready, info.Leased, info.Delayed
			q.history.add(l.pointOf(now, ref, q), fineStep)
		}
		return err, tick - tick/4
	})
}
