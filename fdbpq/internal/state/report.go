package state

import (
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
)

// Upcoming is when there is something to do about a queue even if no request comes.
type Upcoming struct {
	// Due is when the next item falls due: its lease or delay ends, or it expires. Zero if none
	// does.
	Due time.Time
	// Over is when the window of the next message id ends, or when the oldest finished job is over
	// or may be one too many; zero if there is none.
	Over time.Time
	// Source says that the queue has a source, or that its source may have changed.
	Source bool
}

// QueueUpcoming is the Upcoming of a queue of a Keyspace.
type QueueUpcoming struct {
	Queue codec.QueueName
	Upcoming
}

// SideEffects counts items that left their queues for good without an operation that removes items,
// such as a pop or an acknowledgement, items that came without a push, and leases that ran out.
type SideEffects struct {
	Expired   int64 // items that expired
	Discarded int64 // items that DiscardOld removed to make room
	Dead      int64 // items that moved to a dead-letter queue
	RanOut    int64 // leases that ran out

	Next    int64         // items that acknowledgements pushed
	Fired   int64         // items that schedules pushed
	Skipped int64         // times of schedules without an item
	Late    time.Duration // how much later than their times schedules pushed, summed up
}

// Add adds the counts of other items.
func (s *SideEffects) Add(more SideEffects) {
	s.Expired += more.Expired
	s.Discarded += more.Discarded
	s.Dead += more.Dead
	s.RanOut += more.RanOut
	s.Next += more.Next
	s.Fired += more.Fired
	s.Skipped += more.Skipped
	s.Late += more.Late
}

// QueueJob is a job of a queue of a Keyspace.
type QueueJob struct {
	Queue codec.QueueName
	Job   codec.ID // see codec.Item.Job
}

// QueueSideEffects is the SideEffects of a queue of a Keyspace. Dead counts at the queue that an
// item leaves.
type QueueSideEffects struct {
	Queue codec.QueueName
	SideEffects
	Ran []time.Duration // how long each job ran that is done and kept; negative if not known
}
