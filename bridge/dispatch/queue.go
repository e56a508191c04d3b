package dispatch

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// Queue is everything that this process knows about a queue in use. All requests of a queue share
// one Queue. Its methods are safe for concurrent use.
type Queue struct {
	Name   string
	Kind   subjects.Kind
	Target fdbpq.Target

	lane *lane

	unconfirmed atomic.Int64 // bytes, see Dispatcher.AddUnconfirmed
	aside       atomic.Int32 // requests that are set aside; changed with the lane's lock
	itemSize    atomic.Int64 // expected bytes of an item; 0 before a batch has returned one

	// Bytes of its requests in the batch that was number shareOf of the lane. The lane's lock
	// guards both.
	shareBytes int
	shareOf    int64

	waiters  atomic.Int32 // requests in line, with a Wait
	notified int64        // the last lane.notifications for it; guarded by lane.calling

	owned  atomic.Pointer[ownership] // the last result of Owner
	used   atomic.Int64              // round of the registry in which it was last used
	marked int64                     // round in which it was found empty; only for the retirer
}

// Waiters returns how many requests with a Wait are waiting for items of the queue.
func (q *Queue) Waiters() int { return int(q.waiters.Load()) }

// busy reports whether requests need this object, so that the registry must keep it.
func (q *Queue) busy() bool { return q.waiters.Load() > 0 || q.aside.Load() > 0 }

// ownership says which of a list of bridges owns a queue.
type ownership struct {
	of *string // the first of the list
	id string
}

// Owner returns which of the bridges pops from the queue: the one whose id hashes highest together
// with the queue's name. So when a bridge comes or goes, only its own queues change owners. The
// list must not be empty, and must not change afterwards: Owner caches its result for the latest
// list.
func (q *Queue) Owner(bridges []string) string {
	if last := q.owned.Load(); last != nil && last.of == &bridges[0] {
		return last.id
	}

	now := &ownership{&bridges[0], Owner(q.Kind, q.Name, bridges)}
	q.owned.Store(now)
	return now.id
}

// Owner is Queue.Owner for a queue that may not be in use.
func Owner(kind subjects.Kind, name string, bridges []string) (owner string) {
	var highest uint64
	for _, id := range bridges {
		if h := xxhash.Sum64String(id + " " + kind.String() + " " + name); h >= highest {
			highest, owner = h, id
		}
	}

	return owner
}

// KindOf returns the kind of a queue.
func KindOf(name fdbpq.QueueName) subjects.Kind {
	if name.FIFO {
		return subjects.FIFO
	}
	return subjects.Priority
}

// NameOf returns the name of a queue with its kind.
func NameOf(kind subjects.Kind, name string) fdbpq.QueueName {
	return fdbpq.QueueName{FIFO: kind == subjects.FIFO, Name: name}
}

// TargetOf returns a queue for operations on it, without adding it to those in use. Errors wrap
// fdbpq.ErrQueueName.
func TargetOf(k *fdbpq.Keyspace, kind subjects.Kind, name string) (fdbpq.Target, error) {
	if kind == subjects.FIFO {
		return k.Queue(name)
	}
	return k.PriorityQueue(name)
}

// registry holds a Queue for each queue in use. It is safe for concurrent use. It counts time in
// rounds, which the retirer begins.
type registry struct {
	keyspace *fdbpq.Keyspace
	lanes    []*lane
	seed     maphash.Seed
	round    atomic.Int64
	evicted  atomic.Bool // a queue was evicted for lack of room

	shards [2 * registryShards]shard // by kind and hash of the name
}

const (
	registryShards = 16
	// maxQueues limits the queues of one kind in a registry. Beyond it, a new queue replaces one
	// that has not been used for long.
	maxQueues = 1 << 16
	// evictionSample is how many queues an eviction chooses among.
	evictionSample = 8
)

type shard struct {
	sync.RWMutex
	queues map[string]*Queue
}

func newRegistry(k *fdbpq.Keyspace, lanes []*lane) *registry {
	g := &registry{keyspace: k, lanes: lanes, seed: maphash.MakeSeed()}
	for i := range g.shards {
		g.shards[i].queues = map[string]*Queue{}
	}
	return g
}

// get returns the queue of that name, which it copies. Errors wrap fdbpq.ErrQueueName.
func (g *registry) get(kind subjects.Kind, name string) (*Queue, error) {
	q, s, hash := g.find(kind, name)
	if q != nil {
		return q, nil
	}
	return g.add(s, kind, name, hash)
}

// find returns the queue of that name, nil if the registry does not have it, and where it belongs.
func (g *registry) find(kind subjects.Kind, name string) (q *Queue, s *shard, hash uint64) {
	hash = maphash.String(g.seed, name)
	s = &g.shards[uint64(kind)*registryShards+hash%registryShards]
	s.RLock()
	defer s.RUnlock()

	if q = s.queues[name]; q != nil {
		q.use(g.round.Load())
	}
	return q, s, hash
}

// use records that the queue is used in this round.
func (q *Queue) use(round int64) {
	if q.used.Load() != round {
		q.used.Store(round)
	}
}

func (g *registry) add(s *shard, kind subjects.Kind, name string, hash uint64) (*Queue, error) {
	name = strings.Clone(name) // a substring would keep the whole subject in memory
	lane := g.lanes[(hash/registryShards+uint64(kind))%uint64(len(g.lanes))]
	q := &Queue{Name: name, Kind: kind, lane: lane}

	var err error
	if q.Target, err = TargetOf(g.keyspace, kind, name); err != nil {
		return nil, err
	}

	s.Lock()
	defer s.Unlock()

	if other := s.queues[name]; other != nil { // added meanwhile
		q = other
	} else {
		if len(s.queues) >= maxQueues/registryShards {
			s.evictLocked()
			g.evicted.Store(true)
		}
		s.queues[name] = q
	}

	q.use(g.round.Load())
	return q, nil
}

// evictLocked makes room for a queue.
func (s *shard) evictLocked() {
	var oldest *Queue
	n := 0
	for _, q := range s.queues { // in random order
		if q.busy() {
			continue
		}
		if oldest == nil || q.used.Load() < oldest.used.Load() {
			oldest = q
		}
		if n++; n == evictionSample {
			break
		}
	}

	// If all are busy, the limits of load bound their number.
	if oldest != nil {
		delete(s.queues, oldest.Name)
	}
}

// unused returns the queues of a shard that have not been used since the round began.
func (s *shard) unused(round int64) (found []*Queue) {
	s.RLock()
	defer s.RUnlock()

	for _, q := range s.queues {
		if q.used.Load() < round && !q.busy() {
			found = append(found, q)
		}
	}

	return found
}

// evictUnused drops the queues that have still not been used since the round began.
func (s *shard) evictUnused(queues []*Queue, round int64) {
	s.Lock()
	defer s.Unlock()

	for _, q := range queues {
		if q.used.Load() < round && !q.busy() && s.queues[q.Name] == q {
			delete(s.queues, q.Name)
		}
	}

	if len(s.queues) == 0 {
		s.queues = map[string]*Queue{} // a map does not shrink
	}
}
