package codec

import (
	"errors"
	"fmt"
)

// Errors of package fdbpq, which says when they are returned and has more of its own.
var (
	ErrEmpty        = errors.New("fdbpq: the queue is empty")
	ErrPaused       = errors.New("fdbpq: the queue is paused")
	ErrFull         = errors.New("fdbpq: the queue is full")
	ErrFullBytes    = fmt.Errorf("%w by its bytes", ErrFull)
	ErrKeyspace     = errors.New("fdbpq: invalid key prefixes")
	ErrQueueName    = errors.New("fdbpq: invalid queue name")
	ErrID           = errors.New("fdbpq: invalid item id")
	ErrToken        = errors.New("fdbpq: invalid lease token")
	ErrItemTooLarge = errors.New("fdbpq: the item is too large")
	ErrNoRoom       = errors.New("fdbpq: one transaction has no room for all that comes with it: " +
		"try again")
	ErrExists    = errors.New("fdbpq: the item is in the queue")
	ErrNotFound  = errors.New("fdbpq: no such item")
	ErrManyRates = errors.New("fdbpq: too many groups have a rate in use to purge all at once: " +
		"purge the states one by one")
	ErrSettings = errors.New("fdbpq: invalid settings")
	ErrOp       = errors.New("fdbpq: invalid operation")
	ErrCorrupt  = errors.New("fdbpq: stored data cannot be read")
)

// UnlessCorrupt returns nil for ErrCorrupt, and any other error.
func UnlessCorrupt(err error) error {
	if errors.Is(err, ErrCorrupt) {
		return nil
	}
	return err
}
