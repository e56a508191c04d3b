package state

import (
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
)

// ErrNotYet is for pops and peeks that have found nothing so far. What comes back next may be
// theirs.
var ErrNotYet = fmt.Errorf("%w so far: %w", codec.ErrEmpty, codec.ErrNoRoom)

// ErrMoreExpired is for pops and peeks that have met an expired item, because the transaction had no
// room for all that is due. Behind it there may be live ones, so nobody knows whether the queue is
// empty.
var ErrMoreExpired = fmt.Errorf("%w: more items come first that have expired", codec.ErrNoRoom)

// ExpiredSize is about the most bytes that removing an expired item takes in a transaction:
// mutations and conflict ranges of all of its keys. In a run it takes less.
func ExpiredSize(l *codec.Layout, id *codec.ID, unique string) int {
	const (
		keys = 24 // written, or in conflict ranges
		rest = 40 // of a key, behind the prefix
	)
	return keys*(len(l.Prefix)+rest) + 6*len(unique) + l.GroupSizeOf(id)
}
