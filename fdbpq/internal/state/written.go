package state

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
)

// Ahead is when there will be something to do about a queue that nobody asks for.
type Ahead struct {
	// Due is when the next item falls due: a lease or delay is over, or the item expires. Zero if
	// none will.
	Due time.Time
	// Over is when the window of the next message id is over; zero if there is none.
	Over time.Time
	// Source says that the queue has a source, or that this has changed.
	Source bool
}

// QueueAhead is that of a queue of a Keyspace.
type QueueAhead struct {
	Queue codec.QueueName
	Ahead
}

// Removed is how many items left their queues although no operation took or removed them, and how
// many came although none pushed them.
type Removed struct {
	Expired   int64 // because they had expired
	Discarded int64 // because of DiscardOld
	Dead      int64 // because they moved to a dead-letter queue

	Fired   int64         // items that schedules have pushed
	Skipped int64         // times of schedules without an item
	Late    time.Duration // how much later than their times the items were pushed, summed up
}

// Add adds other items.
func (r *Removed) Add(more Removed) {
	r.Expired += more.Expired
	r.Discarded += more.Discarded
	r.Dead += more.Dead
	r.Fired += more.Fired
	r.Skipped += more.Skipped
	r.Late += more.Late
}
