package dashboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/fdbpq/settings"
)

// States of the connection.
const (
	stateLive   = "live"
	stateAway   = "away"
	stateDenied = "denied"
)

const (
	// firstLook is how long a page waits for figures that are not there yet, and freshFor how old
	// they may be: then the page comes at once, and changes.
	firstLook = 150 * time.Millisecond
	freshFor  = 3 * time.Second
)

// watch makes live ask for what somebody looks at, until stop is called.
func (l *live) watch(w *watch) (stop func()) {
	l.mu.Lock()
	l.watchers[w] = struct{}{}
	l.mu.Unlock()
	l.rouse()
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.watchers, w)
		l.watched = time.Now()
	}
}

// setView says which queues are in view.
func (l *live) setView(w *watch, view []queueRef) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.view = view
}

// rouse makes live look, if it does not anyway.
func (l *live) rouse() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// news returns a channel that is closed when something is new.
func (l *live) news() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// freshen waits a moment for figures if those that are known are old. A page that is not about one
// queue has none to name.
func (l *live) freshen(ctx context.Context, ref *queueRef) {
	now := time.Now()
	news := l.news()
	l.mu.Lock()
	at := l.listed
	if ref != nil {
		at = time.Time{}
		if q := l.queues[*ref]; q != nil {
			at = q.infoAt
		}
	}
	idle := now.Sub(l.watched) > 2*tick && len(l.watchers) == 0
	l.watched = now
	l.mu.Unlock()
	if now.Sub(at) < freshFor || !idle && !at.IsZero() {
		return
	}

	ctx, cancel := context.WithTimeout(ctx, firstLook)
	defer cancel()
	if ref != nil {
		l.askQueue(ctx, *ref, true)
		return
	}
	if idle {
		l.rouse()
	}
	select {
	case <-news:
	case <-ctx.Done():
	}
}

// noteStatus finds out how the connection is, and tells those who watch.
func (l *live) noteStatus() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	state, text := l.state()
	if state != l.status.State {
		l.status.Since = now
	}
	l.status.State, l.status.Text = state, text
	close(l.changed)
	l.changed = make(chan struct{})
}

// state returns how the connection is. l.mu is held.
func (l *live) state() (state, text string) {
	var refused *refusedError
	switch {
	case l.g.nc.IsClosed():
		return stateAway, "the connection to NATS is closed: start pq dashboard again"
	case !l.g.nc.IsConnected():
		text = "NATS is away, and the dashboard reconnects"
		if err := l.g.nc.LastError(); err != nil {
			text = fmt.Sprintf("%s: %v", text, err)
		}
		return stateAway, text
	case errors.As(l.listErr, &refused):
		return stateDenied, l.listErr.Error()
	case errors.Is(l.listErr, client.ErrNoBridge):
		return stateAway, client.ErrNoBridge.Error()
	case l.listErr != nil:
		return stateAway, l.listErr.Error()
	}

	for _, b := range l.bridges { // those that answer, and are not ready, refuse requests
		switch {
		case b.isGone():
		case b.Ready:
			return stateLive, ""
		default:
			text = fmt.Sprintf("bridge %s is not ready: %s", b.ID, b.Why)
		}
	}
	if text != "" {
		return stateAway, text
	}
	return stateLive, ""
}

func (l *live) currentStatus() status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status
}

// knownQueue is what is known of a queue. Its pointers are not changed later.
type knownQueue struct {
	queueRow
	info    *client.QueueInfo
	infoErr error
	head    []client.StoredItem
}

// one returns what is known of a queue.
func (l *live) one(ref queueRef) knownQueue {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queues[ref]
	if q == nil {
		return knownQueue{queueRow: queueRow{queueRef: ref}}
	}
	k := knownQueue{queueRow: l.row(now, ref, q), info: q.info, infoErr: q.infoErr, head: q.head}
	if k.head == nil && q.headErr == nil && !q.headAt.IsZero() {
		k.head = []client.StoredItem{}
	}
	return k
}

// points returns the history of a queue after a time.
func (l *live) points(ref queueRef, after time.Time) []point {
	l.mu.Lock()
	defer l.mu.Unlock()
	if q := l.queues[ref]; q != nil {
		return q.history.after(after)
	}
	return nil
}

// all returns all queues, in no order and without their lines.
func (l *live) all() (rows []queueRow, err error) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	rows = make([]queueRow, 0, len(l.queues))
	for ref, q := range l.queues {
		if q.listed || q.Ready+q.Leased+q.Delayed > 0 {
			rows = append(rows, l.row(now, ref, q))
		}
	}
	return rows, l.listErr
}

// row returns a queue without its line. l.mu is held.
func (l *live) row(now time.Time, ref queueRef, q *queueState) queueRow {
	row := queueRow{queueRef: ref, counts: counts{Ready: q.Ready, Leased: q.Leased, Delayed: q.Delayed}}
	row.In, row.Out = l.ratesOf(ref)

	var set client.Settings
	if q.info != nil {
		set = q.info.Settings
		if q.info.OldestAge != nil && q.Ready > 0 {
			age := *q.info.OldestAge + now.Sub(q.infoAt)
			row.Oldest = &age
		}
	}
	row.Paused, row.PausedUntil = set.PauseUntil.After(now), set.PauseUntil

	dead := deadQueue(ref, &set)
	if other := l.queues[dead]; other != nil {
		if n := other.Ready + other.Leased + other.Delayed; n > 0 {
			row.Dead, row.DeadQueue = &n, &dead
		}
	}
	return row
}

// deadQueue returns the dead-letter queue of a queue.
func deadQueue(ref queueRef, s *settings.Settings) queueRef {
	if s.DeadLetter != "" {
		return queueRef{ref.Kind, s.DeadLetter}
	}
	return queueRef{ref.Kind, ref.Name + "-dead"}
}

// items is how many items are in the queue.
func (c *counts) items() int64 { return c.Ready + c.Leased + c.Delayed }

// lines sets the lines of rows.
func (l *live) lines(rows []queueRow) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range rows {
		if q := l.queues[rows[i].queueRef]; q != nil {
			rows[i].Line = q.history.line(now, readyOf)
		}
	}
}

// sumLines returns the rates of all queues lately, and how many items were ready.
func (l *live) sumLines() (ready, in, out []int64) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total.line(now, readyOf), l.total.line(now, inOf), l.total.line(now, outOf)
}

// deadQueues returns the queues that have dead letters: those that the settings of others name, as
// far as they are known, and those with the usual name.
func (l *live) deadQueues() (rows []queueRow) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	dead := map[queueRef]bool{}
	for ref, q := range l.queues {
		if q.info != nil && q.info.Settings.DeadLetter != "" {
			dead[queueRef{ref.Kind, q.info.Settings.DeadLetter}] = true
		}
		if strings.HasSuffix(ref.Name, "-dead") {
			dead[ref] = true
		}
	}
	for ref := range dead {
		if q := l.queues[ref]; q != nil && q.Ready+q.Leased+q.Delayed > 0 {
			rows = append(rows, l.row(now, ref, q))
		}
	}
	slices.SortFunc(rows, func(a, b queueRow) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Kind, b.Kind))
	})
	return rows
}
