package dispatch

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// registry holds one object for each queue in use. It is safe for concurrent use.
//
// It counts time in rounds, which the retirer begins. The retirer forgets queues that
// have not been used for a while.
type registry struct {
	keyspace *fdbpq.Keyspace
	lanes    []*lane
	seed     maphash.Seed
	round    atomic.Int64
	evicted  atomic.Bool // a queue was forgotten for lack of room

	shards [2][registryShards]shard // by kind and hash of the name
}

const (
	registryShards = 16
	// maxQueues limits the queues of one kind in a registry. Beyond it, a new queue
	// replaces one that has not been used for long.
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
	for kind := range g.shards {
		for i := range g.shards[kind] {
			g.shards[kind][i].queues = map[string]*Queue{}
		}
	}
	return g
}

// len returns the number of queues.
func (g *registry) len() (n int) {
	for kind := range g.shards {
		for i := range g.shards[kind] {
			s := &g.shards[kind][i]
			s.RLock()
			n += len(s.queues)
			s.RUnlock()
		}
	}
	return n
}

// get returns the queue of that name, which it copies. Errors wrap fdbpq.ErrQueueName.
func (g *registry) get(kind subjects.Kind, name string) (*Queue, error) {
	hash := maphash.String(g.seed, name)
	s := &g.shards[kind][hash%registryShards]
	s.RLock()
	q := s.queues[name]
	if q != nil {
		q.use(g.round.Load())
	}
	s.RUnlock()
	if q != nil {
		return q, nil
	}
	return g.add(s, kind, name, hash)
}

// use records that the queue is used in this round, unless that is known already.
func (q *Queue) use(round int64) {
	if q.used.Load() != round {
		q.used.Store(round)
	}
}

func (g *registry) add(s *shard, kind subjects.Kind, name string, hash uint64) (*Queue, error) {
	name = strings.Clone(name) // a substring would keep the whole subject in memory
	q := &Queue{Name: name, Kind: kind, lane: g.lanes[(hash/registryShards+uint64(kind))%uint64(len(g.lanes))]}

	var err error
	if kind == subjects.FIFO {
		q.Target, err = g.keyspace.Queue(name)
	} else {
		q.Target, err = g.keyspace.PriorityQueue(name)
	}
	if err != nil {
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
	if oldest != nil { // else all are busy, and the number of their requests is bounded as well
		delete(s.queues, oldest.Name)
	}
}

// beginRound begins a round and returns its number.
func (g *registry) beginRound() int64 { return g.round.Add(1) }

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

// evictUnused drops those of the queues that have still not been used since the round began.
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
