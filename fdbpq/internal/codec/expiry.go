package codec

import (
	"math"
	"time"
)

// An item may expire: Message.Expires, in its ("m") keys, says when. While it is in ("i"), it has
// an entry in the time index, written and removed together with its key in ("i"):
//
//	("t", expires) + ("x", priority, count, random) = unique key
//
// Whoever finds the entry due removes the item, and frees its unique key, without reading the ("m")
// keys. While it is held, its record says when it expires; a delayed item falls due then, at the
// latest. A leased one expires when its lease ends: whoever holds it may still acknowledge it.
// Staged pops, which need not know what they move, leave the entry where it is, and write it again
// if the item comes back: see state.Ledger.ReturnStaged.
//
// A pop, lease or peek that meets an expired item all the same, because its transaction had no room for
// all that was due, fails with ErrNoRoom: the next one goes on with what is due.

// Never as Op.TTL is no expiry, whatever Settings.TTL says.
const Never = time.Duration(math.MinInt64)

// ExpiryKey is the part of an entry of the time index that names an item in ("i"). There is no such
// key.
func (l *Layout) ExpiryKey(id *ID) []byte { return l.IDKey(KindExpiry, id) }

// Expired reports whether something that expires at a time has; zero is never.
func Expired(at, now time.Time) bool { return !at.IsZero() && !at.After(now) }

// Expired reports whether the time of an item is over. It may be leased.
func (h *Record) Expired(now time.Time) bool { return Expired(h.Expires, now) }

// Gone reports whether an item counts as gone: it has expired, and nobody has a lease of it, which
// may be over.
func (h *Record) Gone(now time.Time) bool { return h.Expired(now) && h.State != Leased }

// FallsDue is when something has to be done about a held item.
func (h *Record) FallsDue() time.Time {
	if h.State == Delayed {
		return Earliest(h.Due, h.Expires)
	}
	return h.Due
}
