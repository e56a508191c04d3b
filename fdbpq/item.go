package fdbpq

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

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

// Message is what a producer hands over.
type Message struct {
	// Value is the payload. It may be empty.
	Value []byte
	// Headers travel with the value unchanged. nil means none.
	Headers map[string][]string
}

// size is about the bytes the message needs in a transaction.
func (m Message) size() int {
	n := len(m.Value)
	for name, values := range m.Headers {
		n += textSize(name)
		for _, v := range values {
			n += textSize(v)
		}
	}
	return n
}

// textSize is the bytes of a header's name or value in a tuple, where each zero
// byte takes two.
func textSize(text string) int { return len(text) + strings.Count(text, "\x00") + 2 }

// Item is a message in a queue.
type Item struct {
	ID ID
	Message
	// PushedAt is when the item was pushed, in microseconds, by the clock of
	// the process that pushed it. It is the zero time for items written by
	// other programs that use the recipe.
	PushedAt time.Time
}

// ID names an item and says where it is in its queue. Ids of different queues
// may be equal only by the chance of 72 random bits.
type ID struct {
	// Priority is the item's priority; 0 in a FIFO queue.
	Priority int64
	// Count orders items of one priority; in a FIFO queue it is the index.
	Count int64
	// Random makes the id unique. See layout.go for what is in it.
	Random [randomSize]byte
}

// String returns the id as text made of letters, digits, '-' and '_', which
// is a single NATS subject token. ParseID reads it back.
func (id ID) String() string {
	var b [64]byte
	packed := tuple.AppendInt(b[:0], id.Priority)
	packed = tuple.AppendInt(packed, id.Count)
	packed = append(packed, id.Random[:]...)
	return base64.RawURLEncoding.EncodeToString(packed)
}

// ParseID reads the text form of an id. Errors wrap ErrID.
func ParseID(text string) (ID, error) {
	var id ID
	packed, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || strings.ContainsAny(text, "\r\n") { // which the decoder skips
		return id, fmt.Errorf("%w: %.100q is not base64url: want an id as a push or pop returned it", ErrID, text)
	}
	priority, rest, err := tuple.DecodeInt(packed)
	if err != nil {
		return id, fmt.Errorf("%w: %.100q: priority: %w", ErrID, text, err)
	}
	count, rest, err := tuple.DecodeInt(rest)
	if err != nil {
		return id, fmt.Errorf("%w: %.100q: count: %w", ErrID, text, err)
	}
	if len(rest) != randomSize {
		return id, fmt.Errorf("%w: %.100q ends in %d bytes: want %d", ErrID, text, len(rest), randomSize)
	}
	id.Priority, id.Count = priority, count
	copy(id.Random[:], rest)
	return id, nil
}
