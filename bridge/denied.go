package bridge

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
)

// This file is the part of outbox that finds out which replies the server denied.

// noteDenied records that the server has denied a message to the subject.
func (o *outbox) noteDenied(subject string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.mu.ended {
		o.mu.denials[subject]++
	}
}

// hear records that asyncError has handled an error.
func (o *outbox) hear(err error) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mu.heard = err
	o.mu.hearings[err] = struct{}{}
	signal(o.news)
}

// exchange sends a PING, then waits for the PONG and for hearGone and asyncError to handle
// everything that came before it. It is not certain of the latter if it cannot tell the
// newest error from others.
func (o *outbox) exchange(ctx context.Context) (certain bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, min(natsPatience, o.b.options.ShutdownTimeout/4))
	defer cancel()
	if err := o.b.nc.FlushWithContext(ctx); err != nil {
		return false, err
	}
	if err := o.awaitGone(ctx); err != nil {
		return false, err
	}
	// The client sets LastError before it reads on, and calls asyncError in the same
	// order from a goroutine of its own.
	newest := o.b.nc.LastError()
	if !errors.Is(newest, nats.ErrPermissionViolation) {
		return newest == nil, nil
	}
	for !o.hasHeard(newest) {
		select {
		case <-o.news:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	return true, nil
}

func (o *outbox) hasHeard(err error) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, heard := o.mu.hearings[err]
	return heard
}

// tally counts the replies to one subject.
type tally struct {
	denied int
	asked  int  // before the PING
	later  int  // handed over since
	all    bool // were denied
}

// decideLocked attributes the denials to replies, and returns those that were
// certainly denied; those without an item have no queue. It returns false if that
// takes another round, because other replies to the same subject were handed over after
// the PING and may be the denied ones, or because more denials may yet be heard.
func (o *outbox) decideLocked(certain bool) (undelivered []sentItem, decided bool) {
	if len(o.mu.denials) == 0 {
		return nil, true
	}
	tallies := o.tallyLocked()
	for _, t := range tallies {
		unclear := t.later > 0 || !certain && t.denied < t.asked
		if unclear && o.mu.undecided < maxUndecided {
			o.mu.undecided++
			return nil, false
		}
	}
	o.mu.undecided = 0
	clear(o.mu.denials)
	for subject, t := range tallies {
		t.all = t.asked > 0 && t.denied >= t.asked+t.later
		if !t.all {
			o.b.quiet.replies.warn("NATS refused a message, and it is not known which one: if it was the reply to a pop, the item is lost",
				"subject", shorten(subject), "refused", t.denied, "of", t.asked+t.later)
		} else if t.later > 0 {
			o.mu.denials[subject] = t.denied - t.asked
		}
	}
	for _, c := range o.mu.chunks {
		if !c.asked {
			continue
		}
		for i := range c.replies {
			if c.replies[i].decide(tallies) {
				undelivered = append(undelivered, sentItem{sentReply: c.replies[i]})
			}
		}
		for i := range c.items {
			if c.items[i].decide(tallies) {
				undelivered = append(undelivered, c.items[i])
			}
		}
	}
	return undelivered, true
}

// decide reports whether the reply was certainly denied. Once decided, a reply is not
// counted again.
func (s *sentReply) decide(tallies map[string]*tally) bool {
	t := tallies[s.subject]
	if t == nil || s.decided {
		return false
	}
	s.decided = true
	return t.all
}

func (o *outbox) tallyLocked() map[string]*tally {
	tallies := make(map[string]*tally, len(o.mu.denials))
	for subject, n := range o.mu.denials {
		tallies[subject] = &tally{denied: n}
	}
	for _, c := range o.mu.chunks {
		count := func(s *sentReply) {
			t := tallies[s.subject]
			switch {
			case t == nil || s.decided:
			case c.asked:
				t.asked++
			default:
				t.later++
			}
		}
		for i := range c.replies {
			count(&c.replies[i])
		}
		for i := range c.items {
			count(&c.items[i].sentReply)
		}
	}
	return tallies
}

// undelivered counts the error of a reply that was denied, and gives its item back.
func (b *Bridge) undelivered(s *sentItem) {
	if s.endpoint != nil {
		s.endpoint.failedLate(failureOf(fmt.Errorf("%w: NATS does not let this service publish to the reply subject %.64q: want an inbox",
			ErrBadRequest, withoutToken(s.subject))))
	}
	b.giveBack(s, reasonDenied)
}

// giveBack gives back the items of a reply that was not received, if it has any. If the request
// waits for more, it ends, and first: else it would get the item again.
func (b *Bridge) giveBack(s *sentItem, why reason) {
	b.dispatcher.Cancel(s.waits)
	switch {
	case len(s.popped)+len(s.leased) > 0:
		for i := range s.popped {
			b.restorer.restore(s.queue, &s.popped[i], why)
		}
		for i := range s.leased {
			b.release(s.queue, &s.leased[i].Token, why)
		}
	case s.lease != nil:
		b.release(s.queue, s.lease, why)
	case s.queue != nil:
		b.restorer.restore(s.queue, &s.item, why)
	}
}
