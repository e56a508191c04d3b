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
//	("m", priority, count, random, part) = bytes    headers and the rest of a long value
//	("n")                                = int64    number of items
//	("n", priority)                      = int64    number of items of that priority
//	("r", ...), ("f", ...)                          staged pops, see staged_keys.go
//	("t", due, kind, ...)                = ""       time index: what falls due when, see due.go
//
// For a Queue the same without priority:
//
//	("i", index, random)       = value              an item, exactly the recipe's key
//	("m", index, random, part) = bytes
//	("n")                      = int64
//
// Queues of a Keyspace also have, below its roots (here "pq"):
//
//	("pq-queues", name)  = (microseconds) or (microseconds, mark), see list.go
//	("pq-x", lane, batch) = receipt of a committed batch, see Batcher
//	("pq-x", "probe")     = receipt of no batch, see Probe
//	("pq-store")          = identity and settings of the keyspace, see OpenStore
//
// All roots of a Keyspace are in one table: see areas.
//
// count is one more than the highest count in use at that priority, index one
// more than the highest index in use. id.go says what random is, message.go
// what value and part hold.

// The kinds of keys, the first element below a queue's own subspace.
const (
	kindItem    = "i"
	kindMeta    = "m"
	kindCounter = "n"
	kindRequest = "r"
	kindAnswer  = "f"
	kindDue     = "t"

	// kindSize is the bytes of a packed kind.
	kindSize = len("\x02i\x00")
)

// layout makes the keys of one queue. There may be very many, so it holds
// nothing that can be made when it is needed. But for listed and cameShort it is
// not changed after it was made.
type layout struct {
	prefix string // of all keys of the queue; names it among others in a batch
	list   *list  // that the queue is registered in; nil outside a Keyspace
	fifo   bool
	format ValueFormat

	// listed is the start of the newest batch that saw or put the queue in the
	// list, and is durable; nil if there was none. See list.go for how long that
	// may be relied on.
	listedSince atomic.Pointer[time.Time]

	// cameShort says that the last pop found too few items. It is a guess at what
	// the next one will find, and decides only what is read early: see due.go.
	cameShort atomic.Bool
}

func newLayout(s Subspace, format ValueFormat, fifo bool) *layout {
	return &layout{prefix: string(s.Bytes()), format: format, fifo: fifo}
}

// key returns the key (kind), in new memory with room for more.
func (l *layout) key(kind string, room int) []byte {
	key := make([]byte, 0, len(l.prefix)+kindSize+room)
	return tuple.AppendString(append(key, l.prefix...), kind)
}

// within is the range of all tuples that begin with prefix and go on. It takes
// prefix over: what follows it in the same memory may be written to.
func within(prefix []byte) kv.Range {
	end := append(make([]byte, 0, len(prefix)+1), prefix...)
	return kv.Range{Begin: append(prefix, 0x00), End: append(end, 0xff)}
}

func (l *layout) itemRange() kv.Range { return within(l.key(kindItem, 1)) }

// priorityRange is the range in which the items of one priority are.
func (l *layout) priorityRange(priority int64) kv.Range {
	return within(l.priorityKey(kindItem, priority))
}

// priorityKey returns the key (kind, priority), in queues that have priorities,
// in new memory with room for the rest of an item's key.
func (l *layout) priorityKey(kind string, priority int64) []byte {
	key := l.key(kind, 64)
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

// firstCount is the count of the first item in an empty queue, as the recipes
// have it.
func (l *layout) firstCount() int64 {
	if l.fifo {
		return 1
	}
	return 0
}

// parseItem reads an item's id from its key.
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

func (l *layout) clear(tx kv.Transaction) {
	tx.ClearRange(within([]byte(l.prefix)))
}
