package state

import (
	"maps"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/recent"
)

// QueueCache is what a Batcher knows of the queues of a store from its own transactions, so that
// later ones need not read it again. It holds only where nobody else can have written in between:
// in a store with turns, see kv.Transaction.Turn. A nil *QueueCache knows nothing.
type QueueCache struct {
	turn   int64                     // of the last transaction
	queues *recent.Map[*cachedQueue] // by prefix
}

const (
	// MaxQueueCache is the most bytes that are worth while for a QueueCache.
	MaxQueueCache = 32 << 20
	// maxCachedMessage is the largest Message.Size that cachedQueue.leased holds.
	maxCachedMessage = 1024
)

// About how many bytes a cachedQueue takes, and the elements of its maps.
const (
	cachedQueueSize = 300
	countSize       = 40
	turnSize        = 250
	leasedSize      = 300
)

// NewQueueCache returns a QueueCache that knows nothing yet, and takes about that many bytes. One
// transaction may exceed them.
func NewQueueCache(bytes int) *QueueCache {
	size := func(_ string, c *cachedQueue) int { return c.size }
	return &QueueCache{queues: recent.NewMap(bytes, size)}
}

// CountsByQueue holds a count for each priority of each queue, by the queue's prefix.
type CountsByQueue map[string]map[int64]int64

// cachedQueue is the known state of one queue, as the open transaction sees it, with its own
// writes. Code that writes what a field is about must also change the field. A nil *cachedQueue
// knows nothing.
//
//	field        unknown          learned by                   changed by
//	quietUntil   zero             ReadDue that finds nothing   noteDue, to an earlier time
//	noHistories  false            FirstHistory                 SetHistory
//	settings     nil              Settings                     SetSettings
//	counts       not in the map   LearnCounts                  forgetCounts
//	readAhead    see readAhead    a walk from the front        each change of ("i"), Purge
//	leased       not in the map   Hold of a lease              Unhold, Purge
//	turns        see turn         Turns.Load                   each move of an item, Purge
//	orderEnd     zero             Finish                       Finish, to a later time
type cachedQueue struct {
	cache *QueueCache
	size  int // about how many bytes all of it takes

	quietUntil  time.Time             // nothing falls due before
	noHistories bool                  // no item has a history
	settings    *codec.StoredSettings // must not be changed
	readAhead   readAhead
	leased      map[codec.ID]*codec.Record // leases that will be acknowledged soon: see knowLeased
	turns       map[turnOf]*turn
	orderEnd    time.Time // no finished job has a later place; too late a time does no harm

	// counts spares pushes the reads of the last items of their priorities. Counts that are too
	// high do no harm, because the order stays the same. So they need not change when items are
	// taken.
	counts  map[int64]int64
	foreign int64 // the turn of the last transaction that called forgetCounts
}

// grow notes that the queue takes more bytes.
func (c *cachedQueue) grow(bytes int) {
	c.size += bytes
	c.cache.queues.Grow(bytes)
}

// BeginTransaction must be called at the beginning of each transaction. If other transactions may
// have written since the last one, it forgets everything.
func (q *QueueCache) BeginTransaction(tx kv.Transaction) {
	if q == nil {
		return
	}

	// The turn counts transactions: the next one means that nobody else has written in between.
	turn := tx.Turn()
	if turn == 0 || turn != q.turn+1 {
		q.queues.Clear()
	}
	q.turn = turn

	// Not later, because all ledgers of a queue in one transaction must have the same cache.
	q.queues.Age()
}

// Any reports whether anything can be known.
func (q *QueueCache) Any() bool { return q != nil && q.turn != 0 }

// Counts returns the next counts of a queue that are known, by priority.
func (q *QueueCache) Counts(l *codec.Layout) map[int64]int64 {
	if c := q.queue(l); c != nil {
		return c.counts
	}
	return nil
}

// forgetCounts must be called when an item comes back to a queue that it had left: it may have a
// higher count than the next one that is known.
func (c *cachedQueue) forgetCounts() {
	if c != nil {
		c.grow(-countSize * len(c.counts))
		c.counts, c.foreign = nil, c.cache.turn
	}
}

// LearnCounts adds the next counts after a transaction, except of queues where forgetCounts was
// called.
func (q *QueueCache) LearnCounts(after CountsByQueue) {
	if !q.Any() {
		return
	}

	for queue, next := range after {
		c, ok := q.queues.Get([]byte(queue))
		if !ok || c.foreign == q.turn {
			continue
		}
		c.grow(-countSize * len(c.counts))
		if c.counts == nil {
			c.counts = next
		} else {
			maps.Copy(c.counts, next)
		}
		c.grow(countSize * len(c.counts))
	}
}

// queue returns what is known of a queue, nil if nothing can be known.
func (q *QueueCache) queue(l *codec.Layout) *cachedQueue {
	if !q.Any() {
		return nil
	}

	c, ok := q.queues.Get([]byte(l.Prefix))
	if !ok {
		c = &cachedQueue{cache: q, size: cachedQueueSize + len(l.Prefix)}
		q.queues.Set(l.Prefix, c)
	}
	return c
}

// knowLeased records that a leased item is written.
func (c *cachedQueue) knowLeased(l *codec.Layout, h *codec.Record) {
	if c == nil {
		return
	}

	c.forgetLeased(&h.ID)
	if c.leased == nil {
		c.leased = map[codec.ID]*codec.Record{}
	}

	// A later acknowledgement needs everything but the value, which may be large, and of a job that
	// it will keep, or that is a member of a join, a small message as well.
	known := *h
	known.Due = codec.Micros(h.Due) // as it is stored
	known.Dropped = len(codec.DecodeValue(l.Format, h.Value))
	known.Value, known.Message = nil, nil
	if m := h.Message; m != nil && m.Size() <= maxCachedMessage {
		own := *m // others may change what they got
		own.Value, own.Headers = slices.Clone(m.Value), maps.Clone(m.Headers)
		known.Message = &own
	}
	c.leased[h.ID] = &known
	c.grow(sizeOfLeased(&known))
}

// forgetLeased records that a held item is removed.
func (c *cachedQueue) forgetLeased(id *codec.ID) {
	if c == nil {
		return
	}
	if known, ok := c.leased[*id]; ok {
		delete(c.leased, *id)
		c.grow(-sizeOfLeased(known))
	}
}

// forgetItems records that all items are removed.
func (c *cachedQueue) forgetItems() {
	if c == nil {
		return
	}
	for id := range c.leased {
		c.forgetLeased(&id)
	}
	c.growReadAhead(-c.readAhead.size)
	c.readAhead = readAhead{}
	c.grow(-turnSize * len(c.turns))
	clear(c.turns)
}

// sizeOfLeased is about how many bytes an element of cachedQueue.leased takes.
func sizeOfLeased(h *codec.Record) int {
	n := leasedSize + len(h.Reason) + len(h.Unique)
	if h.Message != nil {
		n += 200 + h.Message.Size()
	}
	return n
}

// quiet reports whether it is known that nothing is due.
func (c *cachedQueue) quiet(now time.Time) bool { return c != nil && c.quietUntil.After(now) }

// noteDue records that something is written that falls due.
func (c *cachedQueue) noteDue(at time.Time) {
	if c != nil && at.Before(c.quietUntil) {
		c.quietUntil = at
	}
}

// noteSettings records the settings, as they were read or are written.
func (c *cachedQueue) noteSettings(s *codec.StoredSettings) {
	if c != nil {
		c.settings = s
	}
}

// nothing is the result of reading a range that is known to be empty.
var nothing = kv.Ready[[]kv.KeyValue](nil, nil)

// byteCount is what a transaction knows of the bytes of a queue.
type byteCount struct {
	loaded bool
	on     bool  // the queue has MaxBytes, so its items count
	delta  int64 // what Flush adds to the counter
}
