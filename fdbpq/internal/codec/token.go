package codec

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"strings"
)

// Token names one lease of an item. Whoever has it may end or extend the lease.
type Token struct {
	// ID is that of the item.
	ID ID
	// Fence tells this lease from all others of the item. Those grow by random steps, so that
	// nobody can tell one from the item's id or from an earlier fence.
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
	malformed := func() (Token, error) {
		// A token gives power over the lease, so no more than its start is repeated.
		return Token{}, fmt.Errorf("%w: %.4q... (%d bytes): want one as a leased item came with it", ErrToken, text, len(text))
	}

	packed, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || strings.ContainsAny(text, "\r\n") { // the decoder would skip those
		return malformed()
	}

	d := decoder{rest: packed}
	version, end := d.int(), d.int()
	t := Token{Fence: d.int(), ID: ID{Priority: d.int(), Count: d.int()}, End: End(end)}
	if d.err != nil || version != tokenVersion || end < int64(Front) || end > int64(Back) || t.Fence < 1 ||
		len(d.rest) != RandomSize {
		return malformed()
	}
	t.ID.Random = [RandomSize]byte(d.rest)
	return t, nil
}

// NextFence returns a fence above the given one, 0 for that of an item without any.
//
// The upper bits of a fence count the leases and negative acknowledgements of its item, and the
// lower 48 are random. An item that comes back 16,000 times and more gets 46 random bits, and
// so on: always two less in half of the room that is left. That makes 40 for the 400,000th
// lease and 20 for the 400 millionth, and more leases than there is time for. Versions of this
// package that add 1 to a fence read all of them, and continue where they find one.
func NextFence(fence int64) int64 {
	room := bits.Len64(uint64(math.MaxInt64 - fence))
	random := max(0, 2*room-78) // 48 of 63 bits

	var b [8]byte
	_, _ = rand.Read(b[:]) // never returns an error: see crypto/rand
	low := int64(binary.BigEndian.Uint64(b[:]) & (1<<random - 1))

	return (fence>>random+1)<<random | low
}
