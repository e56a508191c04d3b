package fdbpq

import (
	"errors"
	"fmt"
)

// Errors of this package. Errors of the store, which are those of package kv, pass through
// unchanged.
var (
	// ErrEmpty is returned by pops and peeks that find no item.
	ErrEmpty = errors.New("fdbpq: the queue is empty")

	// ErrPaused is returned, wrapped together with ErrEmpty, by pops and leases of a queue that is paused:
	// see Settings.PauseUntil.
	ErrPaused = errors.New("fdbpq: the queue is paused")

	// ErrMaxLeased is returned by leases while as many items are leased as Settings.MaxLeased allows.
	ErrMaxLeased = errors.New("fdbpq: as many items are leased as max_leased allows")

	// ErrFull is returned by pushes that would leave more in the queue than Settings.MaxItems or
	// Settings.MaxBytes allows.
	ErrFull = errors.New("fdbpq: the queue is full")

	// ErrFullBytes is an ErrFull, of pushes that would leave more bytes in the queue than
	// Settings.MaxBytes allows.
	ErrFullBytes = fmt.Errorf("%w by its bytes", ErrFull)

	// ErrMessageTooLarge is returned by pushes of a message over MaxMessageSize.
	ErrMessageTooLarge = errors.New("fdbpq: the message is too large")

	// ErrKeyspace is returned for roots with which keys of two kinds would mix.
	ErrKeyspace = errors.New("fdbpq: invalid key prefixes")

	// ErrQueueName is returned for names that are not 1 to 128 bytes long.
	ErrQueueName = errors.New("fdbpq: invalid queue name")

	// ErrID is returned for text that is not an id.
	ErrID = errors.New("fdbpq: invalid item id")

	// ErrToken is returned for text that is not a token.
	ErrToken = errors.New("fdbpq: invalid lease token")

	// ErrLeaseLost is returned for a token whose lease is over, when the item is settled or
	// was delivered again.
	ErrLeaseLost = errors.New("fdbpq: the lease is lost or the item is settled")

	// ErrItemTooLarge is returned by operations that would return or move an item that is too large for them:
	// as ErrMaxBytes or with ErrNoRoom, and by leases of an item that another program wrote with a value so long
	// that no record fits beside it.
	ErrItemTooLarge = errors.New("fdbpq: the item is too large")

	// ErrMaxBytes is an ErrItemTooLarge, of pops whose item exceeds Op.MaxBytes.
	ErrMaxBytes = fmt.Errorf("%w: it exceeds max_bytes", ErrItemTooLarge)

	// ErrNoRoom is returned by operations that one transaction had no room for. What it has done helps the next
	// one, so commit it and try again. It comes wrapped together with what is known so far: ErrItemTooLarge, by leases whose
	// item had no room beside the other operations; ErrEmpty, by pops and peeks that have met nothing but
	// items that have expired, or nothing while more is to come back; ErrMaxLeased and ErrFull, while leases that are over and
	// items that have expired still count; and by nothing else while the bytes of a queue with
	// Settings.MaxBytes are being counted.
	ErrNoRoom = errors.New("fdbpq: one transaction has no room for all that comes with it: try again")

	// ErrExists is returned by OpRestore for an item that is in the queue.
	ErrExists = errors.New("fdbpq: the item is in the queue")

	// ErrNotFound is returned for an id of an item that is not in the queue.
	ErrNotFound = errors.New("fdbpq: no such item")

	// ErrLeased is returned by OpMove for an item that is leased.
	ErrLeased = errors.New("fdbpq: the item is leased")

	// ErrSettings is returned for settings that the queue cannot have.
	ErrSettings = errors.New("fdbpq: invalid settings")

	// ErrOp is returned for an operation that the queue does not support.
	ErrOp = errors.New("fdbpq: invalid operation")

	// ErrCorrupt is returned for stored data that this version of the package cannot
	// decode. It is neither changed nor removed.
	ErrCorrupt = errors.New("fdbpq: stored data cannot be read")
)

// LostLeases is the ErrLeaseLost of acknowledgements that follow each other, so that none of them was done.
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

// Unwrap returns what it is.
func (e *LostLeases) Unwrap() error { return ErrLeaseLost }
