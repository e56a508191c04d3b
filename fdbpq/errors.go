package fdbpq

import "errors"

// Errors of this package. Errors of the store (package kv) pass through as
// they are.
var (
	// ErrEmpty is returned by pops and peeks that find no item.
	ErrEmpty = errors.New("fdbpq: the queue is empty")

	// ErrMessageTooLarge is returned by pushes of a message that does not fit
	// into one transaction: see MaxMessageSize.
	ErrMessageTooLarge = errors.New("fdbpq: the message is too large")

	// ErrKeyspace is returned for key prefixes with which two kinds of keys would
	// be in one place.
	ErrKeyspace = errors.New("fdbpq: invalid key prefixes")

	// ErrQueueName is returned for names that are not 1 to 128 bytes long.
	ErrQueueName = errors.New("fdbpq: invalid queue name")

	// ErrID is returned for texts that are not an item's id.
	ErrID = errors.New("fdbpq: invalid item id")

	// ErrOp is returned for an operation that the queue does not have.
	ErrOp = errors.New("fdbpq: invalid operation")

	// ErrCorrupt is returned for stored bytes that no version of this package
	// wrote. Nothing is changed or removed.
	ErrCorrupt = errors.New("fdbpq: the stored data is not readable")
)
