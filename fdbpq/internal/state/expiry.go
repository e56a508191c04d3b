package state

import (
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
)

// MaxExpired is how many expired items all pops of a transaction remove at most on their way, and
// each peek steps over.
const MaxExpired = 2048

// ErrNotYet is for pops and peeks that have found nothing so far. What comes back next, or lies
// behind more expired items than a transaction removes, may be theirs.
var ErrNotYet = fmt.Errorf("%w so far: %w", codec.ErrEmpty, codec.ErrNoRoom)

// NextLive returns the next item, nil after the last. It steps over expired ones. The error is
// ErrNotYet or one of the store.
func (c *Cursor) NextLive(now time.Time) (*Stored, error) {
	for range MaxExpired {
		s, err := c.Next()
		if err != nil || s == nil {
			return nil, err
		}
		if has, err := s.ReadUnlessExpired(c.r, c.l, now, c.asked.Bytes); err != nil || !has {
			return s, err
		}
		c.noteExpired()
	}
	return nil, ErrNotYet
}
