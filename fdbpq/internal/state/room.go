package state

import (
	"context"
	"fmt"
	"math"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// ItemRoom is the items that the operations of a transaction return, and what it reads for that.
// All of it is in memory at once, so it is bounded whatever the operations ask for: see
// Batcher.LimitReturned.
type ItemRoom struct {
	Most  int // bytes of items, unless there is only one
	items int // so far
	bytes int // of these

	Refused bool // there was an item without room; nothing more is read to see whether another one has some
}

// maxPage bounds ItemRoom.Page.
const maxPage = 4 << 20

// NoBound is more bytes than there are.
const NoBound = math.MaxInt32

// Left returns how many bytes the next item may have.
func (r *ItemRoom) Left() int {
	if r.items == 0 {
		return NoBound
	}
	return r.Most - r.bytes
}

// Admit reports whether an item of that many bytes may be returned, and counts it. The first always
// may.
func (r *ItemRoom) Admit(size int) bool {
	if r.Refused = r.Refused || size > r.Left(); r.Refused {
		return false
	}
	r.items++
	r.bytes += size
	return true
}

// Page is how many bytes of values are read together where the next read can follow once it is
// known how large they are.
func (r *ItemRoom) Page() int { return min(r.Most, maxPage) }

// AtOnce is how many values are read together where nothing is known of them: one can have up to
// kv.MaxValueSize bytes. Most are small, so that is a few times more than fit into a page.
func (r *ItemRoom) AtOnce() int { return max(8*r.Page()/kv.MaxValueSize, 16) }

// Share returns the part of a page for reads that want some of all values.
func (r *ItemRoom) Share(want, all int) int { return max(r.Page()*want/max(all, 1), 1) }

// ErrNoRoom is for what the next transaction may have room for.
var ErrNoRoom = fmt.Errorf("%w: %w", codec.ErrItemTooLarge, codec.ErrNoRoom)

// RoomAlone is how much more than the room for others the first item may take. A transaction has
// that room because of the difference between MaxMessageSize and kv.MaxTransactionSize.
const RoomAlone = 100_000

// Shrinking is a store for transactions that remove items or put them back. They must
// go on when the disk is nearly full: the receipt or claim of a pop can be larger than the
// item that it removes, and no pop runs before popped items are back.
type Shrinking struct{ kv.Database }

// Begin implements kv.Database.
func (s Shrinking) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	o.Shrinks = true
	return s.Database.Begin(ctx, o)
}

// RestoreOverhead is about the number of bytes that restoring an item takes in a transaction
// besides what is stored: conflict ranges and counters. Long keys take more.
const RestoreOverhead = 500

const (
	// SweepItems and SweepBytes are about how many items a transaction walks, and how many bytes
	// of them.
	SweepItems = 2048
	SweepBytes = 1 << 20

	MaxSweepPage = 512

	// SweptKeys is about how many keys of its length a removed item takes in a transaction.
	SweptKeys = 16
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
