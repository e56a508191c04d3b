package state

import (
	"sync"
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
}

// QueueAhead is that of a queue of a Keyspace.
type QueueAhead struct {
	Queue codec.QueueName
	Ahead
}

// AppendAhead appends what falls due of what the ledger has written, if anything does.
func (g *Ledger) AppendAhead(list []QueueAhead) []QueueAhead {
	if g.ahead == (Ahead{}) || g.L.List == nil {
		return list
	}
	return append(list, QueueAhead{Queue: codec.QueueName{FIFO: g.L.Fifo, Name: g.L.Name()}, Ahead: g.ahead})
}

// Removed is how many items left their queues although no operation took or removed them.
type Removed struct {
	Expired   int64 // because they had expired
	Discarded int64 // because of DiscardOld
	Dead      int64 // because they moved to a dead-letter queue
}

// Add adds other items.
func (r *Removed) Add(more Removed) {
	r.Expired += more.Expired
	r.Discarded += more.Discarded
	r.Dead += more.Dead
}

// RemovedSoFar is a sum that may be read at any time.
type RemovedSoFar struct {
	Mu  sync.Mutex
	Sum Removed
}

func (s *RemovedSoFar) Add(more Removed) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.Sum.Add(more)
}
