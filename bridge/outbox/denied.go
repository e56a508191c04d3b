package outbox

import (
	"errors"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/internal/wire"
)

// This file finds out which replies the server denied.

// maxUndecided limits the rounds that replies wait while it is unclear whether they are the denied
// ones.
const maxUndecided = 4

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
	o.mu.heard = err
	o.mu.hearings[err] = struct{}{}
	signal(o.news)
}

func (o *Outbox) hasHeard(err error) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, heard := o.mu.hearings[err]
	return heard
}

// replyCounts counts the replies to one subject.
type replyCounts struct {
	denied int
	asked  int  // before the PING
	later  int  // handed over since
	all    bool // were denied
}

// decideLocked attributes the denials to replies, and returns those that were certainly denied;
// those without an item have no queue. It returns false if that takes another round, because other
// replies to the same subject were handed over after the PING and may be the denied ones, or
// because more denials may yet be heard.
func (o *Outbox) decideLocked(certain bool) (undelivered []sentItem, decided bool) {
	if len(o.mu.denials) == 0 {
		return nil, true
	}

	// If in doubt, wait for another round, within bounds.
	counts := o.countRepliesLocked()
	for _, t := range counts {
		unclear := t.later > 0 || !certain && t.denied < t.asked
		if unclear && o.mu.undecided < maxUndecided {
			o.mu.undecided++
			return nil, false
		}
	}

	// What cannot be told apart counts as delivered: an item that goes back must not have arrived.
	o.mu.undecided = 0
	clear(o.mu.denials)
	for subject, t := range counts {
		t.all = t.asked > 0 && t.denied >= t.asked+t.later
		if !t.all {
			o.config.Warn("NATS refused a message, and it is not known which one: if it was the reply to a pop, the item is lost",
				"subject", wire.Shorten(subject), "refused", t.denied, "of", t.asked+t.later)
		} else if t.later > 0 {
			o.mu.denials[subject] = t.denied - t.asked
		}
	}

	for _, c := range o.mu.chunks {
		if !c.asked {
			continue
		}
		c.each(func(s *sentReply, item *sentItem) {
			switch denied := s.decide(counts); {
			case denied && item != nil:
				undelivered = append(undelivered, *item)
			case denied:
				undelivered = append(undelivered, sentItem{sentReply: *s})
			}
		})
	}
	return undelivered, true
}

// decide reports whether the reply was certainly denied. Once decided, a reply is not counted
// again.
func (s *sentReply) decide(counts map[string]*replyCounts) bool {
	t := counts[s.subject]
	if t == nil || s.decided {
		return false
	}
	s.decided = true
	return t.all
}

func (o *Outbox) countRepliesLocked() map[string]*replyCounts {
	counts := make(map[string]*replyCounts, len(o.mu.denials))
	for subject, n := range o.mu.denials {
		counts[subject] = &replyCounts{denied: n}
	}

	for _, c := range o.mu.chunks {
		c.each(func(s *sentReply, _ *sentItem) {
			t := counts[s.subject]
			switch {
			case t == nil || s.decided:
			case c.asked:
				t.asked++
			default:
				t.later++
			}
		})
	}
	return counts
}

// denied counts the error of a reply that was denied, and gives its items back.
func (o *Outbox) denied(s *sentItem) {
	if s.endpoint != nil {
		s.endpoint.Denied(s.subject)
	}
	o.ReturnAll(&s.Content, Denied)
}
