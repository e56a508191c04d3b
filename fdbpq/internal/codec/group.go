package codec

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// A message may have a group. The id of its item has a hash of that, and the group is all items with
// the same hash. While such an item is in the queue, it has a key in
//
//	("w", hash, priority, count, random) = ""      ready
//	("y", hash, priority, count, random) = ""      held
//
// and while there are some of that group,
//
//	("z", hash, 0, priority) = int64               counts those that are ready, by priority,
//	("z", hash, 1)           = int64               and those that are leased
//	("z", hash, 2)                                 is never written, see GroupConflictKey
//
// written together with the keys of the item. An item of a queue that limits groups has them without
// a group, too, under the hash 0. Programs that do not know groups leave keys of items behind; what
// meets one removes it.
//
//	("v", priority) = (count)
//
// is the highest count of an item with a group that was served from the front. It may be missing, or
// be left from items that are gone.
//
// In a FIFO queue all of these are without priority. See state.Turns for what they are for.

// groupKey returns the key (kind, hash), with room for more.
func (l *Layout) groupKey(kind string, hash GroupHash) []byte {
	return tuple.AppendInt(l.Key(kind, max(64, len(l.Prefix)+40)), int64(hash))
}

// GroupItemKey is the key of an item in the index of its group.
func (l *Layout) GroupItemKey(kind string, hash GroupHash, id *ID) []byte {
	key := l.appendPriority(l.groupKey(kind, hash), id.Priority)
	return tuple.AppendBytes(tuple.AppendInt(key, id.Count), id.Random[:])
}

// GroupRange is the range of the index of a group at a priority.
func (l *Layout) GroupRange(kind string, hash GroupHash, priority int64) kv.Range {
	return Within(l.appendPriority(l.groupKey(kind, hash), priority))
}

// GroupItems is the range of the index of a group.
func (l *Layout) GroupItems(kind string, hash GroupHash) kv.Range {
	return Within(l.groupKey(kind, hash))
}

// ParseGroupItem returns the id in a key of the index.
func (l *Layout) ParseGroupItem(key []byte) (id ID, err error) {
	d := decoder{rest: l.Place(key)}
	d.int() // the hash
	if !l.Fifo {
		id.Priority = d.int()
	}
	id.Count, id.Random = d.int(), d.random()
	if err := d.end(); err != nil {
		return id, fmt.Errorf("%w: key %x of a group: %w", ErrCorrupt, key, err)
	}
	return id, nil
}

// GroupReadyKey is the key that counts the ready items of a group at a priority.
func (l *Layout) GroupReadyKey(hash GroupHash, priority int64) []byte {
	return l.appendPriority(tuple.AppendInt(l.groupKey(kindGroupCounter, hash), 0), priority)
}

// GroupLeasedKey is the key that counts the leased items of a group.
func (l *Layout) GroupLeasedKey(hash GroupHash) []byte {
	return tuple.AppendInt(l.groupKey(kindGroupCounter, hash), 1)
}

// GroupConflictKey is never written: transactions that lease items of a group conflict by it.
func (l *Layout) GroupConflictKey(hash GroupHash) []byte {
	return tuple.AppendInt(l.groupKey(kindGroupCounter, hash), 2)
}

// GroupCounters is the range of the counters of groups.
func (l *Layout) GroupCounters() kv.Range { return l.KindRange(kindGroupCounter) }

// ParseGroupCounter returns what a key in GroupCounters counts.
func (l *Layout) ParseGroupCounter(key []byte) (hash GroupHash, leased bool, err error) {
	d := decoder{rest: l.Place(key)}
	hash, leased = GroupHash(d.int()), d.int() > 0
	if !leased && !l.Fifo {
		d.int() // the priority
	}
	if err := d.end(); err != nil {
		return 0, false, fmt.Errorf("%w: counter %x of a group: %w", ErrCorrupt, key, err)
	}
	return hash, leased, nil
}

// GroupBeyond is the range of the ready items of a group that come after the key of an item in ("i")
// from an end.
func (l *Layout) GroupBeyond(hash GroupHash, end End, key []byte) kv.Range {
	prefix := l.groupKey(KindGroupReady, hash)
	r := Within(bytes.Clone(prefix))
	if last := append(prefix, l.Place(key)...); end == Front {
		r.Begin = kv.SingleKey(last).End
	} else {
		r.End = last
	}
	return r
}

// TurnKey is the key that says how far groups have been served at a priority.
func (l *Layout) TurnKey(priority int64) []byte { return l.priorityKey(kindTurn, priority) }

// EncodeCount returns the value of a TurnKey or a BucketKey.
func EncodeCount(n int64) []byte { return tuple.AppendInt(nil, n) }

// ParseCount reads what EncodeCount wrote. What is missing or cannot be read is none.
func ParseCount(value []byte, none int64) int64 {
	d := decoder{rest: value}
	if n := d.int(); d.end() == nil {
		return n
	}
	return none
}

// GroupSize is about how many bytes more of a transaction an operation takes if its item has a
// group: two keys in the index, with their conflict ranges, and two counters.
func (l *Layout) GroupSize() int { return 4 * 3 * (len(l.Prefix) + 60) }

// GroupSizeOf is that of an item, 0 if it is not indexed.
func (l *Layout) GroupSizeOf(id *ID) int {
	if GroupIn(id) == NotIndexed {
		return 0
	}
	return l.GroupSize()
}

// GroupHeader is the header that names the group of a message. It is stored as any other header.
const GroupHeader = "Pq-Group"

// MaxGroup is the longest group, in bytes.
const MaxGroup = 128

// Group returns the group of the message, "" if it has none.
func (m Message) Group() string {
	if values := m.Headers[GroupHeader]; len(values) == 1 && CheckGroup(values) == nil {
		return values[0]
	}
	return ""
}

// CheckGroup returns an error unless the values of GroupHeader, if there are any, name a group.
func CheckGroup(values []string) error {
	if values == nil {
		return nil
	}
	if len(values) != 1 || len(values[0]) < 1 || len(values[0]) > MaxGroup || strings.ContainsAny(values[0], "\r\n") {
		return fmt.Errorf("%w: bad %s: want 1 to %d bytes in one line, once", ErrOp, GroupHeader, MaxGroup)
	}
	return nil
}

// GroupHash is what ids and keys have of a group: 40 bits of the SHA-256 of its name.
type GroupHash int64

const (
	// NotIndexed is for items whose id says nothing about a group.
	NotIndexed GroupHash = -1
	// NoGroup is for items without a group in queues that limit groups: the search for items that may
	// be served finds them under it.
	NoGroup GroupHash = 0
)

// HashGroup returns the hash of a group. It is never NoGroup.
func HashGroup(group string) GroupHash {
	sum := sha256.Sum256([]byte(group))
	var hash GroupHash
	for _, b := range sum[:groupSize] {
		hash = hash<<8 | GroupHash(b)
	}
	return max(hash, 1)
}

// GroupOf returns what the id of a message says about its group, in a queue with the settings.
func GroupOf(m *Message, s *Settings) GroupHash {
	if group := m.Group(); group != "" {
		return HashGroup(group)
	}
	if s.LimitsGroups() {
		return NoGroup
	}
	return NotIndexed
}

// A queue with Settings.Rate, or with RatePerGroup, keeps account of deliveries:
//
//	("q")       = (time)      when the queue may have a full burst again, in nanoseconds
//	("q", hash) = (time)      the same of a group
//
// Each delivery moves that time on. A row falls due then, see held.go, because it says nothing any more.
// A change of the settings removes rows and leaves their entries of the time index. Those may stand
// for no row, or for one with another time.

// KindBucket is the kind of these keys.
const KindBucket = "q"

// BucketKey is the key of a group or, for NotIndexed, of the queue.
func (l *Layout) BucketKey(hash GroupHash) []byte {
	if hash == NotIndexed {
		return l.Key(KindBucket, 0)
	}
	return tuple.AppendInt(l.Key(KindBucket, 8), int64(hash))
}

// ParseBucketKey returns the group of a BucketKey of one.
func (l *Layout) ParseBucketKey(key []byte) (GroupHash, error) {
	d := decoder{rest: l.Place(key)}
	hash := GroupHash(d.int())
	return hash, d.end()
}

// GroupBuckets is the range of the keys of groups.
func (l *Layout) GroupBuckets() kv.Range { return l.KindRange(KindBucket) }

// BucketRowDue is when a row with that value falls due.
func BucketRowDue(value []byte) time.Time { return BucketDue(ParseCount(value, 0)) }

// BucketDue is when a row with that time falls due: not before it, to the microsecond.
func BucketDue(full int64) time.Time { return Micros(time.Unix(0, full+int64(time.Microsecond)-1)) }

// SetGroup sets the group of an id that NewID has made.
func SetGroup(id *ID, hash GroupHash) {
	if hash == NotIndexed {
		return
	}
	id.Random[flagsAt] |= flagGroup
	for i := range groupSize {
		id.Random[uniqueAt+i] = byte(hash >> (8 * (groupSize - 1 - i)))
	}
}

// GroupIn returns the group in an id.
func GroupIn(id *ID) GroupHash {
	if id.Random[flagsAt]&flagGroup == 0 || !Ours(id) {
		return NotIndexed
	}
	var hash GroupHash
	for _, b := range id.Random[uniqueAt : uniqueAt+groupSize] {
		hash = hash<<8 | GroupHash(b)
	}
	return hash
}

// PushSize is at least the number of bytes that a push takes in a transaction, if its
// priority is its alone.
func (l *Layout) PushSize(m *Message, delays bool) int {
	// Each key is written, with a conflict range of two keys: that of the item, those of its
	// parts, and a counter. 64 bytes are for the rest of a key and for what FoundationDB counts
	// besides keys; a Database that decorates another may have a prefix of 32 bytes.
	const rest = 3 * (KindSize + 64 + 32)
	keys := 2
	if l.NeedsMeta(m) {
		keys += 1 + m.Size()/ChunkSize
	}
	if delays || !m.Expires.IsZero() { // the entry of the time index contains the key of the item
		keys++
	}

	size := m.Size() + l.DedupSize(m) + keys*(3*len(l.Prefix)+rest)

	if delays {
		size += maxRecord
	}
	if m.Unique != "" && (delays || !m.Expires.IsZero()) { // they contain it
		size += textSize(m.Unique)
	}
	if m.Group() != "" {
		size += l.GroupSize()
	}
	if l.Format == TupleValues { // zero bytes take two
		size += bytes.Count(m.Value[:min(len(m.Value), ChunkOf(l.Format))], []byte{0})
	}
	return size
}
