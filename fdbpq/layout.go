package fdbpq

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// The keys of a queue are tuples below its own subspace. For a PriorityQueue:
//
//	("i", priority, count, random)       = value    an item, exactly the recipe's key
//	("h", priority, count, random)       = bytes    an item that is leased or delayed, see held.go
//	("a", priority, count, random)       = history of an item in ("i"), see held.go
//	("m", priority, count, random, part) = bytes    headers and the rest of a long value
//	("n")                                = int64    counter: items
//	("n", priority)                      = int64    counter: items of that priority
//	("n", "leased"), ("n", "delayed")    = int64    counters: held items
//	("r", ...), ("f", ...)                          staged pops, see staged_keys.go
//	("t", due, kind, ...)                = ""       time index, see due.go and expiry.go
//	("b"), ("b", "counted")                bytes of all items, with Settings.MaxBytes: see bytes.go
//	("c")                                = settings, see config.go
//	("d", msg id), ("e", until, msg id), ("u", unique key)
//	                                                pushes done once, see dedup.go
//	("dead", ...)                                   its dead letters, outside a Keyspace: see deadletter.go
//
// For a Queue, the same without priority:
//
//	("i", index, random)       = value              an item, exactly the recipe's key
//	("m", index, random, part) = bytes
//	("n")                      = int64
//
// A Keyspace also has keys below its roots (here "pq"):
//
//	("pq-queues", name)        = (microseconds) or (microseconds, mark), see list.go
//	("pq-x", batcherID, batch) = receipt of a committed batch, see Batcher
//	("pq-x", "probe")          = a receipt without a batch, see Probe
//	("pq-store")               = identity and settings of the keyspace, see OpenStore
//
// areas is the table of all roots of a Keyspace.
//
// count is one more than the highest count in use at that priority, held items included, and
// index one more than the highest index in use. id.go defines random, message.go value and part.

// Kinds of keys: the first element inside a queue's subspace.
const (
	kindItem    = "i"
	kindHeld    = "h"
	kindHistory = "a"
	kindMeta    = "m"
	kindCounter = "n"
	kindRequest = "r"
	kindAnswer  = "f"
	kindDue     = "t"
	kindExpiry  = "x" // in entries of kindDue
	kindConfig  = "c"
	kindDead    = "dead"

	// kindSize is the length of a packed kind.
	kindSize = len("\x02i\x00")
)

// layout builds the keys of one queue. A process can have very many, so it holds nothing
// that can be computed when needed. Only listedSince ever changes.
type layout struct {
	prefix string // of all keys of the queue, and its identity
	list   *list  // that the queue is in; nil outside a Keyspace
	fifo   bool
	format ValueFormat

	// listedSince is when the newest durable batch began that saw the queue in the
	// list, or put it there; nil if none has. list.go says for how long pushes may rely
	// on it.
	listedSince atomic.Pointer[time.Time]
}

func newLayout(s Subspace, format ValueFormat, fifo bool) *layout {
	return &layout{prefix: string(s.Bytes()), format: format, fifo: fifo}
}

// key returns the key (kind), in new memory with room for more bytes.
func (l *layout) key(kind string, room int) []byte {
	key := make([]byte, 0, len(l.prefix)+kindSize+room)
	return tuple.AppendString(append(key, l.prefix...), kind)
}

// within returns the range of all tuples that extend prefix. It owns prefix from then
// on, including the spare capacity behind it, which has room for both ends if prefix is from
// kindRange or priorityKey.
func within(prefix []byte) kv.Range {
	n := len(prefix) + 1
	both := append(append(prefix, 0x00), prefix...)
	both = append(both, 0xff)
	return kv.Range{Begin: both[:n:n], End: both[n:]}
}

// kindRange is the range of the keys of a kind.
func (l *layout) kindRange(kind string) kv.Range {
	return within(l.key(kind, len(l.prefix)+kindSize+2))
}

func (l *layout) itemRange() kv.Range { return l.kindRange(kindItem) }

// priorityRange is the range of the items of one priority.
func (l *layout) priorityRange(priority int64) kv.Range {
	return within(l.priorityKey(kindItem, priority))
}

// priorityKey returns the key (kind, priority), or (kind) in a FIFO queue, in new memory
// with room for the rest of an item's key, and for the range of the priority.
func (l *layout) priorityKey(kind string, priority int64) []byte {
	key := l.key(kind, max(64, len(l.prefix)+32))
	if l.fifo {
		return key
	}
	return tuple.AppendInt(key, priority)
}

func (l *layout) idKey(kind string, id *ID) []byte {
	key := l.priorityKey(kind, id.Priority)
	key = tuple.AppendInt(key, id.Count)
	return tuple.AppendBytes(key, id.Random[:])
}

func (l *layout) itemKey(id *ID) []byte { return l.idKey(kindItem, id) }

func (l *layout) metaRange(id *ID) kv.Range { return within(l.idKey(kindMeta, id)) }

func (l *layout) metaKey(id *ID, part int) []byte {
	return tuple.AppendInt(l.idKey(kindMeta, id), int64(part))
}

func (l *layout) totalKey() []byte { return l.key(kindCounter, 0) }

func (l *layout) counterKey(priority int64) []byte { return l.priorityKey(kindCounter, priority) }

// firstCount is the count of the first item in an empty queue, as in the recipes.
func (l *layout) firstCount() int64 {
	if l.fifo {
		return 1
	}
	return 0
}

// parseItem returns the id in an item's key.
func (l *layout) parseItem(key []byte) (ID, error) {
	var id ID
	var err error
	rest := key[len(l.prefix)+kindSize:]
	if !l.fifo {
		if id.Priority, rest, err = tuple.DecodeInt(rest); err != nil {
			return id, fmt.Errorf("%w: item key %x: priority: %w", ErrCorrupt, key, err)
		}
	}
	if id.Count, rest, err = tuple.DecodeInt(rest); err != nil {
		return id, fmt.Errorf("%w: item key %x: count: %w", ErrCorrupt, key, err)
	}
	random, rest, err := tuple.DecodeBytes(rest)
	if err != nil {
		return id, fmt.Errorf("%w: item key %x: random part: %w", ErrCorrupt, key, err)
	}
	if len(random) != randomSize || len(rest) != 0 {
		return id, fmt.Errorf("%w: item key %x: random part has %d bytes, then %d more: want %d, then none",
			ErrCorrupt, key, len(random), len(rest), randomSize)
	}
	copy(id.Random[:], random)
	return id, nil
}

// clearBesideSettings clears all keys but the settings, which pushes read, so it does not conflict with those.
func (l *layout) clearBesideSettings(tx kv.Transaction) {
	all, settings := within([]byte(l.prefix)), kv.SingleKey(l.key(kindConfig, 0))
	tx.ClearRange(kv.Range{Begin: all.Begin, End: settings.Begin})
	tx.ClearRange(kv.Range{Begin: settings.End, End: all.End})
}

func (l *layout) clear(tx kv.Transaction) {
	tx.ClearRange(within([]byte(l.prefix)))
}
