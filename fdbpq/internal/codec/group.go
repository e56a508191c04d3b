package codec

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/settings"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// A message may have a group. The id of its item contains a hash of the group, and the group is all
// items with the same hash. These keys are written together with those of the items:
//
//	("w", hash, priority, count, random) = ""      a ready item of the group
//	("y", hash, priority, count, random) = ""      a held item of the group
//	("z", hash, 0, priority)             = int64   how many are ready at a priority
//	("z", hash, 1)                       = int64   how many are leased
//	("z", hash, 2)                                 never written, see GroupConflictKey
//	("v", priority)                      = (count) highest count of an item with a group that was
//	                                               served from the front
//
// In a queue that limits groups, items without a group have the same keys, under the hash 0.
// Programs that do not know groups leave keys of items behind; transactions that meet such a key
// remove it. The row ("v", priority) may be missing, or be left from items that are gone.
//
// In a FIFO queue all of these are without priority. state.Turns says what they are for.

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
	return finish(&d, id, "index of groups: key", key)
}

// GroupReadyKey is the counter of the ready items of a group at a priority.
func (l *Layout) GroupReadyKey(hash GroupHash, priority int64) []byte {
	return l.appendPriority(tuple.AppendInt(l.groupKey(kindGroupCounter, hash), 0), priority)
}

// GroupLeasedKey is the counter of the leased items of a group.
func (l *Layout) GroupLeasedKey(hash GroupHash) []byte {
	return tuple.AppendInt(l.groupKey(kindGroupCounter, hash), 1)
}

// GroupConflictKey is never written. Transactions that lease items of a group conflict on it.
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

// GroupBeyond is the range of the ready items of a group behind the key of an item in ("i"), seen
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

// TurnKey is the row that says how far groups have been served at a priority.
func (l *Layout) TurnKey(priority int64) []byte { return l.priorityKey(kindTurn, priority) }

// EncodeCount returns the value of a TurnKey or a BucketKey.
func EncodeCount(n int64) []byte { return tuple.AppendInt(nil, n) }

// ParseCount reads what EncodeCount wrote. It returns none if that is missing or cannot be read.
func ParseCount(value []byte, none int64) int64 {
	d := decoder{rest: value}
	if n := d.int(); d.end() == nil {
		return n
	}
	return none
}

// GroupSize is about how many more bytes of a transaction an operation takes if its item has a
// group: two keys in the index, with their conflict ranges, and two counters.
func (l *Layout) GroupSize() int { return 4 * 3 * (len(l.Prefix) + 60) }

// GroupSizeOf is GroupSize for an item that is indexed, and 0 for others.
func (l *Layout) GroupSizeOf(id *ID) int {
	if GroupIn(id) == NotIndexed {
		return 0
	}
	return l.GroupSize()
}

// GroupHeader is the header that names the group of a message. It is stored like any other header.
const GroupHeader = "Pq-Group"

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
	if len(values) == 1 && 1 <= len(values[0]) && len(values[0]) <= settings.MaxGroup &&
		!strings.ContainsAny(values[0], "\r\n") {
		return nil
	}
	return fmt.Errorf("%w: bad %s: want 1 to %d bytes in one line, once",
		ErrOp, GroupHeader, settings.MaxGroup)
}

// GroupHash stands for a group in ids and keys: 40 bits of the SHA-256 of its name.
type GroupHash int64

const (
	// NotIndexed is for items that have no keys in the index of groups.
	NotIndexed GroupHash = -1
	// NoGroup is for items without a group in queues that limit groups. The search for items that
	// may be served finds them under it.
	NoGroup GroupHash = 0
)

// HashGroup returns the hash of a group. It is never NoGroup.
func HashGroup(group string) GroupHash {
	sum := sha256.Sum256([]byte(group))
	return max(groupHash(sum[:]), 1)
}

// groupHash reads a hash of groupSize bytes.
func groupHash(b []byte) GroupHash {
	return GroupHash(binary.BigEndian.Uint32(b))<<8 | GroupHash(b[4])
}

// GroupOf returns the hash for the id of a message in a queue with the settings.
func GroupOf(m *Message, s *Settings) GroupHash {
	if group := m.Group(); group != "" {
		return HashGroup(group)
	}
	if s.LimitsGroups() {
		return NoGroup
	}
	return NotIndexed
}

// A queue with Settings.Rate or RatePerGroup counts deliveries:
//
//	("q")       = (time)      when the queue may have a full burst again, in nanoseconds
//	("q", hash) = (time)      the same for a group
//
// Each delivery moves that time on. At that time the row falls due, see held.go, because it says
// nothing any more. A change of the settings removes rows but leaves their entries of the time
// index. So an entry may stand for no row, or for one with another time.

// KindBucket is the kind of these keys.
const KindBucket = "q"

// BucketKey is the row of a group or, for NotIndexed, of the queue.
func (l *Layout) BucketKey(hash GroupHash) []byte {
	if hash == NotIndexed {
		return l.Key(KindBucket, 0)
	}
	return tuple.AppendInt(l.Key(KindBucket, 8), int64(hash))
}

// ParseBucketKey returns the group of a row in GroupBuckets.
func (l *Layout) ParseBucketKey(key []byte) (GroupHash, error) {
	d := decoder{rest: l.Place(key)}
	hash := GroupHash(d.int())
	return hash, d.end()
}

// GroupBuckets is the range of the rows of groups.
func (l *Layout) GroupBuckets() kv.Range { return l.KindRange(KindBucket) }

// BucketRowDue returns when a row with the value falls due.
func BucketRowDue(value []byte) time.Time { return BucketDue(ParseCount(value, 0)) }

// BucketDue returns when a row with the time falls due: then, rounded up to a microsecond.
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

// GroupIn returns the hash in an id.
func GroupIn(id *ID) GroupHash {
	if id.Random[flagsAt]&flagGroup == 0 || !Ours(id) {
		return NotIndexed
	}
	return groupHash(id.Random[uniqueAt:])
}
