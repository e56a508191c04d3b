package client

import (
	"errors"
	"time"
)

// RetryAfter returns an error for Work that is err, but gives the job back for that long, up to ten years, whatever
// the queue's backoff says. 0 or less is at once. The delivery counts, as for any error.
func RetryAfter(delay time.Duration, err error) error { return &retry{err, max(delay, 0)} }

type retry struct {
	error
	delay time.Duration
}

func (r *retry) Unwrap() error { return r.error }

// delayOf returns the delay of the negative acknowledgement that an error is.
func delayOf(err error) time.Duration {
	var r *retry
	if errors.As(err, &r) {
		return r.delay
	}
	return Backoff
}
