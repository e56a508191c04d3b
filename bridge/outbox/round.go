package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/internal/signal"
	"github.com/pqbridge/pqbridge/bridge/internal/wire"
)

// This file works in rounds, and finds out in each which replies the server denied.

const (
	// roundPause is the time from the end of a round to the next.
	roundPause = 10 * time.Millisecond
	// maxUndecided limits the rounds that replies wait while it is unclear whether they are the
	// denied ones.
	maxUndecided = 4
)

// Run confirms replies until ctx ends.
func (o *Outbox) Run(ctx context.Context) {
	defer o.End()
	for goesOn := true; goesOn; {
		// Without replies to confirm there are no rounds.
		select {
		case <-o.wake:
		case <-ctx.Done():
			return
		}

		goesOn = signal.Pause(ctx, roundPause) && o.round(ctx)
	}
}

// round confirms the replies handed over before it. It returns false if the bridge stops and NATS
// does not answer.
func (o *Outbox) round(ctx context.Context) (goesOn bool) {
	if !o.markAsked() {
		return true
	}

	stopping := o.config.Stopping()
	if stopping && !o.config.Conn().IsConnected() {
		return false
	}

	// If the connection is down, or the server busy, the next round asks again. Errors that a
	// broken connection did not deliver are lost, and so are the items whose replies the server
	// denied.
	certain, err := o.exchange(ctx)
	if err == nil {
		o.confirm(certain)
	} else if stopping {
		return false
	}

	if o.Unconfirmed() {
		signal.To(o.wake)
	}
	return true
}

// markAsked marks the replies that the next PING will confirm, and returns false if there are none.
func (o *Outbox) markAsked() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range o.mu.chunks {
		c.asked = true
	}
	return len(o.mu.chunks) > 0
}

// exchange sends a PING, then waits for the PONG and for hearGone and Heard to handle everything
// that came before it. It is not certain of the latter if other errors hide the newest denial.
func (o *Outbox) exchange(ctx context.Context) (certain bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, o.config.Patience)
	defer cancel()

	if err := o.config.Conn().FlushWithContext(ctx); err != nil {
		return false, err
	}

	if wire.Await(ctx, o.listening()) > 0 {
		return false, ctx.Err()
	}

	o.mu.Lock()
	caughtUp := o.mu.reports.await(o.config.Conn().LastError())
	o.mu.Unlock()
	if caughtUp == nil {
		return false, nil
	}

	select {
	case <-caughtUp:
		return true, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// NoteDenied records that the server has denied a message to the subject.
func (o *Outbox) NoteDenied(subject string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.mu.ended {
		o.mu.denials[subject]++
	}
}

// Heard records that the bridge has handled an error that NATS reported, and has called NoteDenied
// if it is a denial.
func (o *Outbox) Heard(err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}

	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.reports.handled(err)
}

// reports follows the denials that the NATS client reports. The client makes an error for each,
// sets LastError to it before it reads on, and passes them to Heard in the same order, from a
// goroutine of its own. So once Heard has handled LastError, it has handled all before it.
type reports struct {
	latest   error         // the latest denial that was handled
	awaited  error         // await waits for it; nil if there is none
	caughtUp chan struct{} // closed when awaited was handled
}

// await returns a channel that is closed once everything up to the client's last error is handled,
// or nil if that cannot be known: the last error is no denial, so Heard does not get it, and it may
// have replaced one.
func (r *reports) await(last error) <-chan struct{} {
	caughtUp := make(chan struct{})
	switch {
	case last == nil || last == r.latest:
		close(caughtUp)
	case errors.Is(last, nats.ErrPermissionViolation):
		r.awaited, r.caughtUp = last, caughtUp
	default:
		return nil
	}
	return caughtUp
}

// handled records that a denial was handled.
func (r *reports) handled(denial error) {
	if r.latest = denial; denial == r.awaited {
		close(r.caughtUp)
		r.awaited = nil
	}
}

// confirm decides about the replies that markAsked marked, and deletes them. If the server may have
// reported errors that were not heard, that takes two rounds.
func (o *Outbox) confirm(certain bool) {
	o.mu.Lock()
	undelivered, decided := o.decideLocked(certain)
	o.mu.Unlock()
	if !decided {
		return
	}

	// Before the chunks are deleted, because then the lanes may end.
	for i := range undelivered {
		o.ReturnAll(&undelivered[i], Denied)
	}

	o.mu.Lock()
	defer o.mu.Unlock()
	o.deleteLocked(func(c *chunk) bool {
		if c.asked {
			c.rounds++
		}
		return c.asked && (certain || c.rounds > 1)
	})
}

// decideLocked attributes the denials to replies, and returns what those carried that were
// certainly denied. It returns false if that takes another round, because the denials of other
// replies to the same subject may come yet.
func (o *Outbox) decideLocked(certain bool) (undelivered []Content, decided bool) {
	if len(o.mu.denials) == 0 {
		return nil, true
	}

	sent, complete := map[string]int{}, map[string]bool{}
	for subject := range o.mu.denials {
		complete[subject] = certain
	}

	o.eachLocked(func(c *chunk, subject *string, _ *sentItem) {
		if o.mu.denials[*subject] > 0 {
			sent[*subject]++
			complete[*subject] = complete[*subject] && c.asked
		}
	})

	// If in doubt, wait for another round, within bounds.
	for subject, denied := range o.mu.denials {
		if denied < sent[subject] && !complete[subject] && o.mu.undecided < maxUndecided {
			o.mu.undecided++
			return nil, false
		}
	}

	// In doubt a reply counts as delivered: an item that goes back must not have arrived.
	o.mu.undecided = 0
	o.eachLocked(func(_ *chunk, subject *string, item *sentItem) {
		denied := o.mu.denials[*subject]
		if denied == 0 {
			return
		}

		if item != nil && denied >= sent[*subject] {
			undelivered = append(undelivered, item.Content)
		}

		*subject = "" // decided
	})

	clear(o.mu.denials)
	return undelivered, true
}

// eachLocked calls f for all replies; those without an item have no sentItem.
func (o *Outbox) eachLocked(f func(c *chunk, subject *string, item *sentItem)) {
	for _, c := range o.mu.chunks {
		for i := range c.replies {
			f(c, &c.replies[i], nil)
		}
		for i := range c.items {
			f(c, &c.items[i].subject, &c.items[i])
		}
	}
}

// Unconfirmed reports whether NATS may still deny replies that were sent.
func (o *Outbox) Unconfirmed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.mu.chunks) > 0
}

// End deletes all replies, and makes the outbox take no more of them.
func (o *Outbox) End() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.mu.ended {
		return
	}

	o.mu.ended = true
	for _, c := range o.mu.chunks {
		o.mu.abandoned += len(c.replies) + len(c.items)
	}

	o.deleteLocked(func(*chunk) bool { return true })
	clear(o.mu.denials)
}

// Abandoned returns how many replies were still unconfirmed at the end.
func (o *Outbox) Abandoned() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.mu.abandoned
}
