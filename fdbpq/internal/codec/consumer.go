package codec

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// Programs can read a queue through consumers, which another protocol than this package's defines.
// What it has to remember of each is a record beside the settings:
//
//	("p", name) = bytes
//
// This package only keeps the bytes. A queue with a record is in the list of queues, as one with
// settings is.

const kindConsumer = "p"

// Bounds of the records of consumers.
const (
	MaxConsumers     = 100  // of a queue
	MaxConsumerName  = 128  // bytes
	MaxConsumerValue = 4096 // bytes
)

func (l *Layout) ConsumerKey(name string) []byte {
	return tuple.AppendString(l.Key(kindConsumer, len(name)+2), name)
}

// ConsumerRange is the range of all records, which are in the order of their names.
func (l *Layout) ConsumerRange() kv.Range { return l.KindRange(kindConsumer) }

// ParseConsumer returns the name in the key of a record.
func (l *Layout) ParseConsumer(key []byte) (name string, err error) {
	d := decoder{rest: l.Place(key)}
	name = d.text()
	if err := d.end(); err != nil {
		return "", fmt.Errorf("%w: consumer: key %x: %w", ErrCorrupt, key, err)
	}
	return name, nil
}

// CheckConsumer returns an error unless the name can be a token of a subject.
func CheckConsumer(name string) error {
	bad := func(r rune) bool { return strings.ContainsRune(".*>", r) || unicode.IsSpace(r) || unicode.IsControl(r) }
	if len(name) == 0 || len(name) > MaxConsumerName || !utf8.ValidString(name) || strings.ContainsFunc(name, bad) {
		return fmt.Errorf("%w: a consumer named %.*q: want 1 to %d bytes of UTF-8 without dots, spaces, *, > and control characters",
			ErrOp, MaxConsumerName, name, MaxConsumerName)
	}
	return nil
}
