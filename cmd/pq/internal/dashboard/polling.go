package dashboard

import (
	"cmp"
	"context"
	"errors"
	"maps"
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

// maxAnswers are kept, of up to 100 KB each.
const maxAnswers = 64

func newMonitor(g *gateway) (*monitor, error) {
	m := &monitor{
		g: g, wake: make(chan struct{}, 1),
		queues: map[queueRef]*queueState{}, bridges: bridges{}, ended: make(chan struct{}),
		asked: ttlCache[queueRef, *client.QueueInfo]{lasts: tick - tick/4, most: maxAnswers},
	}
	var err error
	m.answers, err = g.nc.Subscribe(g.nc.NewInbox(), m.noteAnswer)
	return m, err
}

// run looks at the queues until ctx ends.
func (m *monitor) run(ctx context.Context) {
	defer func() { _ = m.answers.Unsubscribe() }() // fails only if the connection has ended
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
		case <-timer.C:
		}

		began := time.Now()
		if !m.isWatched(began) { // until somebody comes
			continue
		}
		m.look(ctx, began)
		timer.Reset(max(tick-time.Since(began), tick/4))
	}
}

// isWatched reports whether somebody looks, or did lately.
func (m *monitor) isWatched(now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return now.Sub(m.watched) < keepTime
}

// look brings everything up to date that is due.
func (m *monitor) look(ctx context.Context, now time.Time) {
	if m.g.nc.IsConnected() {
		m.mu.Lock()
		m.looked = now
		for _, b := range m.bridges {
			b.missed++
		}
		m.mu.Unlock()
		ask := func(ctx context.Context) error {
			return discovery.Publish(ctx, m.g.nc, discovery.StatsSubject, m.answers.Subject,
				[]byte(subjects.StatsOfQueues))
		}
		_ = m.g.send(ctx, m.g.slots, discovery.StatsSubject, ask) // pages say what is not known
		if m.isListDue(now) {
			m.list(ctx)
		}

		// Pages may wait for the end of the look: what takes too long, is due again.
		within, cancel := context.WithTimeout(ctx, pollTime)
		var asked errgroup.Group
		asked.SetLimit(4)
		for _, q := range m.due(now) {
			asked.Go(func() error {
				_, err := m.update(within, q)
				return err
			})
		}
		_ = asked.Wait() // what is not known, is shown as such
		cancel()
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	isOld := func(_ string, b *bridgeState) bool { return now.Sub(b.Seen) > forgetAfter }
	maps.DeleteFunc(m.bridges, isOld)
	close(m.ended)
	m.ended = make(chan struct{})
}

// noteAnswer takes in what a bridge says.
func (m *monitor) noteAnswer(answer *nats.Msg) {
	b := discovery.Parse(m.g.grammar, answer.Data)
	if b == nil || b.BridgeStats == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bridges.note(time.Now(), b)
}

// list lists all queues.
func (m *monitor) list(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*pollTime)
	defer cancel()

	found := map[queueRef]subjects.QueueCounts{}
	var failed error
	var refusals []error
	for _, kind := range []subjects.Kind{subjects.Priority, subjects.FIFO} {
		all, err := m.g.list(ctx, kind, maxQueues-len(found))
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
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.listErr = failed; failed != nil && len(found) == 0 {
		return
	}

	if failed == nil {
		m.listed = now
	}
	m.record(now, found)
	for ref, q := range m.queues {
		if _, ok := found[ref]; !ok && failed == nil {
			if q.listed = false; now.Sub(q.asked) > viewTime { // nobody looks at its page
				delete(m.queues, ref)
			}
		}
	}
}

// ask brings a queue up to date for a page of it, and returns its last info, nil if it was never
// known. All who ask in the same tick share the answer.
func (m *monitor) ask(ctx context.Context, ref queueRef) (*client.QueueInfo, error) {
	update := func() (*client.QueueInfo, error) { return m.update(ctx, ref) }
	return m.asked.get(ctx, ref, update)
}

// update brings a queue up to date, and returns its info.
func (m *monitor) update(ctx context.Context, ref queueRef) (*client.QueueInfo, error) {
	within, cancel := context.WithTimeout(ctx, pageTime)
	defer cancel()
	info, err := m.g.info(within, ref)
	if ctx.Err() != nil {
		return info, err
	}

	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.queue(ref).asked = now; err == nil {
		m.note(now, ref, info)
	} else if deniedBy(err) != "" {
		m.refused = now
	}
	return info, err
}

// freshen notes that somebody looks, and waits a moment for new figures if the known ones are old.
func (m *monitor) freshen(ctx context.Context) {
	m.mu.Lock()
	isOld := time.Since(m.watched) > freshFor || m.listed.IsZero() && m.listErr == nil
	m.watched = time.Now()
	m.mu.Unlock()
	if isOld {
		m.await(ctx, firstLook)
	}
}

// await waits for the end of a look, which begins at once unless one is under way.
func (m *monitor) await(ctx context.Context, atMost time.Duration) {
	m.mu.Lock()
	ended := m.ended
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}

	select {
	case <-ended:
	case <-ctx.Done():
	case <-time.After(atMost):
	}
}

// freshList returns all queues, after it has waited for a new list if the last one is old. A user
// who may not list queues gets those that are known without: why, is in the err of the list.
func (m *monitor) freshList(ctx context.Context) (queueList, error) {
	if m.isListDue(time.Now()) {
		m.await(ctx, longestSearch)
	}

	list := m.all()
	switch {
	case !m.g.nc.IsConnected():
		return list, errAway
	case deniedBy(list.err) != "":
		return list, nil
	}
	return list, list.err
}

// status returns how the connection is. If the time of a page is over, it was not answered.
func (m *monitor) status(page context.Context) status {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !m.g.nc.IsConnected():
		return status{stateAway, m.g.because("NATS is unreachable; trying to reconnect")}
	case errors.Is(m.listErr, errRefused):
		return status{stateDenied, m.listErr.Error()}
	case m.listErr != nil || page.Err() != nil:
		return status{stateAway, cmp.Or(m.listErr, errNoBridge).Error()}
	}

	return m.bridges.status()
}

// bridgesView returns what the page of the bridges shows, and as of when.
func (m *monitor) bridgesView() (*bridgesView, time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := &bridgesView{Rows: m.bridges.rows()}
	if refused := m.g.refusal(discovery.StatsSubject); len(v.Rows) == 0 {
		v.Denied = deniedBy(refused)
	}
	return v, m.looked
}
