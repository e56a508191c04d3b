package codec

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// MaxMessageSize is the largest size of a message, in bytes: its value and headers. Zero
// bytes in headers count twice, and each header name and value counts two bytes more. The
// limit leaves room for keys in a transaction.
const MaxMessageSize = 9_000_000

// ChunkSize is the most bytes of a value that go into one key. Packing into a tuple can
// double them, so TupleValues take half as many.
const ChunkSize = 90_000

func ChunkOf(f ValueFormat) int {
	if f == TupleValues {
		return ChunkSize / 2
	}
	return ChunkSize
}

func EncodeValue(f ValueFormat, value []byte) []byte {
	if f == TupleValues {
		return tuple.AppendBytes(make([]byte, 0, len(value)+2), value)
	}
	return value
}

// DecodeValue reverses EncodeValue. Bytes that are not a tuple of one byte string come from a
// program with another format, and are returned as they are.
func DecodeValue(f ValueFormat, stored []byte) []byte {
	if f == TupleValues {
		if value, rest, err := tuple.DecodeBytes(stored, nil); err == nil && len(rest) == 0 {
			return value
		}
	}
	return stored
}

// NeedsMeta reports whether the message needs ("m") keys.
func (l *Layout) NeedsMeta(m *Message) bool {
	return len(m.Headers) > 0 || m.DeadLetter != nil || m.needsList() || len(m.Value) > ChunkOf(l.Format)
}

// The values of the ("m") keys, put together, are a varint, a tuple of that length, and the rest of
// the item's value. The tuple is one of
//
//	(1, (name, value, value...), ...)
//	(2, dead letter, (name, value, value...), ...)
//	(3, (property, its value, ...), (name, value, value...), ...)
const (
	metaVersion      = 1
	metaVersionDead  = 2
	metaVersionProps = 3
)

// The properties of a message in version 3: all it has besides headers. One that is only a dead
// letter has version 2.
const (
	propMsgID   = "msg_id"
	propUnique  = "unique"
	propExpires = "expires" // in microseconds since 1970
	propDead    = "dead"
)

// needsList reports whether the message has properties that only version 3 has.
func (m *Message) needsList() bool {
	return m.MsgID != "" || m.Unique != "" || !m.Expires.IsZero()
}

// properties returns what decodeProperties reads.
func (m *Message) properties() (list tuple.Tuple) {
	if m.MsgID != "" {
		list = append(list, propMsgID, []byte(m.MsgID))
	}
	if m.Unique != "" {
		list = append(list, propUnique, []byte(m.Unique))
	}
	if !m.Expires.IsZero() {
		list = append(list, propExpires, m.Expires.UnixMicro())
	}
	if m.DeadLetter != nil {
		list = append(list, propDead, m.DeadLetter.encode())
	}
	return list
}

// decodeProperties sets the properties, and reports whether it knows all of them.
func (m *Message) decodeProperties(from any) bool {
	list, ok := from.(tuple.Tuple)
	for ; ok && len(list) > 1; list = list[2:] {
		var text []byte
		var micros int64
		var err error
		switch list[0] {
		case propMsgID:
			ok = element(list[1], &text)
			m.MsgID = string(text)
		case propUnique:
			ok = element(list[1], &text)
			m.Unique = string(text)
		case propExpires:
			ok = element(list[1], &micros)
			m.Expires = time.UnixMicro(micros).UTC()
		case propDead:
			m.DeadLetter, err = parseDeadLetter(list[1])
			ok = err == nil
		default:
			return false
		}
	}
	return ok && len(list) == 0
}

// EncodeMeta returns what the ("m") keys hold before the rest of the value.
func EncodeMeta(m *Message) []byte {
	head := tuple.Tuple{int64(metaVersion)}
	switch {
	case m.needsList():
		head = tuple.Tuple{int64(metaVersionProps), m.properties()}
	case m.DeadLetter != nil:
		head = tuple.Tuple{int64(metaVersionDead), m.DeadLetter.encode()}
	}

	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		header := tuple.Tuple{[]byte(name)} // as bytes, since it need not be UTF-8
		for _, value := range m.Headers[name] {
			header = append(header, []byte(value))
		}
		head = append(head, header)
	}

	packed := head.Pack()
	blob := binary.AppendUvarint(make([]byte, 0, binary.MaxVarintLen32+len(packed)), uint64(len(packed)))
	return append(blob, packed...)
}

// DecodeMeta returns a message without value, and the rest of the value.
func DecodeMeta(parts []kv.KeyValue) (m Message, rest []byte, err error) {
	size := 0
	for _, part := range parts {
		size += len(part.Value)
	}
	blob := make([]byte, 0, size)
	for _, part := range parts {
		blob = append(blob, part.Value...)
	}

	n, used := binary.Uvarint(blob)
	if used <= 0 || n > uint64(len(blob)-used) {
		return m, nil, fmt.Errorf("%w: length of headers", ErrCorrupt)
	}

	head, err := tuple.Unpack(blob[used : used+int(n)])
	if err != nil {
		return m, nil, fmt.Errorf("%w: headers: %w", ErrCorrupt, err)
	}

	switch {
	case len(head) > 0 && head[0] == int64(metaVersion):
		head = head[1:]
	case len(head) > 1 && head[0] == int64(metaVersionDead):
		if m.DeadLetter, err = parseDeadLetter(head[1]); err != nil {
			return m, nil, fmt.Errorf("%w: headers: %w: %v", ErrCorrupt, err, head[1])
		}
		head = head[2:]
	case len(head) > 1 && head[0] == int64(metaVersionProps):
		if !m.decodeProperties(head[1]) {
			return m, nil, fmt.Errorf("%w: headers: properties %v", ErrCorrupt, head[1])
		}
		head = head[2:]
	default:
		return m, nil, fmt.Errorf("%w: headers are not of version %d to %d", ErrCorrupt, metaVersion, metaVersionProps)
	}

	for _, element := range head {
		name, values, ok := decodeHeader(element)
		if !ok {
			return m, nil, fmt.Errorf("%w: header %v", ErrCorrupt, element)
		}
		if m.Headers == nil {
			m.Headers = make(map[string][]string, len(head))
		}
		m.Headers[name] = values
	}
	return m, blob[used+int(n):], nil
}

func decodeHeader(from any) (name string, values []string, ok bool) {
	header, ok := from.(tuple.Tuple)
	if !ok || len(header) == 0 {
		return "", nil, false
	}

	texts := make([]string, len(header))
	for i := range header {
		var text []byte
		if !element(header[i], &text) {
			return "", nil, false
		}
		texts[i] = string(text)
	}
	return texts[0], texts[1:], true
}

// Following returns count + 1. At the end of int64, which only another program can
// reach, it stays there, and the time in the id orders the items.
func Following(count int64) int64 { return max(count, count+1) }

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
