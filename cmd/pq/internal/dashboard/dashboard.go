// Package dashboard serves web pages that show what the queues are doing, and act on them. It talks
// to the bridges over NATS like any client, and may do what its NATS user may.
//
// Everybody who can open the pages acts as that user. By default only this machine can: to listen
// on another address needs a token, or a proxy that says who is there. The guard refuses requests
// that pages of other sites make a browser send.
//
// Pages that somebody looks at ask for themselves every two seconds. They share requests to the
// bridges, see monitor, and while nobody looks nothing is asked. Pages that go through many queues,
// such as the page of the dead letters, share a scan in the background. The memory and time that
// browsers can take are bounded by the constants of this package.
package dashboard

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"
)

// Dashboard is a server that listens. It has what the handlers of all pages need.
type Dashboard struct {
	Options
	listener net.Listener
	guard    *guard
	gateway  *gateway
	monitor  *monitor
	searches *searchRegistry
	details  ttlCache[queueRef, details]

	durations ttlCache[queueRef, *durations]
	chains    ttlCache[chainKey, []chainRow]

	turns chan struct{}       // an element for each page that is made
	sent  *semaphore.Weighted // bytes of pages that browsers have not read yet
	files *semaphore.Weighted // bytes of values, likewise

	dead      backgroundScan[deadView]
	busy      backgroundScan[busyView]
	schedules backgroundScan[schedulesView]
}

const (
	// Of maxTurns pages at a time the HTML is made. Browsers are sent maxSent bytes of pages at a
	// time besides the answers to forms, and maxFiles bytes of values. Each value counts as the
	// largest possible one.
	maxTurns = 2
	maxSent  = 24 << 20
	maxFiles = 16 << 20
)

// newShell returns what every page has.
func (b *Dashboard) newShell(r *http.Request, title, nav string) *shell {
	now := time.Now()
	s := &shell{
		Title: title, Nav: nav, Now: now, AsOf: now, User: callerOf(r).name,
		Server: b.Conn.ConnectedUrlRedacted(), LogOut: b.guard.logins.hasForm(),
		HideValues: b.HideValues, Status: b.monitor.status(r.Context()),
	}
	if r.Method == http.MethodGet { // the answer to a form stays as it is
		s.Refresh = refreshTime
	}
	return s
}

// show writes a page. The answer to a form is a whole page as well: the page with the form takes a
// part of it.
func (b *Dashboard) show(w http.ResponseWriter, code int, page string, s *shell, view any) {
	if code >= http.StatusInternalServerError && s.AsOf.Equal(s.Now) {
		s.AsOf = time.Time{} // it shows nothing that is known
	}

	var html bytes.Buffer
	b.turns <- struct{}{}
	err := writePage(&html, page, s, view)
	size := min(int64(html.Cap()), maxSent)
	if s.Refresh == 0 { // the answer to a form, whose bytes count until this was read: it has acted
		size = 0
	}
	hasRoom := b.sent.TryAcquire(size)
	<-b.turns

	if !hasRoom {
		refuseForm(w, errBusy)
		return
	}
	defer b.sent.Release(size)

	if err != nil {
		b.Log.Error("cannot show a page", "page", page, "error", err)
		http.Error(w, "This page cannot be shown: "+err.Error(), http.StatusInternalServerError)
		return
	}

	// The bytes of a form that is shown again count until its browser has read them.
	if code != http.StatusOK {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(refusalTime))
	}

	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = html.WriteTo(w) // fails if the browser is gone
}

// fail shows an error in place of a page.
func (b *Dashboard) fail(w http.ResponseWriter, r *http.Request, code int, title, text string) {
	b.show(w, code, "error", b.newShell(r, title, ""), text)
}

func (b *Dashboard) notFound(w http.ResponseWriter, r *http.Request) {
	b.fail(w, r, http.StatusNotFound, "Not found", "There is no such page.")
}

// failWith is fail for the error of a request to a bridge.
func (b *Dashboard) failWith(w http.ResponseWriter, r *http.Request, err error) {
	b.fail(w, r, codeOf(err), "That did not work", err.Error())
}

// log notes an action: who did it, to which queue, and the rest except values that are "" or nil.
func (b *Dashboard) log(r *http.Request, action string, q queueRef, rest ...any) {
	name := q.Kind + "." + q.Name
	args := []any{"action", action, "queue", name, "user", callerOf(r).name, "from", r.RemoteAddr}
	for pair := range slices.Chunk(rest, 2) {
		if pair[1] != nil && pair[1] != "" {
			args = append(args, pair...)
		}
	}
	b.Log.Info("action", args...)
}

// within calls page with one context for all its requests: what they do not find out in time is
// not known.
func (b *Dashboard) within(d time.Duration, page http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeoutCause(r.Context(), d, fmt.Errorf("waited %v", d))
		defer cancel()
		b.monitor.freshen(ctx)
		page(w, r.WithContext(ctx))
	}
}

// ofQueue calls page with the queue that the address names, if there can be such a queue.
func (b *Dashboard) ofQueue(
	page func(http.ResponseWriter, *http.Request, queueRef),
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q := refOf(r.PathValue("kind"), r.PathValue("name"))
		if err := b.gateway.check(q); err != nil {
			b.fail(w, r, http.StatusNotFound, "No queue", err.Error())
			return
		}
		page(w, r, q)
	}
}

func (b *Dashboard) getBridges(w http.ResponseWriter, r *http.Request) {
	s := b.newShell(r, "Bridges", "bridges")
	var v *bridgesView
	v, s.AsOf = b.monitor.bridgesView()
	b.show(w, http.StatusOK, "bridges", s, v)
}

// getReady answers probes: whether NATS is there, and why not.
func (b *Dashboard) getReady(w http.ResponseWriter, _ *http.Request) {
	if !b.Conn.IsConnected() {
		http.Error(w, b.gateway.because(errAway.Error()), http.StatusServiceUnavailable)
	}
}

// showScan shows a page of a scan. It soon asks again if it has only a part.
func (b *Dashboard) showScan(
	w http.ResponseWriter, s *shell, page string, state scanState, view any,
) {
	if s.AsOf = state.asOf; state.Running {
		s.Refresh = soonTime
	}
	b.show(w, codeOf(state.Err), page, s, view)
}
