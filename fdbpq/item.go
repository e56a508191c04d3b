package fdbpq

import (
	"strings"
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

// Size is how many bytes the message counts with where bytes are limited, as by Op.MaxBytes: the value; the names and
// values of headers, MsgID and Unique, with two bytes more for each text and zero bytes twice; 9 bytes for Expires; and the
// texts of DeadLetter, with 38 bytes more. That is about what it takes in a transaction.
func (m Message) Size() int {
	n := len(m.Value) + m.DeadLetter.size()
	for _, key := range []string{m.MsgID, m.Unique} {
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

// textSize is the length of a header name or value in a tuple, where a zero byte takes
// two.
func textSize(text string) int { return len(text) + strings.Count(text, "\x00") + 2 }

// Item is a message in a queue.
type Item struct {
	ID ID
	Message
	// PushedAt is when the item was pushed, to the microsecond, by the clock of the
	// process that pushed it. It is the zero time for items that another program wrote
	// with the bare recipe.
	PushedAt time.Time

	kept *kept // usually nil
}

// kept is what restoring an item needs besides what the item says.
type kept struct {
	value []byte // as stored, of an item that another program wrote
	past  []byte // its history, as stored; nil if it has none
}

// keptOf returns what is kept for restoring the item, nil for most.
func keptOf(i *Item) *kept { return i.kept }

// keepFor keeps what restoring the item needs.
func keepFor(i *Item, k *kept) { i.kept = k }
