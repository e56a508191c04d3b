package codec

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
	"time"
)

// ID identifies an item and its place in its queue. Two items have the same id only if 72 random bits
// coincide, or 32 of two in one group that were pushed in the same microsecond.
type ID struct {
	// Priority is the item's priority; 0 in a FIFO queue.
	Priority int64
	// Count orders items of one priority; in a FIFO queue it is the index.
	Count int64
	// Random makes the id unique, and holds the time of the push.
	Random [RandomSize]byte
}

// String returns the id as text of letters, digits, '-' and '_', which ParseID reads. It
// can be a token of a NATS subject.
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

// Compare returns -1, 0 or 1: whether the item comes before the other in a queue, is the same, or comes
// after it.
func (id *ID) Compare(other *ID) int {
	return cmp.Or(cmp.Compare(id.Priority, other.Priority), cmp.Compare(id.Count, other.Count),
		bytes.Compare(id.Random[:], other.Random[:]))
}

// ParseID reads an id as String writes it. Errors wrap ErrID.
func ParseID(text string) (ID, error) {
	malformed := func() (ID, error) {
		return ID{}, fmt.Errorf("%w: %.100q: want one as a push or pop returned it", ErrID, text)
	}

	packed, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || strings.ContainsAny(text, "\r\n") { // the decoder would skip those
		return malformed()
	}

	d := decoder{rest: packed}
	id := ID{Priority: d.int(), Count: d.int()}
	if d.err != nil || len(d.rest) != RandomSize {
		return malformed()
	}
	id.Random = [RandomSize]byte(d.rest)
	return id, nil
}

// The random part of an id is 20 bytes:
//
//	0-7    time of the push in microseconds since 1970, big-endian, which orders
//	       items of the same count
//	8-9    signature
//	10     flags
//	11-19  random, or the hash of the item's group in 11-15, big-endian, and 16-19 random
//
// An item without the signature, or with an impossible time, was written by another program
// with the bare recipe. It is served like any other, but has no push time and no ("m") keys,
// and is not counted.
const (
	RandomSize = 20
	signedAt   = 8
	signature  = 0x9d51
	flagsAt    = 10
	flagMeta   = 0x01 // it has ("m") keys
	flagGroup  = 0x02 // it has the hash of a group, and keys by that: see layout.go
	uniqueAt   = 11
	groupSize  = 5
)

// Pushes of this package have times from FirstTime to before LastTime: the years 2020 to 2200.
const (
	FirstTime = 1577836800_000000
	LastTime  = 7258118400_000000
)

// NewID returns the id of an item pushed now. If the clock is far off, the id gets the
// nearest possible time: otherwise the item would not count as ours, and lose its headers.
func NewID(priority, count int64, now time.Time, unique []byte, meta bool) ID {
	id := ID{Priority: priority, Count: count}
	micros := min(max(now.Unix(), FirstTime/1e6), LastTime/1e6-1)*1e6 + int64(now.Nanosecond()/1e3)
	binary.BigEndian.PutUint64(id.Random[:], uint64(micros))
	binary.BigEndian.PutUint16(id.Random[signedAt:], signature)
	if meta {
		id.Random[flagsAt] = flagMeta
	}
	copy(id.Random[uniqueAt:], unique)
	return id
}

// UniqueSize is the number of random bytes in an id.
const UniqueSize = RandomSize - uniqueAt

// UniqueBytes returns the random bytes for n ids.
func UniqueBytes(n int) []byte {
	b := make([]byte, n*UniqueSize)
	_, _ = rand.Read(b) // never returns an error: see crypto/rand
	return b
}

// Ours reports whether this package made the id.
func Ours(id *ID) bool {
	t := binary.BigEndian.Uint64(id.Random[:])
	return binary.BigEndian.Uint16(id.Random[signedAt:]) == signature && t >= FirstTime && t < LastTime
}

func HasMeta(id *ID) bool { return id.Random[flagsAt]&flagMeta != 0 && Ours(id) }

// SetGroup sets the group of an id that NewID has made.
func SetGroup(id *ID, hash GroupHash) {
	if hash == NotIndexed {
		return
	}
	id.Random[flagsAt] |= flagGroup
	for i := range groupSize {
		id.Random[uniqueAt+i] = byte(hash >> (8 * (groupSize - 1 - i)))
	}
}

// GroupIn returns the group in an id.
func GroupIn(id *ID) GroupHash {
	if id.Random[flagsAt]&flagGroup == 0 || !Ours(id) {
		return NotIndexed
	}
	var hash GroupHash
	for _, b := range id.Random[uniqueAt : uniqueAt+groupSize] {
		hash = hash<<8 | GroupHash(b)
	}
	return hash
}

func PushedAt(id *ID) time.Time {
	if !Ours(id) {
		return time.Time{}
	}
	return time.UnixMicro(int64(binary.BigEndian.Uint64(id.Random[:]))).UTC()
}
