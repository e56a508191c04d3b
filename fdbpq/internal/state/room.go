package state

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// ItemRoom bounds the items that the operations of a transaction return, and what it reads for
// them: all of that is in memory at once. See Batcher.LimitReturned.
type ItemRoom struct {
	Most  int // bytes of items, unless there is only one
	items int // admitted so far
	bytes int // of these

	// Refused is set once an item had no room. Nothing more is read to see whether another one has
	// some.
	Refused bool
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

// Admit reports whether an item of size bytes may be returned, and counts it. The first always may.
func (r *ItemRoom) Admit(size int) bool {
	if r.Refused = r.Refused || size > r.Left(); r.Refused {
		return false
	}
	r.items++
	r.bytes += size
	return true
}

// Page returns how many bytes of values to read at once where more can be read later, once it is
// known how large the first ones are.
func (r *ItemRoom) Page() int { return min(r.Most, maxPage) }

// AtOnce returns how many values to read at once where nothing is known of their sizes. Each can
// have kv.MaxValueSize bytes, but most are small, so this is a few times more than surely fit into
// a page.
func (r *ItemRoom) AtOnce() int { return max(8*r.Page()/kv.MaxValueSize, 16) }

// Share returns the part of a page for reads that want some of all values.
func (r *ItemRoom) Share(want, all int) int { return max(r.Page()*want/max(all, 1), 1) }

// ErrNoRoom is for what the next transaction may have room for.
var ErrNoRoom = fmt.Errorf("%w: %w", codec.ErrItemTooLarge, codec.ErrNoRoom)

// RoomAlone is how many bytes the first item may take beyond the room for others. A transaction has
// them because kv.MaxTransactionSize is larger than MaxMessageSize.
const RoomAlone = 100_000

// Shrinking is a store for transactions that remove items or put them back. They must go on when
// the disk is nearly full: the receipt or claim of a pop can be larger than the item that it
// removes, and no pop runs before popped items are back.
type Shrinking struct{ kv.Database }

// Begin implements kv.Database.
func (s Shrinking) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	o.Shrinks = true
	return s.Database.Begin(ctx, o)
}

// RestoreOverhead is about how many bytes restoring an item takes in a transaction besides what is
// stored: conflict ranges and counters. Long keys take more.
const RestoreOverhead = 500

const (
	// SweepItems is about how many items a transaction walks.
	SweepItems = 2048

	// MaxSweepPage is the most items of a page of such a walk.
	MaxSweepPage = 512

	// SweptKeys is about how many times the length of its key a removed item takes in a
	// transaction.
	SweptKeys = 16
)

// ErrNotYet is for pops and peeks that have found nothing so far, while more comes back with the
// next transaction.
var ErrNotYet = fmt.Errorf("%w so far: %w", codec.ErrEmpty, codec.ErrNoRoom)

// ErrMoreExpired is for pops and peeks that have met an expired item, because the transaction had
// no room for all that is due. There may be live items behind it, so the queue may or may not be
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

// Ahead is when there is something to do about a queue even if no request comes.
type Ahead struct {
	// Due is when the next item falls due: its lease or delay ends, or it expires. Zero if none
	// does.
	Due time.Time
	// Over is when the window of the next message id ends; zero if there is none.
	Over time.Time
	// Source says that the queue has a source, or that its source may have changed.
	Source bool
}

// QueueAhead is the Ahead of a queue of a Keyspace.
type QueueAhead struct {
	Queue codec.QueueName
	Ahead
}

// Removed counts items that left their queues although no operation took or removed them, and items
// that came although nobody pushed them.
type Removed struct {
	Expired   int64 // their time was over
	Discarded int64 // DiscardOld made room
	Dead      int64 // they moved to a dead-letter queue

	Fired   int64         // schedules pushed them
	Skipped int64         // times of schedules without an item
	Late    time.Duration // how much later than their times items were pushed, summed up
}

// Add adds the counts of other items.
func (r *Removed) Add(more Removed) {
	r.Expired += more.Expired
	r.Discarded += more.Discarded
	r.Dead += more.Dead
	r.Fired += more.Fired
	r.Skipped += more.Skipped
	r.Late += more.Late
}

// Each runs a step for each queue, or part, until one fails.
func Each[Q any](parts []Q, step func(Q) error) error {
	for _, q := range parts {
		if err := step(q); err != nil {
			return err
		}
	}
	return nil
}

// InOrder runs steps until one fails.
func InOrder(steps ...func() error) error {
	return Each(steps, func(step func() error) error { return step() })
}
