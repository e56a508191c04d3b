package outbox

import (
	"errors"

	"github.com/nats-io/nats.go"
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
	if err == o.mu.awaited {
		close(o.mu.caughtUp)
		o.mu.awaited = nil
	}
}

// decideLocked attributes the denials to replies, and returns what those carried that were certainly
// denied. It returns false if that takes another round, because the denials of other replies to the
// same subject may come yet.
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

	// What cannot be told apart counts as delivered: an item that goes back must not have arrived.
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
