package outbox

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
)

// roundPause is the time from the end of a round to the next.
const roundPause = 10 * time.Millisecond

// Run confirms replies until ctx ends.
func (o *Outbox) Run(ctx context.Context) {
	defer o.End()
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		// Without replies to confirm there are no rounds.
		select {
		case <-o.wake:
		case <-ctx.Done():
			return
		}

		pause.Reset(roundPause)
		select {
		case <-pause.C:
		case <-o.hurry:
		case <-ctx.Done():
			return
		}

		if o.round(ctx); o.hasEnded() {
			return
		}
	}
}

// round confirms the replies handed over before it.
func (o *Outbox) round(ctx context.Context) {
	if !o.markAsked() {
		return
	}

	stopping := o.config.Stopping()
	if stopping && !o.config.Conn().IsConnected() {
		o.End() // nobody would answer
		return
	}

	certain, err := o.exchange(ctx)
	switch {
	case err == nil:
		o.confirm(certain)
	case stopping:
		o.End()
	default:
		// The connection is down, or the server is busy. Errors that a broken connection did
		// not deliver are lost, and so are the items whose replies the server denied.
		o.deleteBefore(time.Now().Add(-maxUnconfirmedAge))
	}

	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.mu.chunks) > 0 {
		signal(o.wake)
	}
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
// that came before it. It is not certain of the latter if it cannot tell the newest error from
// others.
func (o *Outbox) exchange(ctx context.Context) (certain bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, o.config.Patience)
	defer cancel()

	if err := o.config.Conn().FlushWithContext(ctx); err != nil {
		return false, err
	}
	if err := o.awaitGone(ctx); err != nil {
		return false, err
	}

	// The client sets LastError before it reads on, and reports errors in the same order from a
	// goroutine of its own.
	o.mu.Lock()
	newest := o.config.Conn().LastError()
	certain = newest == nil || newest == o.mu.heard
	if certain || !errors.Is(newest, nats.ErrPermissionViolation) {
		o.mu.Unlock()
		return certain, nil
	}
	caughtUp := make(chan struct{})
	o.mu.awaited, o.mu.caughtUp = newest, caughtUp
	o.mu.Unlock()

	select {
	case <-caughtUp:
		return true, nil
	case <-ctx.Done():
		return false, ctx.Err()
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

	for i := range undelivered {
		o.ReturnAll(&undelivered[i], Denied) // before the chunks are deleted, because then the lanes may end
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
