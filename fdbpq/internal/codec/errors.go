package codec

import (
	"errors"
	"fmt"
	"time"
)

// The errors of package fdbpq, which says when they are returned.
var (
	ErrEmpty           = errors.New("fdbpq: the queue is empty")
	ErrPaused          = errors.New("fdbpq: the queue is paused")
	ErrRate            = errors.New("fdbpq: the queue's rate is used up")
	ErrGroupLimits     = errors.New("fdbpq: nothing may be served now")
	ErrMaxLeased       = errors.New("fdbpq: as many items are leased as max_leased allows")
	ErrFull            = errors.New("fdbpq: the queue is full")
	ErrFullBytes       = fmt.Errorf("%w by its bytes", ErrFull)
	ErrMessageTooLarge = errors.New("fdbpq: the message is too large")
	ErrKeyspace        = errors.New("fdbpq: invalid key prefixes")
	ErrQueueName       = errors.New("fdbpq: invalid queue name")
	ErrID              = errors.New("fdbpq: invalid item id")
	ErrToken           = errors.New("fdbpq: invalid lease token")
	ErrLeaseLost       = errors.New("fdbpq: the lease is lost or the item is settled")
	ErrItemTooLarge    = errors.New("fdbpq: the item is too large")
	ErrMaxBytes        = fmt.Errorf("%w: it exceeds max_bytes", ErrItemTooLarge)
	ErrNoRoom          = errors.New("fdbpq: one transaction has no room for all that comes with it: try again")
	ErrExists          = errors.New("fdbpq: the item is in the queue")
	ErrNoSource        = errors.New("fdbpq: the queue has no source")
	ErrNotFound        = errors.New("fdbpq: no such item")
	ErrLeased          = errors.New("fdbpq: the item is leased")
	ErrNotLeased       = errors.New("fdbpq: the item is not leased")
	ErrNotDeadLetter   = errors.New("fdbpq: the item is not a dead letter")
	ErrManyRates       = errors.New("fdbpq: too many groups have a rate in use to purge all at once: purge the states one by one")
	ErrMaxRecords      = errors.New("fdbpq: the queue has as many as it can have")
	ErrSettings        = errors.New("fdbpq: invalid settings")
	ErrOp              = errors.New("fdbpq: invalid operation")
	ErrCorrupt         = errors.New("fdbpq: stored data cannot be read")
)

// LostLeases is the ErrLeaseLost of acknowledgements that follow each other, so that none of them
// was done.
type LostLeases struct {
	// Lost says which of them have lost their leases, counted from 0 and ascending.
	Lost []int
	// Of is how many there are.
	Of int
}

// Error implements error.
func (e *LostLeases) Error() string {
	return fmt.Sprintf("%v: %d of %d leases, the first is number %d, counted from 0: nothing was changed",
		ErrLeaseLost, len(e.Lost), e.Of, e.Lost[0])
}

// Unwrap returns ErrLeaseLost.
func (e *LostLeases) Unwrap() error { return ErrLeaseLost }

// PausedError is the error of pops and leases of a paused queue.
type PausedError struct{ Until time.Time }

// PausedAt returns the error of pops and leases at the given time, nil if they are not paused.
func PausedAt(s *Settings, now time.Time) *PausedError {
	if !s.PauseUntil.After(now) {
		return nil
	}
	return &PausedError{s.PauseUntil}
}

// Error implements error.
func (e *PausedError) Error() string {
	return fmt.Sprintf("%v until %s", ErrPaused, e.Until.UTC().Format(time.RFC3339Nano))
}

// Unwrap returns the errors that this is.
func (e *PausedError) Unwrap() []error { return []error{ErrPaused, ErrEmpty} }

// RateError is the error of pops and leases of a queue that has used up its rate.
type RateError struct {
	Rate  string
	Until time.Time // when the next item may be delivered
}

// Error implements error.
func (e *RateError) Error() string {
	return fmt.Sprintf("fdbpq: the queue's rate of %s is used up until %s", e.Rate, e.Until.UTC().Format(time.RFC3339Nano))
}

// Unwrap returns the errors that this is.
func (e *RateError) Unwrap() []error { return []error{ErrRate, ErrEmpty} }

// GroupLimitsError is the error of pops and leases that find no item of a group that may be served.
type GroupLimitsError struct {
	MaxLeasedPerGroup int64
	RatePerGroup      string
}

// Error implements error.
func (e *GroupLimitsError) Error() string {
	leased := fmt.Sprintf("have max_leased_per_group %d leased", e.MaxLeasedPerGroup)
	used := "have used up rate_per_group " + e.RatePerGroup
	switch {
	case e.RatePerGroup == "":
		used = leased
	case e.MaxLeasedPerGroup > 0:
		used = leased + " or " + used
	}
	return fmt.Sprintf("%v: the groups of the ready items %s", ErrGroupLimits, used)
}

// Unwrap returns the errors that this is.
func (e *GroupLimitsError) Unwrap() []error { return []error{ErrGroupLimits, ErrEmpty} }

// UnlessCorrupt returns nil for ErrCorrupt, and any other error.
func UnlessCorrupt(err error) error {
	if errors.Is(err, ErrCorrupt) {
		return nil
	}
	return err
}
