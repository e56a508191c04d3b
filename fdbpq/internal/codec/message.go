package codec

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// MaxMessageSize is the largest Message.Size of an item, in bytes. It leaves room for keys in a
// transaction.
const MaxMessageSize = 9_000_000

// ChunkSize is the most bytes of a value that go into one key.
const ChunkSize = 90_000

// ChunkOf returns the most bytes of a value that go into an item's own key. Packing them into a
// tuple can double their number.
func ChunkOf(f ValueFormat) int {
	if f == TupleValues {
		return ChunkSize / 2
	}
	return ChunkSize
}

// EncodeValue returns a value as an item's own key has it.
func EncodeValue(f ValueFormat, value []byte) []byte {
	if f == TupleValues {
		return tuple.AppendBytes(make([]byte, 0, len(value)+2), value)
	}
	return value
}

// DecodeValue reverses EncodeValue. It returns bytes that are not a tuple of one byte string as
// they are: a program with another format wrote them.
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
	return len(m.Headers) > 0 || m.MsgID != "" || m.Unique != "" || !m.Expires.IsZero() ||
		m.DeadLetter != nil || m.First != nil || m.Keep > 0 || m.Joiner != nil || m.Join > 0 ||
		len(m.Value) > ChunkOf(l.Format)
}

// The values of the ("m") keys, put together, are a varint, a tuple of that length, and the rest of
// the item's value. The tuple has a version, properties, and the headers:
//
//	(1, (property, its value, ...), (name, value, value...), ...)
const metaVersion = 1

// The properties.
const (
	propMsgID   = "msg_id"
	propUnique  = "unique"
	propExpires = "expires" // in microseconds since 1970
	propDead    = "dead"
	propFirst   = "first"
	propKeep    = "keep" // in microseconds
	propJoiner  = "joiner"
	propJoin    = "join" // in microseconds
)

// appendProperties appends the properties as they are stored.
func (m *Message) appendProperties(b []byte) []byte {
	if m.MsgID != "" {
		b = tuple.AppendBytes(tuple.AppendString(b, propMsgID), []byte(m.MsgID))
	}

	if m.Unique != "" {
		b = tuple.AppendBytes(tuple.AppendString(b, propUnique), []byte(m.Unique))
	}

	if !m.Expires.IsZero() {
		b = appendTime(tuple.AppendString(b, propExpires), m.Expires)
	}

	if m.DeadLetter != nil {
		b = m.DeadLetter.append(tuple.AppendString(b, propDead))
	}

	if m.First != nil {
		b = tuple.AppendBytes(tuple.AppendString(b, propFirst), EncodeID(m.First))
	}

	if m.Keep > 0 {
		b = tuple.AppendInt(tuple.AppendString(b, propKeep), m.Keep.Microseconds())
	}

	if m.Joiner != nil {
		b = m.Joiner.append(tuple.AppendString(b, propJoiner))
	}

	if m.Join > 0 {
		b = tuple.AppendInt(tuple.AppendString(b, propJoin), m.Join.Microseconds())
	}
	return b
}

// readProperties sets the properties. The error of the decoder says whether it could read all.
func (m *Message) readProperties(d *decoder) {
	for d.start(); !d.ended(); {
		switch name := d.text(); name {
		case propMsgID:
			m.MsgID = string(d.bytes())
		case propUnique:
			m.Unique = string(d.bytes())
		case propExpires:
			m.Expires = d.time()
		case propDead:
			m.DeadLetter = parseDeadLetter(d)
		case propFirst:
			first := d.encodedID()
			m.First = &first
		case propKeep:
			m.Keep = d.duration()
		case propJoiner:
			m.Joiner = parseJoiner(d)
		case propJoin:
			m.Join = d.duration()
		default:
			d.err = cmp.Or(d.err, fmt.Errorf("unknown property %.50q", name))
		}
	}
}

// EncodeMeta returns what the ("m") keys hold before the rest of the value.
func EncodeMeta(m *Message) []byte {
	const room = 128 // for most properties and headers
	head := tuple.AppendStart(tuple.AppendInt(make([]byte, 0, room), metaVersion))
	head = tuple.AppendEnd(m.appendProperties(head))
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		// Not a string, which would have to be UTF-8.
		head = tuple.AppendBytes(tuple.AppendStart(head), []byte(name))
		for _, value := range m.Headers[name] {
			head = tuple.AppendBytes(head, []byte(value))
		}
		head = tuple.AppendEnd(head)
	}

	blob := make([]byte, 0, binary.MaxVarintLen32+len(head))
	return append(binary.AppendUvarint(blob, uint64(len(head))), head...)
}

// DecodeMeta reads ("m") keys. It returns the message without its value, and the rest of the value.
// The error is ErrCorrupt, also if the keys do not contain all headers.
func DecodeMeta(parts []kv.KeyValue) (m Message, rest []byte, err error) {
	return decodeMeta(joinParts(parts))
}

// joinParts puts the values of keys together that hold one value in parts.
func joinParts(parts []kv.KeyValue) []byte {
	values := make([][]byte, len(parts))
	for i := range parts {
		values[i] = parts[i].Value
	}
	return bytes.Join(values, nil)
}

// decodeMeta is DecodeMeta for keys that were put together.
func decodeMeta(blob []byte) (m Message, rest []byte, err error) {
	// The length says where the tuple ends and the rest of the value begins.
	n, used := binary.Uvarint(blob)
	if used <= 0 || n > uint64(len(blob)-used) {
		return m, nil, fmt.Errorf("%w: length of headers", ErrCorrupt)
	}

	d := decoder{rest: blob[used : used+int(n)]}
	if version := d.int(); d.err == nil && version != metaVersion {
		d.err = fmt.Errorf("version %d, not %d", version, metaVersion)
	}
	m.readProperties(&d)
	for d.more() {
		d.start()
		name, values := string(d.bytes()), []string{}
		for !d.ended() {
			values = append(values, string(d.bytes()))
		}
		if m.Headers == nil {
			m.Headers = map[string][]string{}
		}
		m.Headers[name] = values
	}
	if m, err = finish(&d, m, "headers", blob[used:used+int(n)]); err != nil {
		return m, nil, err
	}
	return m, blob[used+int(n):], nil
}

// Following returns count + 1. It stays at the end of int64, which only another program can reach.
// There the times in the ids order the items.
func Following(count int64) int64 { return max(count, count+1) }

// PushSize returns at least the number of bytes that a push takes in a transaction, if no other
// push has its priority. delays says that the push has a delay.
func (l *Layout) PushSize(m *Message, delays bool) int {
	// Each key is written, and has a conflict range of two keys. 64 bytes are for the rest of a key
	// and for what FoundationDB counts besides keys, 32 for the prefix that a decorated Database
	// may add.
	const rest = 3 * (KindSize + 64 + 32)

	keys := 2 // that of the item, and a counter
	if l.NeedsMeta(m) {
		keys += 1 + m.Size()/ChunkSize
	}

	falls := delays || m.Join > 0 || !m.Expires.IsZero()
	if falls { // the entry of the time index contains the key of the item
		keys++
	}

	size := m.Size() + l.DedupSize(m) + keys*(3*len(l.Prefix)+rest)
	if delays || m.Join > 0 {
		size += maxRecord
	}

	if falls && m.Unique != "" { // the record or the entry contains it
		size += textSize(m.Unique)
	}

	if m.Group() != "" {
		size += l.GroupSize()
	}

	if l.Format == TupleValues { // zero bytes take two
		size += bytes.Count(m.Value[:min(len(m.Value), ChunkOf(l.Format))], []byte{0})
	}
	return size
}

// Message is what a push adds to a queue.
type Message struct {
	// Value is the payload. It may be empty.
	Value []byte
	// Headers travel with the value unchanged. nil means none.
	Headers map[string][]string
	// MsgID names the push: within Settings.DuplicateWindow, a second push with the same MsgID
	// changes nothing. "" means none; at most MaxKey bytes.
	MsgID string
	// Unique is a key that no other item has while this one is in the queue, ready, leased or
	// delayed. "" means none; at most MaxKey bytes.
	Unique string
	// Expires is when the item expires, to the microsecond, by the clock of the process that serves
	// it; zero is never. A push may set it, but see Op.TTL and Settings.TTL.
	Expires time.Time
	// DeadLetter says how the message came into a dead-letter queue; nil for other messages.
	DeadLetter *DeadLetter
	// First is the ID of the job's first push, nil if that is the ID of the item. The queue sets
	// it; a push leaves it nil. Item.Job returns the id of the job in either case.
	First *ID
	// Keep is for how long the job is kept once it is acknowledged, MinKeep to MaxKeep; 0 means as
	// Settings.Keep says. See OpAck.
	Keep time.Duration
	// Join makes the item a joiner: it is delayed until all its members have ended, but at most for
	// this time, MinJoin to MaxJoin. Then the queue gives it the header HeaderJoined, and Join is
	// 0. A joiner has at most MaxJoiner bytes. It neither expires nor makes room for others while
	// it waits.
	Join time.Duration
	// Joiner makes the item a member of a joiner that waits, from here until it ends: until it is
	// acknowledged, becomes a dead letter, or leaves the queue in another way. An item that comes
	// back after it has ended, such as a dead letter or one that OpRestore puts back, is not a
	// member any more. nil is none.
	Joiner *Joiner
}

// Size returns how many bytes the message counts for where bytes are limited, as by MaxMessageSize
// and Op.MaxBytes.
// That is about what it takes in a transaction:
//
//   - the value;
//   - the names and values of headers, MsgID and Unique: two bytes more for each text, and zero
//     bytes count twice;
//   - 9 bytes for Expires;
//   - the texts of DeadLetter, and 38 bytes more;
//   - 50 bytes for First, 9 each for Keep and Join, 60 for Joiner with its queue besides.
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

	if m.First != nil {
		n += 50
	}

	if m.Keep > 0 {
		n += 9
	}

	if m.Join > 0 {
		n += 9
	}

	if m.Joiner != nil {
		n += joinerSize + len(m.Joiner.Queue)
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
	// pushed it. It is zero for items that another program wrote with the bare recipe.
	PushedAt time.Time

	restore *RestoreData // nil for most items
}

// Job returns the id of the job: the ID of its first push, wherever the item is now.
func (i *Item) Job() ID {
	if i.First != nil {
		return *i.First
	}
	return i.ID
}

// RestoreData is what restoring an item needs besides what the item says.
type RestoreData struct {
	Value []byte // as stored, if another program wrote the item
	Past  []byte // the item's history, as stored; nil if it has none
}

// RestoreDataOf returns the item's RestoreData, nil for most items.
func RestoreDataOf(i *Item) *RestoreData { return i.restore }

// SetRestoreData sets what RestoreDataOf returns.
func SetRestoreData(i *Item, d *RestoreData) { i.restore = d }
