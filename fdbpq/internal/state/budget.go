package state

import (
	"fmt"
	"math"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// ReadBudget bounds the items that the operations of a transaction return, and what it reads for
// them: all of that is in memory at once. See Batcher.LimitReturned.
type ReadBudget struct {
	Most  int // bytes of items, unless there is only one
	items int // admitted so far
	bytes int // of these

	// Refused is set once an item had no room. Nothing more is read to see whether another one has
	// some.
	Refused bool
}

// maxPage bounds ReadBudget.Page.
const maxPage = 4 << 20

// NoBound is more bytes than there are.
const NoBound = math.MaxInt32

// Left returns how many bytes the next item may have.
func (b *ReadBudget) Left() int {
	if b.items == 0 {
		return NoBound
	}
	return b.Most - b.bytes
}

// Admit reports whether an item of size bytes may be returned, and counts it. The first always may.
func (b *ReadBudget) Admit(size int) bool {
	if b.Refused = b.Refused || size > b.Left(); b.Refused {
		return false
	}
	b.items++
	b.bytes += size
	return true
}

// Page returns how many bytes of values to read at once where more can be read later, once it is
// known how large the first ones are.
func (b *ReadBudget) Page() int { return min(b.Most, maxPage) }

// AtOnce returns how many values to read at once where nothing is known of their sizes. Each can
// have kv.MaxValueSize bytes, but most are small, so this is a few times more than surely fit into
// a page.
func (b *ReadBudget) AtOnce() int { return max(8*b.Page()/kv.MaxValueSize, 16) }

// Share returns the part of a page for reads that want some of all values.
func (b *ReadBudget) Share(want, all int) int { return max(b.Page()*want/max(all, 1), 1) }

// ErrNoRoom is for what the next transaction may have room for.
var ErrNoRoom = fmt.Errorf("%w: %w", codec.ErrItemTooLarge, codec.ErrNoRoom)

// ExtraForFirst is how many bytes the first item may take beyond the budget. A transaction has
// them because kv.MaxTransactionSize is larger than MaxMessageSize.
const ExtraForFirst = 100_000

// ErrNotYet is for pops and peeks that have found nothing so far, while more comes back with the
// next transaction.
var ErrNotYet = fmt.Errorf("%w so far: %w", codec.ErrEmpty, codec.ErrNoRoom)

// ErrMoreExpired is for pops and peeks that have met an expired item, because the transaction had
// no room for all that is due. There may be live items behind it, so the queue may or may not be
// empty.
var ErrMoreExpired = fmt.Errorf("%w: more items come first that have expired", codec.ErrNoRoom)
