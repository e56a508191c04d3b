package state

import (
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// SetExpiry writes the entry of an item in ("i"), if it expires.
func (g *Ledger) SetExpiry(id *codec.ID, l codec.Lasting) {
	if !l.Expires.IsZero() {
		g.Tx.Set(g.L.DueKey(l.Expires, g.L.ExpiryKey(id)), []byte(l.Unique))
		g.noteDue(l.Expires)
	}
}

// ClearExpiry removes what SetExpiry wrote.
func (g *Ledger) ClearExpiry(id *codec.ID, at time.Time) {
	if !at.IsZero() {
		g.Tx.Clear(g.L.DueKey(at, g.L.ExpiryKey(id)))
	}
}

// HasExpired reports whether an item counts as gone: it has expired, and nobody has a lease of it, which may
// be over.
func (h *HeldItem) HasExpired(now time.Time) bool {
	return h.Expired(now) && (h.Ready || h.State == codec.HeldDelayed)
}

// DeleteExpired removes the rest of an item that has expired.
func (g *Ledger) DeleteExpired(h *codec.Held) {
	g.Delete(h)
	g.Removed.Expired++
}

// MaxExpired is how many expired items all pops of a transaction remove at most on their way, and each
// peek steps over.
const MaxExpired = 2048

// ErrNotYet is for pops and peeks that have found nothing so far. What comes back next, or lies behind more
// expired items than a transaction removes, may be theirs.
var ErrNotYet = fmt.Errorf("%w so far: %w", codec.ErrEmpty, codec.ErrNoRoom)

// NextLive returns the next item, nil after the last. It steps over expired ones. The error is ErrNotYet or one of
// the store.
func (c *Cursor) NextLive(now time.Time) (*Stored, error) {
	for range MaxExpired {
		s, err := c.Next()
		if err != nil || s == nil {
			return nil, err
		}
		if has, err := s.ReadUnlessExpired(c.R, c.L, now, c.Asked.Bytes); err != nil || !has {
			return s, err
		}
		c.noteExpired()
	}
	return nil, ErrNotYet
}

// SetUntil writes a key that falls due at the given time.
func SetUntil(l *codec.Layout, tx kv.Transaction, at time.Time, key, value []byte) {
	tx.Set(key, value)
	tx.Set(l.DueKey(at, key), []byte{})
}

// ClearUntil removes a key that falls due, or fell due, at the given time.
func ClearUntil(l *codec.Layout, tx kv.Transaction, at time.Time, key []byte) {
	tx.Clear(key)
	tx.Clear(l.DueKey(at, key))
}
