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
	// A queue whose page is open is looked at each tick, one in view each viewTime, and others in
	// turn, a few each tick.
	viewTime      = 5 * time.Second
	othersPerTick = 10
	maxInfos      = 200 // each tick
	maxQueues     = 50_000
	headItems     = 5
	headTime      = 2 * time.Second
)

// live knows what the queues and bridges do now. All pages share it: it asks as often for twenty of
// them as for one, and not at all while nobody looks.
type live struct {
	g       *gateway
	answers *nats.Subscription
	wake    chan struct{}

	mu       sync.Mutex
	queues   map[queueRef]*queueState
	bridges  map[string]*bridgeState
	asked    time.Time // when the bridges were
	total    history
	listed   time.Time // when the list was last complete
	listErr  error
	status   status
	changed  chan struct{} // closed when something is new
	watchers map[*watch]struct{}
	watched  time.Time // when somebody last looked
}

// queueState is what is known of a queue.
type queueState struct {
	subjects.QueueCounts
	listed  bool // it has items or settings
	history history
	info    *client.QueueInfo // nil until it was asked for
	infoAt  time.Time
	infoErr error
	head    []client.StoredItem
	headAt  time.Time
	headErr error
}

// watch is what somebody looks at: the queue whose page is open, and those in view.
type watch struct {
	queue *queueRef
	view  []queueRef
}

func newLive(g *gateway) (*live, error) {
	l := &live{
		g: g, wake: make(chan struct{}, 1),
		queues: map[queueRef]*queueState{}, bridges: map[string]*bridgeState{},
		changed: make(chan struct{}), watchers: map[*watch]struct{}{},
		status: status{State: stateLive, Since: time.Now()},
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

// watchConnection tells those who watch at once when NATS goes or comes back: a look under way waits
// for answers.
func (l *live) watchConnection(ctx context.Context) {
	changes := l.g.nc.StatusChanged()
	defer l.g.nc.RemoveStatusListener(changes)
	for {
		select {
		case <-ctx.Done():
			return
		case <-changes:
			if !l.g.nc.IsConnected() {
				l.g.endCalls("", errAway) // their replies would be lost
			}
			l.noteStatus()
		}
	}
}

// interest returns how often to look, 0 for not at all.
func (l *live) interest(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case len(l.watchers) > 0:
		l.watched = now
		return tick
	case now.Sub(l.watched) < 2*tick:
		return tick
	case now.Sub(l.watched) < keepTime:
		return slowTick
	}
	return 0
}

// look brings everything up to date that is due.
func (l *live) look(ctx context.Context, now time.Time) {
	if l.g.nc.IsConnected() {
		_ = l.askBridges(now) // the status says it if the connection is gone
		if l.isListDue(now) {
			l.list(ctx)
		}
		l.ask(ctx, now)
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
	var refused [2]*refusedError
	for i, kind := range []string{"pq", "q"} {
		all, err := l.g.list(ctx, kindOf(queueRef{Kind: kind}))
		if !errors.As(err, &refused[i]) {
			failed = errors.Join(failed, err)
		}
		for _, q := range all {
			if ref := (queueRef{kind, q.Queue}); l.g.check(ref) == nil { // no bridge has others
				found[ref] = q
			}
		}
	}
	if refused[0] != nil && refused[1] != nil { // who may see one kind of queues, may be meant to
		failed = refused[0]
	}

	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listErr = failed; failed != nil && len(found) == 0 {
		return
	}
	l.listed = now
	for ref := range l.queues {
		if _, ok := found[ref]; !ok && failed == nil {
			if l.queues[ref].listed = false; !l.isOpen(ref) {
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
		q := l.queues[ref]
		if q == nil {
			if len(l.queues) >= maxQueues {
				continue
			}
			q = &queueState{}
			l.queues[ref] = q
		}
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

func (l *live) pointOf(now time.Time, ref queueRef, q *queueState) point {
	p := point{at: now, ready: q.Ready, leased: q.Leased, delayed: q.Delayed, in: -1, out: -1}
	if in, out := l.ratesOf(ref); in != nil {
		p.in, p.out = float32(*in), float32(*out)
	}
	return p
}

// isOpen reports whether somebody looks at the page of a queue. l.mu is held.
func (l *live) isOpen(ref queueRef) bool {
	for w := range l.watchers {
		if w.queue != nil && *w.queue == ref {
			return true
		}
	}
	return false
}

// due returns the queues to ask about, the most wanted first: those with an open page, those in
// view, and of the others those that were asked longest ago. open is how many of the first there are.
func (l *live) due(now time.Time) (list []queueRef, open int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wanted := map[queueRef]bool{}
	add := func(ref queueRef, age time.Duration) {
		q := l.queues[ref]
		if !wanted[ref] && len(list) < maxInfos && (q == nil || now.Sub(q.infoAt) >= age-tick/4) {
			wanted[ref] = true
			list = append(list, ref)
		}
	}

	for w := range l.watchers {
		if w.queue != nil {
			add(*w.queue, tick)
		}
	}
	open = len(list)
	for w := range l.watchers {
		for _, ref := range w.view {
			add(ref, viewTime)
		}
	}

	var others []queueRef
	for ref, q := range l.queues {
		if now.Sub(q.infoAt) >= 2*viewTime {
			others = append(others, ref)
		}
	}
	slices.SortFunc(others, func(a, b queueRef) int { return l.queues[a].infoAt.Compare(l.queues[b].infoAt) })
	for _, ref := range others[:min(len(others), othersPerTick)] {
		add(ref, 0)
	}
	return list, open
}

// ask asks about the queues that are due.
func (l *live) ask(ctx context.Context, now time.Time) {
	list, open := l.due(now)
	var asked errgroup.Group
	asked.SetLimit(4)
	for i, ref := range list {
		asked.Go(func() error {
			l.askQueue(ctx, ref, i < open)
			return nil
		})
	}
	_ = asked.Wait() // errors are kept with the queues
}

// askQueue asks for what is known of a queue, and for its first items if its page is open.
func (l *live) askQueue(ctx context.Context, ref queueRef, open bool) {
	ctx, cancel := context.WithTimeout(ctx, pollTime)
	defer cancel()
	info, err := ask(ctx, l.g, ref, subjects.Info, func(ctx context.Context, q queue) (*client.QueueInfo, error) { return q.Info(ctx) })

	now := time.Now()
	l.mu.Lock()
	q := l.queues[ref]
	if q == nil {
		q = &queueState{QueueCounts: subjects.QueueCounts{Queue: ref.Name}}
		if open && len(l.queues) < maxQueues {
			l.queues[ref] = q
		}
	}
	if q.infoAt, q.infoErr = now, err; err == nil {
		q.info = info
		q.Ready, q.Leased, q.Delayed = info.Ready, info.Leased, info.Delayed
	}
	if open {
		q.history.add(l.pointOf(now, ref, q), fineStep)
	}
	wantHead := open && now.Sub(q.headAt) >= headTime-tick/4
	l.mu.Unlock()

	if !wantHead {
		return
	}
	page, err := ask(ctx, l.g, ref, subjects.Items, func(ctx context.Context, q queue) (client.ItemsPage, error) {
		return q.Items(ctx, client.ItemsOptions{Limit: headItems, ValueBytes: rowBytes})
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	q.head, q.headErr, q.headAt = page.Items, err, now
}
