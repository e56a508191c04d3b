package fdbpq

import "errors"

// Errors of this package. Errors of the store, which are those of package kv, pass through
// unchanged.
var (
	// ErrEmpty is returned by pops and peeks that find no item.
	ErrEmpty = errors.New("fdbpq: the queue is empty")

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

	// ErrMaxBytes is returned by pops whose item exceeds Op.MaxBytes.
	ErrMaxBytes = errors.New("fdbpq: the item exceeds the bytes asked for")

	// ErrOp is returned for an operation that the queue does not support.
	ErrOp = errors.New("fdbpq: invalid operation")

	// ErrCorrupt is returned for stored data that this version of the package cannot
	// decode. It is neither changed nor removed.
	ErrCorrupt = errors.New("fdbpq: stored data cannot be read")
)
