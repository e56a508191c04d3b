package dashboard

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/discovery"
	"github.com/pqbridge/pqbridge/subjects"
)

const (
	// After the last page was closed, looks go on for keepTime, so that histories have no gap when
	// somebody comes back.
	keepTime = 5 * time.Minute
	// pollTime bounds the requests of a look about single queues together; the list has twice that.
	pollTime = 3 * time.Second
	// A page waits up to firstLook for figures if nobody looked for freshFor. Then it shows what
	// there is, and asks again.
	firstLook = 150 * time.Millisecond
	freshFor  = 3 * refreshTime
)

// live knows what the queues and bridges do now. All pages share it: it asks as often for twenty
// pages as for one, and not at all while nobody looks.
type live struct {
	g       *gateway
	answers *nats.Subscription
	wake    chan struct{}
	asked   memo[queueRef, *client.QueueInfo] // for their pages

	mu      sync.Mutex
	queues  map[queueRef]*queueState
	bridges bridges
	total   history
	listed  time.Time // when the list was last complete
	listErr error
	refused time.Time     // when the server last did not let a question about a queue pass
	looked  time.Time     // when the bridges were last asked
	watched time.Time     // when somebody last looked
	ended   chan struct{} // closed when the next look ends
}

// maxAnswers are kept, of up to 100 KB each.
const maxAnswers = 64

func newLive(g *gateway) (*live, error) {
	l := &live{
		g: g, wake: make(chan struct{}, 1),
		queues: map[queueRef]*queueState{}, bridges: bridges{}, ended: make(chan struct{}),
		asked: memo[queueRef, *client.QueueInfo]{lasts: tick - tick/4, most: maxAnswers},
	}
	var err error
	l.answers, err = g.nc.Subscribe(g.nc.NewInbox(), l.noteAnswer)
	return l, err
}

// run looks at the queues until ctx ends.
func (l *live) run(ctx context.Context) {
	defer func() { _ = l.answers.Unsubscribe() }() // fails only if the connection has ended
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
		if !l.isWatched(began) { // until somebody comes
			continue
		}
		l.look(ctx, began)
		timer.Reset(max(tick-time.Since(began), tick/4))
	}
}

// isWatched reports whether somebody looks, or did lately.
func (l *live) isWatched(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return now.Sub(l.watched) < keepTime
}

// look brings everything up to date that is due.
func (l *live) look(ctx context.Context, now time.Time) {
	if l.g.nc.IsConnected() {
		l.mu.Lock()
		l.looked = now
		for _, b := range l.bridges {
			b.missed++
		}
		l.mu.Unlock()
		ask := func(ctx context.Context) error {
			return discovery.Publish(ctx, l.g.nc, discovery.StatsSubject, l.answers.Subject,
				[]byte(subjects.StatsOfQueues))
		}
		_ = l.g.send(ctx, l.g.slots, discovery.StatsSubject, ask) // pages say what is not known
		if l.isListDue(now) {
			l.list(ctx)
		}

		// Pages may wait for the end of the look: what takes too long, is due again.
		within, cancel := context.WithTimeout(ctx, pollTime)
		var asked errgroup.Group
		asked.SetLimit(4)
		for _, q := range l.due(now) {
			asked.Go(func() error {
				_, err := l.update(within, q)
				return err
			})
		}
		_ = asked.Wait() // what is not known, is shown as such
		cancel()
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	isOld := func(_ string, b *bridgeState) bool { return now.Sub(b.Seen) > forgetAfter }
	maps.DeleteFunc(l.bridges, isOld)
	close(l.ended)
	l.ended = make(chan struct{})
}

// noteAnswer takes in what a bridge says.
func (l *live) noteAnswer(m *nats.Msg) {
	b := discovery.Parse(l.g.grammar, m.Data)
	if b == nil || b.BridgeStats == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bridges.note(time.Now(), b)
}

// list lists all queues.
func (l *live) list(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*pollTime)
	defer cancel()

	found := map[queueRef]subjects.QueueCounts{}
	var failed error
	var refusals []error
	for _, kind := range []subjects.Kind{subjects.Priority, subjects.FIFO} {
		all, err := l.g.list(ctx, kind, maxQueues-len(found))
		if errors.Is(err, errRefused) {
			refusals = append(refusals, err)
		} else {
			failed = cmp.Or(failed, err)
		}
		for _, q := range all {
			found[queueRef{kind.Short(), q.Queue}] = q
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

	if failed == nil {
		l.listed = now
	}
	l.record(now, found)
	for ref, q := range l.queues {
		if _, ok := found[ref]; !ok && failed == nil {
			if q.listed = false; now.Sub(q.asked) > viewTime { // nobody looks at its page
				delete(l.queues, ref)
			}
		}
	}
}

// ask brings a queue up to date for a page of it, and returns its last info, nil if it was never
// known. All who ask in the same tick share the answer.
func (l *live) ask(ctx context.Context, ref queueRef) (*client.QueueInfo, error) {
	update := func() (*client.QueueInfo, error) { return l.update(ctx, ref) }
	return l.asked.get(ctx, ref, update)
}

// update brings a queue up to date, and returns its info.
func (l *live) update(ctx context.Context, ref queueRef) (*client.QueueInfo, error) {
	within, cancel := context.WithTimeout(ctx, pageTime)
	defer cancel()
	info, err := l.g.info(within, ref)
	if ctx.Err() != nil {
		return info, err
	}

	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queue(ref).asked = now; err == nil {
		l.note(now, ref, info)
	} else if deniedBy(err) != "" {
		l.refused = now
	}
	return info, err
}

// freshen notes that somebody looks, and waits a moment for new figures if the known ones are old.
func (l *live) freshen(ctx context.Context) {
	l.mu.Lock()
	isOld := time.Since(l.watched) > freshFor || l.listed.IsZero() && l.listErr == nil
	l.watched = time.Now()
	l.mu.Unlock()
	if isOld {
		l.await(ctx, firstLook)
	}
}

// await waits for the end of a look, which begins at once unless one is under way.
func (l *live) await(ctx context.Context, atMost time.Duration) {
	l.mu.Lock()
	ended := l.ended
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}

	select {
	case <-ended:
	case <-ctx.Done():
	case <-time.After(atMost):
	}
}

// awaitList waits for the list of queues if it is old.
func (l *live) awaitList(ctx context.Context) error {
	if l.isListDue(time.Now()) {
		l.await(ctx, longestSearch)
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.g.nc.IsConnected():
		return errAway
	case deniedBy(l.listErr) != "": // what is known without the list is all that there is
		return nil
	}

	return l.listErr
}

// status returns how the connection is. If the time of a page is over, it was not answered.
func (l *live) status(page context.Context) status {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !l.g.nc.IsConnected():
		return status{stateAway, l.g.because("NATS is unreachable; trying to reconnect")}
	case errors.Is(l.listErr, errRefused):
		return status{stateDenied, l.listErr.Error()}
	case l.listErr != nil || page.Err() != nil:
		return status{stateAway, cmp.Or(l.listErr, errNoBridge).Error()}
	}

	return l.bridges.status()
}

// bridgesView returns what the page of the bridges shows, and as of when.
func (l *live) bridgesView() (*bridgesView, time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := &bridgesView{Rows: l.bridges.rows()}
	if refused := l.g.refusal(discovery.StatsSubject); len(v.Rows) == 0 {
		v.Denied = deniedBy(refused)
	}
	return v, l.looked
}
