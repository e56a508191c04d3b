package codec

import (
	"fmt"
	"time"
)

// Message is what a push adds to a queue.
type Message struct {
	// Value is the payload. It may be empty.
	Value []byte
	// Headers travel with the value unchanged. nil means none.
	Headers map[string][]string
	// MsgID names the push, so that it is done once: see Settings.DuplicateWindow. "" means none;
	// at most MaxKey bytes.
	MsgID string
	// Unique is a key that no other item has as long as this one is in the queue, ready, leased or
	// delayed. "" means none; at most MaxKey bytes.
	Unique string
	// Expires is when the item expires, to the microsecond, by the clock of the process that serves
	// it; zero is never. A push may set it, but see Op.TTL and Settings.TTL.
	Expires time.Time
	// DeadLetter says how the message came into a dead-letter queue; nil for all others.
	DeadLetter *DeadLetter
}

// Size is how many bytes the message counts with where bytes are limited, as by Op.MaxBytes: the
// value; the names and values of headers, MsgID and Unique, with two bytes more for each text and
// zero bytes twice; 9 bytes for Expires; and the texts of DeadLetter, with 38 bytes more. That is
// about what it takes in a transaction.
func (m Message) Size() int {
	n := len(m.Value) + m.DeadLetter.size()
	for _, key := range [...]string{m.MsgID, m.Unique} {
		if key != "" {
			n += textSize(key)
		}
	}
	if !m.Expires.IsZero() {
		n += 9
	}

	for name, values := range m.Headers {
		n += textSize(name)
		for _, v := range values {
			n += textSize(v)
		}
	}
	return n
}

// Item is a message in a queue.
type Item struct {
	ID ID
	Message
	// PushedAt is when the item was pushed, to the microsecond, by the clock of the process that
	// pushed it. It is the zero time for items that another program wrote with the bare recipe.
	PushedAt time.Time

	kept *Kept // usually nil
}

// Kept is what restoring an item needs besides what the item says.
type Kept struct {
	Value []byte // as stored, of an item that another program wrote
	Past  []byte // its history, as stored; nil if it has none
}

// KeptOf returns what is kept for restoring the item, nil for most.
func KeptOf(i *Item) *Kept { return i.kept }

// KeepFor keeps what restoring the item needs.
func KeepFor(i *Item, k *Kept) { i.kept = k }

// End is an end of a queue.
type End uint8

const (
	// Front is the end with the smallest priority and, among equals, the oldest item.
	Front End = iota
	// Back is the end with the largest priority and, among equals, the newest item. A
	// Queue is not served from its back.
	Back
)

var ErrFIFOEnd = fmt.Errorf("%w: a FIFO queue has pops and peeks at its front only", ErrOp)

// ItemState is what an item in a queue waits for.
type ItemState uint8

// The states of items. AnyState is that of no item.
const (
	AnyState ItemState = iota
	Ready              // to be popped
	Delayed            // held back until a time
	Leased             // with whoever leased it
)

// String returns "any", "ready", "delayed" or "leased". The keys of counters have these names.
func (s ItemState) String() string {
	if names := [...]string{"any", "ready", "delayed", "leased"}; int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("ItemState(%d)", uint8(s))
}

// DeadLetter says how an item came into a dead-letter queue.
type DeadLetter struct {
	// Queue is the name of the queue that the item was in; "" if that is outside a Keyspace.
	Queue string
	// Reason is ReasonMaxDeliver, ReasonTerminated, or what OpTerm gave.
	Reason string
	// At is when the item was moved, to the microsecond.
	At time.Time
	// Deliveries is how many deliveries the item had.
	Deliveries int64
	// Error is the reason of the last negative acknowledgement that gave one.
	Error string
}

// Reasons of dead letters.
const (
	ReasonMaxDeliver = "max_deliver"
	ReasonTerminated = "terminated"
)

// size is about the number of bytes that a DeadLetter takes in a transaction.
func (d *DeadLetter) size() int {
	if d == nil {
		return 0
	}
	return textSize(d.Queue) + textSize(d.Reason) + textSize(d.Error) + 32
}
