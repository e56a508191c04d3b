package dispatch

import (
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// Queue is everything that one process knows about a queue in use. There is one object
// per queue, wherever its requests come from.
type Queue struct {
	Name   string
	Kind   subjects.Kind
	Target fdbpq.Target

	lane *lane

	kept     atomic.Int64 // bytes, see Dispatcher.Keep
	aside    atomic.Int32 // requests that are set aside; changed with the lane's lock
	itemSize atomic.Int64 // expected bytes of an item; 0 if no batch has returned one, see lane.observeResults
	ranOut   atomic.Bool  // the last request for items found nothing, or less than it wanted

	batch      int64 // the last that noteShare was called for; the lane's lock guards it and batchBytes
	batchBytes int   // in that batch

	waiters     atomic.Int32 // in line, with a Wait
	toldWaiting bool         // Options.Waiting was told so; only runTimers uses it
	rung        int64        // the last call of ring that found items for it; belongs to lane.calling

	owned  atomic.Pointer[ownership] // the last result of Owner
	used   atomic.Int64              // round of the registry in which it was used last
	marked int64                     // round in which it was found empty; only the retirer uses it
}

// Waiters returns how many requests wait for items of the queue.
func (q *Queue) Waiters() int { return int(q.waiters.Load()) }

// busy reports whether requests depend on there being no other object for the queue.
func (q *Queue) busy() bool { return q.waiters.Load() > 0 || q.aside.Load() > 0 }

// ownership says which of a list of bridges owns a queue.
type ownership struct {
	of *string // the first of the list
	id string
}

// Owner returns which of the bridges pops from the queue: the one whose id hashes
// highest together with the queue's name. So when a bridge comes or goes, only its own
// queues change owners. The list must not be empty or change afterwards; Owner caches
// its result for the latest list.
func (q *Queue) Owner(bridges []string) string {
	if last := q.owned.Load(); last != nil && last.of == &bridges[0] {
		return last.id
	}
	now := &ownership{&bridges[0], Owner(q.Kind, q.Name, bridges)}
	q.owned.Store(now)
	return now.id
}

// Owner is Queue.Owner for a queue that need not be in use.
func Owner(kind subjects.Kind, name string, bridges []string) (owner string) {
	var highest uint64
	for _, id := range bridges {
		if h := xxhash.Sum64String(id + " " + kind.String() + " " + name); h >= highest {
			highest, owner = h, id
		}
	}
	return owner
}

func kindOf(name fdbpq.QueueName) subjects.Kind {
	if name.FIFO {
		return subjects.FIFO
	}
	return subjects.Priority
}
