package dashboard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/subjects"
)

const (
	// slowTick is how often there is a look after the last page was closed, for keepTime, so that
	// histories have no gap when somebody comes back.
	slowTick = 10 * time.Second
	keepTime = 5 * time.Minute
	// pollTime bounds each request of a look, and those about single queues together.
	pollTime = 3 * time.Second
	// firstLook is how long a page waits for figures if nobody looked for freshFor. Then it comes as
	// it is, and changes.
	firstLook = 150 * time.Millisecond
	freshFor  = 3 * tick
)

// live knows what the queues and bridges do now. All pages share it: it asks as often for twenty of
// them as for one, and not at all while nobody looks.
type live struct {
	figures
	g       *gateway
	answers *nats.Subscription
	wake    chan struct{}
	asked   memo[queueRef, outcome]

	changed chan struct{} // closed when something is new
	watched time.Time     // when somebody last looked
}

// outcome is how a question went.
type outcome struct{ err error }

func newLive(g *gateway) (*live, error) {
	l := &live{
		g: g, wake: make(chan struct{}, 1),
		figures: figures{queues: map[queueRef]*queueState{}, bridges: bridges{}, status: status{State: stateLive, Since: time.Now()}},
		changed: make(chan struct{}),
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
		l.mu.Lock()
		l.bridges.noteAsked()
		l.mu.Unlock()
		if l.g.refusal(statsSubject) == nil { // otherwise the status says it if the connection is gone
			_ = l.g.nc.PublishRequest(statsSubject, l.answers.Subject, []byte(subjects.StatsOfQueues))
		}
		if l.isListDue(now) {
			l.list(ctx)
		}

		// Pages change when the look ends: what takes too long, is due again.
		within, cancel := context.WithTimeout(ctx, pollTime)
		var asked errgroup.Group
		asked.SetLimit(4)
		for _, q := range l.due(now) {
			asked.Go(func() error { return l.ask(within, q) })
		}
		_ = asked.Wait() // what is not known, is shown as such
		cancel()
	}

	l.mu.Lock()
	l.bridges.forget(now)
	l.mu.Unlock()
	l.noteStatus()
}

// noteAnswer takes in what a bridge says.
func (l *live) noteAnswer(m *nats.Msg) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bridges.note(time.Now(), m.Data)
}

// list lists all queues.
func (l *live) list(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*pollTime)
	defer cancel()

	found := map[queueRef]subjects.QueueCounts{}
	var failed error
	var refusals []error
	for _, kind := range []string{subjects.Priority.Short(), subjects.FIFO.Short()} {
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

// ask brings a queue up to date. All who ask in the same tick share the answer.
func (l *live) ask(ctx context.Context, ref queueRef) error {
	return l.asked.get(ref, func(outcome) (outcome, time.Duration) {
		within, cancel := context.WithTimeout(ctx, pollTime)
		defer cancel()
		info, err := l.g.info(within, ref)
		if ctx.Err() != nil { // who asked is gone
			return outcome{err}, 0
		}

		now := time.Now()
		l.mu.Lock()
		defer l.mu.Unlock()
		q := l.queue(ref)
		if q.infoAt = now; err == nil {
			q.info = info
			q.Ready, q.Leased, q.Delayed = info.Ready, info.Leased, info.Delayed
			q.history.add(l.pointOf(now, ref, q), fineStep)
		} else if deniedBy(err) != "" {
			l.refused = now
		}
		return outcome{err}, tick - tick/4
	}).err
}

// watch notes that somebody looks, and returns a channel that is closed when something is new. Who
// goes on looking calls it again then.
func (l *live) watch() (news <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Sub(l.watched) > 2*tick {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
	l.watched = now
	return l.changed
}

// freshen waits a moment for figures if those that are known are old.
func (l *live) freshen(ctx context.Context) {
	l.mu.Lock()
	isOld := time.Since(l.watched) > freshFor || l.listed.IsZero() && l.listErr == nil
	l.mu.Unlock()
	news := l.watch()
	if !isOld {
		return
	}

	select {
	case <-news:
	case <-ctx.Done():
	case <-time.After(firstLook):
	}
}

// awaitList waits for the list of queues if it is old, but not for one that fails.
func (l *live) awaitList(ctx context.Context) {
	for failed := false; !failed; {
		news := l.watch() // before the question, so that no change is missed
		if !l.isListDue(time.Now()) || !l.g.nc.IsConnected() {
			return
		}
		select {
		case <-news:
		case <-ctx.Done():
			return
		}
		l.mu.Lock()
		failed = l.listErr != nil
		l.mu.Unlock()
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

// noteStatus finds out how the connection is, and tells those who watch.
func (l *live) noteStatus() {
	l.mu.Lock()
	defer l.mu.Unlock()
	state, text := l.state()
	if state != l.status.State {
		l.status.Since = time.Now()
	}
	l.status.State, l.status.Text = state, text
	close(l.changed)
	l.changed = make(chan struct{})
}

// state returns how the connection is. l.mu is held.
func (l *live) state() (state, text string) {
	switch {
	case l.g.nc.IsClosed():
		return stateAway, "the connection to NATS is closed: start pq dashboard again"
	case !l.g.nc.IsConnected():
		text = "NATS is away, and the dashboard reconnects"
		if err := l.g.nc.LastError(); err != nil {
			text = fmt.Sprintf("%s: %v", text, err)
		}
		return stateAway, text
	case errors.As(l.listErr, new(*refusedError)):
		return stateDenied, l.listErr.Error()
	case errors.Is(l.listErr, client.ErrNoBridge):
		return stateAway, client.ErrNoBridge.Error()
	case l.listErr != nil:
		return stateAway, l.listErr.Error()
	}
	return l.bridges.state()
}

// bridgesView returns what the page of the bridges shows.
func (l *live) bridgesView() *bridgesView {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := &bridgesView{Rows: l.bridges.rows(time.Now())}
	if refused := l.g.refusal(statsSubject); len(v.Rows) == 0 {
		v.Denied = deniedBy(refused)
	}
	return v
}
