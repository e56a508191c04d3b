package codec

import (
	"sync/atomic"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// The keys of a queue are tuples below its own subspace. For a PriorityQueue:
//
//	("i", priority, count, random)       = value    an item, exactly the recipe's key
//	("h", priority, count, random)       = record   an item that is leased or delayed, see held.go
//	("a", priority, count, random)       = history of an item in ("i"), see held.go
//	("m", priority, count, random, part) = bytes    headers and the rest of a long value
//	("n")                                = int64    counter: items
//	("n", priority)                      = int64    counter: items of that priority
//	("n", "leased"), ("n", "delayed")    = int64    counters: held items
//	("r", ...), ("f", ...)                          staged pops, see staged_keys.go
//	("t", due, kind, ...)                = ""       time index, see held.go
//	("b")                                = int64    counter: bytes of all items, see below
//	("c")                                = settings, see config.go
//	("p", name)                          = JSON     record of a consumer, see config.go
//	("s", id)                            = JSON     record of a schedule, see config.go
//	("l", "p", name), ("l", "s", id)                summaries of these records
//	("k")                                = JSON     state of the source, see config.go
//	("d", msg id), ("e", until, msg id)             message ids of pushes, see dedup.go
//	("u", unique key)                    = place    unique keys of items, see dedup.go
//	("g", ...), ("o", ...), ("j", ...)              finished jobs that are kept, see finished.go
//	("~", job id)                        = place    where a job is that has moved, see alias.go
//	("J", ...)                                      joiners and their members, see join.go
//	("A", priority, count, random, number)          attempts of an item, see trail.go
//	("w", group, priority, count, random) = ""      index of ready items by group, see group.go
//	("y", group, priority, count, random) = ""      index of held items by group
//	("z", group, 0), ("z", group, 1)     = int64    counters: ready and leased items of a group
//	("v", priority)                      = (count, number)  how far groups have been served
//	("q"), ("q", group)                  = time     rates, see group.go
//	("dead", ...)                                   dead letters, see deadletter.go
//
// For a Queue, the same without priority, and so on:
//
//	("i", index, random)       = value              an item, exactly the recipe's key
//	("m", index, random, part) = bytes
//	("n")                      = int64
//
// count is one more than the highest count in use at that priority, held items included, and index
// one more than the highest index in use. id.go defines random, message.go value and part. Keys of
// kinds from ("u") on, ("A") and ("J") do not keep a queue in the list of queues: see fdbpq.Retire.
//
// A Keyspace also has keys below its roots (here "pq"). CheckAreas, in keyspace.go, has the table
// of all roots:
//
//	("pq-queues", name)        = (microseconds) or (microseconds, mark), see List
//	("pq-x", batcherID, batch) = receipt of a committed batch, see fdbpq.Batcher
//	("pq-x", "probe")          = a receipt without a batch, see fdbpq.Probe
//	("pq-store")               = identity and settings of the keyspace, see fdbpq.OpenStore
//	("pq-store", "groups")     = secret of the hashes of groups, see keyspace.go
//	("pq-store", "settings")   = changes with the settings of any queue, see keyspace.go
//	("pq-store", "traffic", ...)  what services count, see fdbpq.Keyspace.TrafficKey

// Kinds of keys: the first element inside a queue's subspace.
const (
	KindItem    = "i"
	KindHeld    = "h"
	KindHistory = "a"
	KindMeta    = "m"
	KindCounter = "n"
	KindRequest = "r"
	KindAnswer  = "f"
	KindDue     = "t"
	KindExpiry  = "x" // in entries of KindDue
	KindConfig  = "c"
	KindSummary = "l"
	kindDead    = "dead"

	KindGroupReady   = "w"
	KindGroupHeld    = "y"
	kindGroupCounter = "z"
	kindTurn         = "v"

	// KindSize is the length of a packed kind.
	KindSize = len("\x02i\x00")
)

// ItemKinds are the kinds of keys that exist because of items: the items themselves, what belongs
// to them, and what counts, orders and indexes them. The time index is among them, although it has
// other entries.
var ItemKinds = []string{
	KindItem, KindHeld, KindHistory, KindMeta, KindUnique, KindCounter, KindDue,
	KindGroupReady, KindGroupHeld, kindGroupCounter, kindTurn, kindAlias, KindJoin,
	KindAttempt,
}

// Layout builds the keys of one queue. A process can have very many of them, so a Layout holds
// nothing that can be computed when needed. Only ListedSince ever changes.
type Layout struct {
	Prefix string // of all keys of the queue; identifies it
	List   *List  // the list that the queue is in; nil outside a Keyspace
	Fifo   bool
	Format ValueFormat

	// ListedSince is when the newest durable batch began that saw the queue in the list or put it
	// there; nil if none has. List says how long pushes may rely on it.
	ListedSince atomic.Pointer[time.Time]
}

// NewLayout returns the layout of a queue outside a Keyspace.
func NewLayout(s Subspace, format ValueFormat, fifo bool) *Layout {
	return &Layout{Prefix: string(s.Bytes()), Format: format, Fifo: fifo}
}

// Key returns the key (kind), in new memory with room for more bytes.
func (l *Layout) Key(kind string, room int) []byte {
	key := make([]byte, 0, len(l.Prefix)+KindSize+room)
	return tuple.AppendString(append(key, l.Prefix...), kind)
}

// Within returns the range of all tuples that extend prefix. It takes over prefix and the spare
// capacity behind it, where both ends of the range find room if prefix is from KindRange or
// priorityKey.
func Within(prefix []byte) kv.Range {
	// Both ends share one piece of memory.
	n := len(prefix) + 1
	both := append(append(prefix, 0x00), prefix...)
	both = append(both, 0xff)
	return kv.Range{Begin: both[:n:n], End: both[n:]}
}

// KindRange is the range of the keys of a kind.
func (l *Layout) KindRange(kind string) kv.Range {
	return Within(l.Key(kind, len(l.Prefix)+KindSize+2))
}

// AllOf is KindRange and the key (kind) itself.
func (l *Layout) AllOf(kind string) kv.Range {
	return kv.Range{Begin: l.Key(kind, 0), End: append(l.Key(kind, 1), 0xff)}
}

// ItemRange is the range of the ready items.
func (l *Layout) ItemRange() kv.Range { return l.KindRange(KindItem) }

// PriorityRange is the range of the items at a priority, ready ones (KindItem) or held ones.
func (l *Layout) PriorityRange(kind string, priority int64) kv.Range {
	return Within(l.priorityKey(kind, priority))
}

// priorityKey returns the key (kind, priority), or (kind) in a FIFO queue, in new memory with room
// for the rest of an item's key, or for the range of the priority.
func (l *Layout) priorityKey(kind string, priority int64) []byte {
	return l.appendPriority(l.Key(kind, max(64, len(l.Prefix)+32)), priority)
}

// appendPriority appends a priority, unless this is a FIFO queue.
func (l *Layout) appendPriority(key []byte, priority int64) []byte {
	if l.Fifo {
		return key
	}
	return tuple.AppendInt(key, priority)
}

// IDKey returns the key (kind, priority, count, random) of an item.
func (l *Layout) IDKey(kind string, id *ID) []byte {
	return appendPlace(l.priorityKey(kind, id.Priority), id)
}

// appendPlace appends the count and the random part of an id.
func appendPlace(key []byte, id *ID) []byte {
	return tuple.AppendBytes(tuple.AppendInt(key, id.Count), id.Random[:])
}

// idIn reads the id in the key of an item, which has no priority in a FIFO queue.
func (d *decoder) idIn(l *Layout) (id ID) {
	if !l.Fifo {
		id.Priority = d.int()
	}
	id.Count, id.Random = d.int(), d.random()
	return id
}

// ItemKey is the key of a ready item.
func (l *Layout) ItemKey(id *ID) []byte { return l.IDKey(KindItem, id) }

// MetaRange is the range of the ("m") keys of an item.
func (l *Layout) MetaRange(id *ID) kv.Range { return Within(l.IDKey(KindMeta, id)) }

// MetaKey is one of the ("m") keys of an item; part counts from 0.
func (l *Layout) MetaKey(id *ID, part int) []byte {
	return tuple.AppendInt(l.IDKey(KindMeta, id), int64(part))
}

// TotalKey is the counter of ready items.
func (l *Layout) TotalKey() []byte { return l.Key(KindCounter, 0) }

// CounterKey is the counter of ready items at a priority.
func (l *Layout) CounterKey(priority int64) []byte { return l.priorityKey(KindCounter, priority) }

// ParseItem returns the id in a key that IDKey has made.
func (l *Layout) ParseItem(key []byte) (id ID, err error) {
	d := decoder{rest: l.Place(key)}
	return finish(&d, d.idIn(l), "item key", key)
}

// ClearBesideSettings clears all keys except the settings. Pushes read the settings, so clearing
// them would conflict with pushes.
func (l *Layout) ClearBesideSettings(tx kv.Transaction) {
	all, settings := Within([]byte(l.Prefix)), kv.SingleKey(l.Key(KindConfig, 0))
	tx.ClearRange(kv.Range{Begin: all.Begin, End: settings.Begin})
	tx.ClearRange(kv.Range{Begin: settings.End, End: all.End})
}

// ChangeSettingsVersion must be called by each transaction that changes the settings of the queue.
// It does not make transactions conflict.
func (l *Layout) ChangeSettingsVersion(tx kv.Transaction) {
	if l.List != nil {
		tx.Set([]byte(l.List.SettingsVersion), UniqueBytes(1))
	}
}

// Before returns the range from an end of the ready items up to a key, and including it.
func (l *Layout) Before(key []byte, end End) kv.Range {
	r := l.ItemRange()
	if end == Back {
		r.Begin = key
	} else {
		r.End = kv.SingleKey(key).End
	}
	return r
}

const kindBytes = "b"

// BytesKey is the counter of bytes: Message.Size of all items, in all states, and of items that a
// staged pop has yet to collect. A queue with Settings.MaxBytes has it, and no other. Setting
// MaxBytes counts the items that are there, and resetting it removes the key.
func (l *Layout) BytesKey() []byte { return l.Key(kindBytes, 0) }

// Place returns a key without the queue's subspace and the kind. The place of an item is the same
// whether it is ready or held.
func (l *Layout) Place(key []byte) []byte { return key[len(l.Prefix)+KindSize:] }

// MaxQueueName is the longest queue name, in bytes.
const MaxQueueName = settings.MaxQueueName

// ValueFormat says how the bytes of a value are stored in an item's key.
type ValueFormat uint8

const (
	// RawValues stores the bytes as they are, as the recipes in Python do.
	RawValues ValueFormat = iota
	// TupleValues stores a tuple of one byte string, as the recipes in Java do.
	TupleValues
)

// Subspace is the keys that begin with one prefix: a subspace.Subspace or
// directory.DirectorySubspace of FoundationDB's Go binding, or a tuple.Subspace of this project. A
// directory partition cannot hold keys, and its Bytes panics; create a directory inside.
type Subspace interface {
	// Bytes returns the prefix.
	Bytes() []byte
}

// String returns "raw" or "tuple".
func (f ValueFormat) String() string {
	if f == TupleValues {
		return "tuple"
	}
	return "raw"
}

// Name returns the queue's name in its Keyspace, "" outside of one.
func (l *Layout) Name() string {
	if l.List == nil {
		return ""
	}
	name, _, _ := tuple.DecodeString([]byte(l.Prefix[len(l.List.root):])) // packed by LayoutOf
	return name
}

// QueueName names a queue of a Keyspace.
type QueueName struct {
	FIFO bool // it is a Queue, otherwise a PriorityQueue
	Name string
}

// AppendName appends the name of the queue if it is in a Keyspace.
func (l *Layout) AppendName(names []QueueName) []QueueName {
	if l.List == nil {
		return names
	}
	return append(names, QueueName{l.Fifo, l.Name()})
}

// PushesTo reports whether acknowledgements of this queue may be able to push to another one: both
// are of the same kind, and in the same Keyspace.
func (l *Layout) PushesTo(to *Layout) bool {
	return l.List != nil && to.List != nil && l.List.Prefix == to.List.Prefix && l.Fifo == to.Fifo
}

// ListKey is the key of the queue in its list.
func (l *Layout) ListKey() []byte {
	name := l.Prefix[len(l.List.root):] // packed
	return []byte(l.List.Prefix + name)
}

// RecentlyListed reports whether a push may rely on the queue being in the list. It compares both
// the monotonic and the wall clock, because either may have stopped or been set meanwhile.
func (l *Layout) RecentlyListed(now time.Time) bool {
	seen := l.ListedSince.Load()
	if seen == nil {
		return false
	}
	age, byWall := now.Sub(*seen), now.Round(0).Sub(seen.Round(0))
	return 0 <= age && age < listedLife && 0 <= byWall && byWall < listedLife
}

// List is the list of the queues of one kind in a Keyspace:
//
//	("pq-queues", name) = (microseconds)        listed, since about then
//	                    = (microseconds, mark)  listed, but Retire found the queue empty
//
// Pushes list queues, and Retire takes empty ones off the list.
//
// # Why no queue with items is missing
//
// A push must not conflict with other pushes, and should not read the list each time. So for
// listedLife from its start, a batch that has seen the entry serves later pushes of the same
// process as well. Other pushes read the entry, without conflict, and write it if it is missing or
// has a mark.
//
// Taking a queue off the list takes two transactions. The first finds the queue empty and leaves a
// mark. The second, RetireAfter later, finds the queue still empty with the same mark, and removes
// the entry. Both read the entry and the range of the items, so that they conflict with every
// change of either.
//
// If a push commits before the second transaction, that transaction sees it or conflicts with it.
// If the push commits afterwards, there are two cases:
//
//   - It read the entry. Then it began after the mark was made, or it would have ended by now. So
//     it saw the mark, or no entry, and wrote the entry. Either the second transaction conflicts
//     with that, or the write restores what it removed.
//   - It relied on an earlier batch, which began less than listedLife before, so also after the
//     mark was made. That batch saw the entry without a mark, or wrote it. So the mark was gone,
//     and the second transaction did not find it.
//
// This holds as long as a transaction ends within RetireAfter - listedLife of its start. All
// durations are measured by the clock of one process.
type List struct {
	Prefix string // of the keys in the list
	root   string // of the keys of the queues in it

	GroupSecret string // key of the secret of the Keyspace, see GroupHash

	SettingsVersion string // key that each change of settings in the Keyspace writes
}

const (
	// listedLife is how long pushes may rely on a batch that saw their queue in the list.
	listedLife = time.Minute
	// RetireAfter is the least time between the call of Retire that marks a queue and the call that
	// takes it off the list.
	RetireAfter = 10 * time.Minute
)

// ParseListEntry returns the mark of an entry, "" without one.
func ParseListEntry(value []byte) (mark Mark, err error) {
	d := decoder{rest: value}
	d.int()
	if d.more() {
		mark = Mark(d.bytes())
	}
	return finish(&d, mark, "list of queues: value", value)
}

// Name returns the name in the key of an entry.
func (l *List) Name(key []byte) (string, error) {
	d := decoder{rest: key[len(l.Prefix):]}
	return finish(&d, d.text(), "list of queues: key", key)
}

// Mark is what Retire adds to the list entry of a queue that it found empty.
type Mark string
