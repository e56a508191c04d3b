package codec

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// ID identifies an item and its place in its queue. The ID of a job's first push is also the id of
// the job, for good; an item that has moved since has another ID and names the job in
// Message.First. Two items have the same id only if 72 random
// bits coincide. In a group it is 24, of two pushes in the same microsecond that do not see each
// other, and then one of the two conflicts and is repeated: see state.Ledger.AddRest.
type ID struct {
	// Priority is the item's priority; 0 in a FIFO queue.
	Priority int64
	// Count orders items of one priority; in a FIFO queue it is the index.
	Count int64
	// Random makes the id unique, and holds the time of the push.
	Random [RandomSize]byte
}

// String returns the id as text of letters, digits, '-' and '_', which ParseID reads. It can be a
// token of a NATS subject.
func (id ID) String() string {
	var b [64]byte
	return string(id.AppendTo(b[:0]))
}

// AppendTo appends what String returns.
func (id *ID) AppendTo(b []byte) []byte {
	var p [64]byte
	packed := append(appendInts(p[:0], id.Priority, id.Count), id.Random[:]...)
	return base64.RawURLEncoding.AppendEncode(b, packed)
}

// Compare returns -1 if the item comes before the other in a queue, 0 if it is the same, and 1 if
// it comes after it.
func (id *ID) Compare(other *ID) int {
	return cmp.Or(
		cmp.Compare(id.Priority, other.Priority),
		cmp.Compare(id.Count, other.Count),
		bytes.Compare(id.Random[:], other.Random[:]))
}

// ParseID reads an id as String writes it. Errors wrap ErrID.
func ParseID(text string) (ID, error) {
	d := textDecoder(text)
	id := ID{Priority: d.int(), Count: d.int()}
	if d.err != nil || len(d.rest) != RandomSize {
		return ID{}, fmt.Errorf("%w: %.100q: want one that a push or pop returned", ErrID, text)
	}
	id.Random = [RandomSize]byte(d.rest)
	return id, nil
}

// textDecoder reads the text of an id or a token.
func textDecoder(text string) (d decoder) {
	if strings.ContainsAny(text, "\r\n") { // base64 would skip them
		return decoder{err: errMore}
	}
	d.rest, d.err = base64.RawURLEncoding.Strict().DecodeString(text)
	return d
}

// The random part of an id is 20 bytes:
//
//	0      number of the item in the turn of its group, from 1 to MaxWeight; 0 without a group
//	1-7    time of the push in microseconds since 1970, big-endian
//	8-9    signature
//	10     flags
//	11-19  random; in a group, 11-16 are the hash of the group, big-endian, and 17-19 random
//
// Items of the same count are in the order of the number, then of the time.
//
// An item without the signature, or with what this package never writes elsewhere, was written by
// another program with the bare recipe. It is served like any other, but has no push time and no
// ("m") keys, and is not counted. Random bytes look like ours once in 67 million items.
const (
	RandomSize = 20
	numberAt   = 0
	signedAt   = 8
	signature  = 0x9d51
	flagsAt    = 10
	flagMeta   = 0x01 // it has ("m") keys
	flagGroup  = 0x02 // it has the hash of a group, and keys by that: see layout.go
	flagOthers = 0x04 // it has keys by NoGroup
	flagMoved  = 0x08 // its ID is not that of its job: Message.First
	flagKeeps  = 0x10 // it has Message.Keep
	flagMust   = 0x20 // with flagMeta: it has a property that must be understood
	uniqueAt   = 11
	groupSize  = 6
)

// MaxWeight is how many items of a group can share a turn.
const MaxWeight = 100

// Pushes of this package have times from FirstTime to before LastTime: the years 2020 to 2200.
const (
	FirstTime = 1577836800_000000
	LastTime  = 7258118400_000000
)

// NewID returns the id of an item pushed now. unique is from UniqueBytes, flags from Layout.Flags.
// If the clock is far off, the id gets the nearest possible time: otherwise
// the item would not count as ours, and lose its headers.
func NewID(priority, count int64, now time.Time, unique []byte, flags Flags) ID {
	id := ID{Priority: priority, Count: count}
	micros := min(max(now.Unix(), FirstTime/1e6), LastTime/1e6-1)*1e6 + int64(now.Nanosecond()/1e3)
	binary.BigEndian.PutUint64(id.Random[:], uint64(micros))
	binary.BigEndian.PutUint16(id.Random[signedAt:], signature)
	id.Random[flagsAt] = byte(flags)
	copy(id.Random[uniqueAt:], unique)
	return id
}

// UniqueSize is the number of random bytes in an id.
const UniqueSize = RandomSize - uniqueAt

// UniqueBytes returns the random bytes for n ids.
func UniqueBytes(n int) []byte { return RandomBytes(n * UniqueSize) }

// RandomBytes returns n random bytes.
func RandomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never returns an error: see crypto/rand
	return b
}

// Ours reports whether this package made the id.
func Ours(id *ID) bool {
	number, flags := id.Random[numberAt], id.Random[flagsAt]
	if flags&flagMeta != 0 { // what these say is in the ("m") keys
		flags &^= flagMoved | flagKeeps | flagMust
	}
	written := number == 0 && flags&flagGroup == 0 && flags <= flagOthers|flagMeta
	if flags == flagGroup|flagMeta { // a group is in a header
		written = 1 <= number && number <= MaxWeight
	}
	t := id.micros()
	signed := binary.BigEndian.Uint16(id.Random[signedAt:]) == signature
	return written && signed && t >= FirstTime && t < LastTime
}

// micros returns the time of the push, if the id is ours.
func (id *ID) micros() int64 {
	return int64(binary.BigEndian.Uint64(id.Random[:]) & (1<<56 - 1))
}

// Must reports whether the item has a property that must be understood by whoever ends it: its
// Message.Joiner, or that it is one. A newer version may have others.
func Must(id *ID) bool { return id.Random[flagsAt]&flagMust != 0 && Ours(id) }

// Linked reports whether the ("m") keys of an item say something that matters when it ends: see
// Moved and Must.
func Linked(id *ID) bool { return id.Random[flagsAt]&(flagMoved|flagMust) != 0 && Ours(id) }

// HasMeta reports whether the item has ("m") keys.
func HasMeta(id *ID) bool { return id.Random[flagsAt]&flagMeta != 0 && Ours(id) }

// Flags says what else there is of an item.
type Flags byte

// Flags returns the flags for the id of a message.
func (l *Layout) Flags(m *Message) (f Flags) {
	if l.NeedsMeta(m) {
		f |= flagMeta
	}
	if m.First != nil {
		f |= flagMoved
	}
	if m.Keep > 0 {
		f |= flagKeeps
	}
	if m.Joiner != nil || m.Join > 0 {
		f |= flagMust
	}
	return f
}

// Moved reports whether the item is a job that had another id first: Message.First.
func Moved(id *ID) bool { return id.Random[flagsAt]&flagMoved != 0 && Ours(id) }

// Keeps reports whether the item has Message.Keep.
func Keeps(id *ID) bool { return id.Random[flagsAt]&flagKeeps != 0 && Ours(id) }

// PushedAt returns when the item was pushed, the zero time if another program wrote it.
func PushedAt(id *ID) time.Time {
	if !Ours(id) {
		return time.Time{}
	}
	return time.UnixMicro(id.micros()).UTC()
}

// Token names one lease of an item. Any holder of the token may end or extend the lease.
type Token struct {
	ID ID // of the item
	// Fence tells this lease from all others of the item. Fences grow by random steps, so nobody
	// can guess one from the item's id or from an earlier fence.
	Fence int64
	// End is the end of the queue that the item was leased from.
	End End
}

// tokenVersion is the first element of a token.
const tokenVersion = 1

// String returns the token as text of letters, digits, '-' and '_', at most 80 bytes, which
// ParseToken reads. It can be a token of a NATS subject.
func (t Token) String() string {
	var b [80]byte
	return string(t.AppendTo(b[:0]))
}

// AppendTo appends what String returns.
func (t *Token) AppendTo(b []byte) []byte {
	var p [64]byte
	packed := appendInts(p[:0], tokenVersion, int64(t.End), t.Fence, t.ID.Priority, t.ID.Count)
	packed = append(packed, t.ID.Random[:]...)
	return base64.RawURLEncoding.AppendEncode(b, packed)
}

// ParseToken reads a token as String writes it. Errors wrap ErrToken.
func ParseToken(text string) (Token, error) {
	d := textDecoder(text)
	version, end := d.int(), d.int()
	t := Token{Fence: d.int(), ID: ID{Priority: d.int(), Count: d.int()}, End: End(end)}
	if d.err != nil || version != tokenVersion || end < int64(Front) || end > int64(Back) ||
		t.Fence < 1 || len(d.rest) != RandomSize {
		// A token gives power over the lease, so the error repeats only its start.
		return Token{}, fmt.Errorf("%w: %.4q... (%d bytes): want one that came with a leased item",
			ErrToken, text, len(text))
	}

	t.ID.Random = [RandomSize]byte(d.rest)
	return t, nil
}

// NextFence returns a fence above the given one; 0 stands for an item without one.
//
// The upper bits of a fence count the leases and negative acknowledgements of its item, and the
// lower 48 are random. After 16,000 of them, 46 bits are random, and so on: two fewer each time
// that half of the remaining room is used up. That leaves 40 bits for the 400,000th lease, 20 for
// the 400 millionth, and more leases than there is time for.
func NextFence(fence int64) int64 {
	// Half of the room that is left takes one bit, and with it two random bits.
	room := bits.Len64(uint64(math.MaxInt64 - fence))
	random := max(0, 2*room-78) // 48 of 63 bits

	var b [8]byte
	_, _ = rand.Read(b[:]) // never returns an error: see crypto/rand
	low := int64(binary.BigEndian.Uint64(b[:]) & (1<<random - 1))

	return (fence>>random+1)<<random | low
}

// End is an end of a queue.
type End uint8

const (
	// Front is the end with the smallest priority and, among equals, the oldest item.
	Front End = iota
	// Back is the end with the largest priority and, among equals, the newest item. A FIFO queue is
	// not served from its back.
	Back
)

// ErrFIFOEnd is for pops and peeks at the back of a FIFO queue.
var ErrFIFOEnd = fmt.Errorf("%w: a FIFO queue has pops and peeks at its front only", ErrOp)

// ItemState is what an item in a queue waits for.
type ItemState uint8

// The states of items. No item is in AnyState.
const (
	AnyState ItemState = iota
	Ready              // to be popped
	Delayed            // until a time
	Leased             // by a worker
	Done               // acknowledged, and kept: a finished job
)

// String returns "any", "ready", "delayed", "leased" or "done". The keys of counters have these
// names.
func (s ItemState) String() string {
	if names := [...]string{"any", "ready", "delayed", "leased", "done"}; int(s) < len(names) {
		return names[s]
	}
	return fmt.Sprintf("ItemState(%d)", uint8(s))
}

var errRandom = errors.New("the random part does not have 20 bytes")

// random reads the random part of an id.
func (d *decoder) random() (r [RandomSize]byte) {
	if d.err != nil {
		return r
	}
	var b []byte
	if b, d.rest, d.err = tuple.DecodeBytes(d.rest, r[:0]); d.err == nil && len(b) != RandomSize {
		d.err = errRandom
	}
	copy(r[:], b) // which usually is there already
	return r
}

// id reads the priority, count and random part of an id.
func (d *decoder) id() ID { return ID{Priority: d.int(), Count: d.int(), Random: d.random()} }
