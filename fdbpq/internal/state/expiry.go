package state

import (
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
)

// ErrNotYet is for pops and peeks that have found nothing so far. What comes back next may be
// theirs.
var ErrNotYet = fmt.Errorf("%w so far: %w", codec.ErrEmpty, codec.ErrNoRoom)

// ErrMoreExpired is for pops and peeks that have met more expired items than a transaction steps
// over. Behind those there may be live ones, so nobody knows whether the queue is empty.
var ErrMoreExpired = fmt.Errorf("%w: more items come first that have expired", codec.ErrNoRoom)

// Stepped counts the expired items that the pops of a transaction step over, or a peek.
type Stepped struct {
	items, bytes int // bytes that were read of these
}

const (
	maxStepped      = 2048
	maxSteppedBytes = 4 << 20
)

// Note counts an item.
func (n *Stepped) Note(s *Stored) {
	n.items++
	n.bytes += s.Read()
}

// Enough reports whether the next transaction is to go on.
func (n *Stepped) Enough() bool { return n.items >= maxStepped || n.bytes >= maxSteppedBytes }

// NextLive returns the next item, nil after the last. It steps over expired ones. The error is
// ErrMoreExpired or one of the store.
func (c *Cursor) NextLive(now time.Time) (*Stored, error) {
	var stepped Stepped
	for {
		s, err := c.Next()
		if err != nil || s == nil {
			return nil, err
		}
		if has, err := s.ReadUnlessExpired(c.r, c.l, now, c.asked.Bytes); err != nil || !has {
			return s, err
		}
		if stepped.Enough() {
			return nil, ErrMoreExpired
		}
		stepped.Note(s)
		c.noteExpired()
	}
}

// ExpiredSize is about the most bytes that removing an expired item takes in a transaction:
// mutations and conflict ranges of all of its keys. In a run it takes less.
func ExpiredSize(l *codec.Layout, id *codec.ID, unique string) int {
	const (
		keys = 24 // written, or in conflict ranges
		rest = 40 // of a key, behind the prefix
	)
	return keys*(len(l.Prefix)+rest) + 6*len(unique) + l.GroupSizeOf(id)
}
