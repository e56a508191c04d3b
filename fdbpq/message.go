package fdbpq

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

// chunkSize is the most bytes of a value that go into one key. Packing into a tuple can
// double them, so TupleValues take half as many.
const chunkSize = 90_000

func (f ValueFormat) chunk() int {
	if f == TupleValues {
		return chunkSize / 2
	}
	return chunkSize
}

func (f ValueFormat) encode(value []byte) []byte {
	if f == TupleValues {
		return tuple.AppendBytes(make([]byte, 0, len(value)+2), value)
	}
	return value
}

// decode reverses encode. Bytes that are not a tuple of one byte string come from a program
// with another format, and are returned as they are.
func (f ValueFormat) decode(stored []byte) []byte {
	if f == TupleValues {
		if value, rest, err := tuple.DecodeBytes(stored); err == nil && len(rest) == 0 {
			return value
		}
	}
	return stored
}

// needsMeta reports whether the message needs ("m") keys.
func (l *layout) needsMeta(m *Message) bool {
	return len(m.Headers) > 0 || m.DeadLetter != nil || !m.Expires.IsZero() || len(m.Value) > l.format.chunk()
}

// The values of the ("m") keys, put together, are a varint, a tuple of that length, and the
// rest of the item's value. The tuple is (1, (name, value, value...), ...), or (2, dead letter,
// (name, value, value...), ...), or, of an item that expires, (3, microseconds, dead letter or (),
// (name, value, value...), ...).
const (
	metaVersion        = 1
	metaVersionDead    = 2
	metaVersionExpires = 3
)

// encodeMeta returns what the ("m") keys hold before the rest of the value.
func encodeMeta(m *Message) []byte {
	head := tuple.Tuple{int64(metaVersion)}
	if m.DeadLetter != nil {
		head = tuple.Tuple{int64(metaVersionDead), m.DeadLetter.encode()}
	}
	if !m.Expires.IsZero() {
		head = tuple.Tuple{int64(metaVersionExpires), m.Expires.UnixMicro(), tuple.Tuple{}}
		if m.DeadLetter != nil {
			head[2] = m.DeadLetter.encode()
		}
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

// decodeMeta returns a message without value, and the rest of the value.
func decodeMeta(parts []kv.KeyValue) (m Message, rest []byte, err error) {
	var blob []byte
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
	if len(head) > 2 && head[0] == int64(metaVersionExpires) {
		var micros int64
		if !element(head[1], &micros) {
			return m, nil, fmt.Errorf("%w: headers: expiry %v", ErrCorrupt, head[1])
		}
		m.Expires = time.UnixMicro(micros).UTC()
		if none, ok := head[2].(tuple.Tuple); ok && len(none) == 0 {
			head = append(tuple.Tuple{int64(metaVersion)}, head[3:]...)
		} else {
			head = append(tuple.Tuple{int64(metaVersionDead)}, head[2:]...)
		}
	}
	switch {
	case len(head) > 0 && head[0] == int64(metaVersion):
		head = head[1:]
	case len(head) > 1 && head[0] == int64(metaVersionDead):
		if m.DeadLetter, err = parseDeadLetter(head[1]); err != nil {
			return m, nil, fmt.Errorf("%w: headers: %w: %v", ErrCorrupt, err, head[1])
		}
		head = head[2:]
	default:
		return m, nil, fmt.Errorf("%w: headers are not of version %d to %d", ErrCorrupt, metaVersion, metaVersionExpires)
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

func decodeHeader(element any) (name string, values []string, ok bool) {
	header, ok := element.(tuple.Tuple)
	if !ok || len(header) == 0 {
		return "", nil, false
	}
	texts := make([]string, len(header))
	for i, part := range header {
		text, ok := part.([]byte)
		if !ok {
			return "", nil, false
		}
		texts[i] = string(text)
	}
	return texts[0], texts[1:], true
}
