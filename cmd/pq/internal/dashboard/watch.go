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
	// firstLook is how long a page waits for figures if nobody looked for freshFor. Then it comes as
	// it is, and changes.
	firstLook = 150 * time.Millisecond
	freshFor  = 3 * tick
)

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

	for _, b := range l.bridges { // those that answer, and are not ready, refuse requests
		switch {
		case b.isGone():
		case b.Ready:
			return stateLive, ""
		default:
			state, text = stateAway, fmt.Sprintf("bridge %s is not ready: %s", b.ID, b.Why)
		}
	}
	return cmp.Or(state, stateLive), text
}

func (l *live) currentStatus() status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status
}

// knownQueue is what is known of a queue, and its history. The info is nil if it is not known.
type knownQueue struct {
	queueRow
	info   *client.QueueInfo
	points []point
}

// one returns what is known of a queue.
func (l *live) one(ref queueRef) knownQueue {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queues[ref]
	if q == nil {
		return knownQueue{queueRow: queueRow{queueRef: ref}}
	}
	now := time.Now()
	k := knownQueue{l.row(now, ref, q), q.info, slices.Clone(q.history.points)}
	k.Line = q.history.line(now, readyOf)
	return k
}

// all returns all queues, in no order and without their lines, and the total of them.
func (l *live) all() (rows []queueRow, sum counts, err error) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	rows = make([]queueRow, 0, len(l.queues))
	var in, out float64
	for ref, q := range l.queues {
		row := l.row(now, ref, q)
		if !q.listed && row.All() == 0 {
			continue
		}
		rows = append(rows, row)

		sum.Ready, sum.Leased, sum.Delayed = sum.Ready+row.Ready, sum.Leased+row.Leased, sum.Delayed+row.Delayed
		if row.In != nil {
			in, out = in+*row.In, out+*row.Out
			sum.In, sum.Out = &in, &out
		}
	}
	return rows, sum, l.listErr
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

	dead := ref.Named(set.DeadLetterQueue(ref.Name))
	if other := l.queues[dead]; other != nil {
		if n := other.Ready + other.Leased + other.Delayed; n > 0 {
			row.Dead, row.DeadQueue = &n, &dead
		}
	}
	return row
}

// show sets the lines of rows that somebody looks at now.
func (l *live) show(rows []queueRow) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range rows {
		if q := l.queues[rows[i].queueRef]; q != nil {
			q.shown = now
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
			dead[ref.Named(q.info.Settings.DeadLetter)] = true
		}
		if strings.HasSuffix(ref.Name, settings.DeadSuffix) {
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
