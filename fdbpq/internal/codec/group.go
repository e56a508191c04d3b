package codec

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/subjects/settings"
)

// A message may have a group. The id of its item contains a hash of the group, and the group is all
// items with the same hash. These keys are written together with the keys of the items:
//
//	("w", hash, priority, count, random) = ""      a ready item of the group
//	("y", hash, priority, count, random) = ""      a held item of the group
//	("z", hash, 0)                       = int64   how many are ready
//	("z", hash, 1)                       = int64   how many are leased
//	("z", hash, 2)                                 never written, see GroupConflict
//	("v", priority)                      = (count, number)   the last of the items with a group
//	                                                         that were served from the front
//
// In a queue that limits groups, items without a group have the same keys, under the hash 0.
// Programs that do not know groups leave keys of items behind; transactions that meet such a key
// remove it. The row ("v", priority) may be missing, or be left from items that are gone.
//
// In a FIFO queue all of these are without priority. Searches read all of ("z"), which has at most
// two rows for each group, however many priorities its items have. state.Turns says what ("v") is
// for.

// groupKey returns the key (kind, hash), with room for more.
func (l *Layout) groupKey(kind string, hash GroupHash) []byte {
	return tuple.AppendInt(l.Key(kind, max(64, len(l.Prefix)+40)), int64(hash))
}

// GroupItemKey is the key of an item in the index of its group.
func (l *Layout) GroupItemKey(kind string, hash GroupHash, id *ID) []byte {
	return appendPlace(l.appendPriority(l.groupKey(kind, hash), id.Priority), id)
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
	return finish(&d, d.idIn(l), "index of groups: key", key)
}

// GroupCounter names a counter of a group.
type GroupCounter struct {
	Hash GroupHash
	Of   int64 // what it counts
}

// What counters of groups count.
const (
	GroupReady  = iota // ready items
	GroupLeased        // leased items
	// GroupConflict is never written. Transactions that lease items of a group conflict on it.
	GroupConflict
)

// GroupCounterKey is the key of a counter.
func (l *Layout) GroupCounterKey(c GroupCounter) []byte {
	return tuple.AppendInt(l.groupKey(kindGroupCounter, c.Hash), c.Of)
}

// GroupCounters is the range of the counters of groups.
func (l *Layout) GroupCounters() kv.Range { return l.KindRange(kindGroupCounter) }

// ParseGroupCounter reads a key in GroupCounters.
func (l *Layout) ParseGroupCounter(key []byte) (GroupCounter, error) {
	d := decoder{rest: l.Place(key)}
	return finish(&d, GroupCounter{GroupHash(d.int()), d.int()}, "counter of a group: key", key)
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

// TurnItem is the place of an item with a group: a count, which is the turn, and the number of the
// item within its group in that turn.
type TurnItem struct{ Count, Number int64 }

// TurnItemOf returns the place of an item with a group.
func TurnItemOf(id *ID) TurnItem { return TurnItem{id.Count, int64(id.Random[numberAt])} }

// Compare orders places as the items there are served.
func (i TurnItem) Compare(other TurnItem) int {
	return cmp.Or(cmp.Compare(i.Count, other.Count), cmp.Compare(i.Number, other.Number))
}

// Next returns the place after this one in a group of a weight.
func (i TurnItem) Next(weight int) TurnItem {
	if i.Number < int64(weight) {
		return TurnItem{i.Count, i.Number + 1}
	}
	return TurnItem{Following(i.Count), 1}
}

// TurnKey is the row that says how far groups have been served at a priority.
func (l *Layout) TurnKey(priority int64) []byte { return l.priorityKey(kindTurn, priority) }

// Encode returns the value of a TurnKey.
func (i TurnItem) Encode() []byte { return appendInts(nil, i.Count, i.Number) }

// ParseTurnItem reads what Encode wrote. If that is missing or cannot be read, the place is before
// all others.
func ParseTurnItem(value []byte) TurnItem {
	d := decoder{rest: value}
	if i := (TurnItem{d.int(), d.int()}); d.end() == nil {
		return i
	}
	return TurnItem{Count: math.MinInt64}
}

// EncodeCount returns the value of a BucketKey.
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
// group: two keys in the index, with their conflict ranges, three counters, and a conflict range.
func (l *Layout) GroupSize() int { return (5*3 + 2) * (len(l.Prefix) + 60) }

// IndexSizeOf is about how many more bytes of a transaction an operation takes if its item has keys
// by its group, or an alias.
func (l *Layout) IndexSizeOf(id *ID) (size int) {
	if GroupIn(id) != NotIndexed {
		size += l.GroupSize()
	}
	if Moved(id) {
		size += l.AliasSize()
	}
	return size
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
	if len(values) == 1 && settings.IsGroup(values[0]) {
		return nil
	}
	return fmt.Errorf("%w: bad %s: want 1 to %d bytes of UTF-8 in one line, once",
		ErrOp, GroupHeader, settings.MaxGroup)
}

// GroupHash stands for a group in ids and keys: 48 bits of the SHA-256 of a secret and its name.
// Clients see the hashes of their own groups in ids. Because of the secret they cannot look for
// another name with the hash of somebody's group.
type GroupHash int64

const (
	// NotIndexed is for items that have no keys in the index of groups.
	NotIndexed GroupHash = -1
	// NoGroup is for items without a group in queues that limit groups. The search for items that
	// may be served finds them under it.
	NoGroup GroupHash = 0
)

// HashGroup returns the hash of a group. It is never NoGroup. The secret belongs to the Keyspace;
// outside of one, and where nothing with a group was ever stored, there is none.
func HashGroup(secret []byte, group string) GroupHash {
	// Most of the sum is dropped, so nobody can extend a name and compute the hash.
	var room [GroupSecretSize + settings.MaxGroup]byte
	sum := sha256.Sum256(append(append(room[:0], secret...), group...))
	return max(groupHash(sum[:]), 1)
}

// GroupSecretSize is the length of the secret of a Keyspace.
const GroupSecretSize = 32

// groupHash reads a hash of groupSize bytes.
func groupHash(b []byte) GroupHash {
	return GroupHash(binary.BigEndian.Uint32(b))<<16 | GroupHash(binary.BigEndian.Uint16(b[4:]))
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

// SetGroup sets the group of an id that NewID has made, and its number in the turn of the group.
func SetGroup(id *ID, hash GroupHash, number int64) {
	switch hash {
	case NotIndexed:
	case NoGroup:
		id.Random[flagsAt] |= flagOthers
	default:
		id.Random[numberAt] = byte(number)
		id.Random[flagsAt] |= flagGroup
		for i := range groupSize {
			id.Random[uniqueAt+i] = byte(hash >> (8 * (groupSize - 1 - i)))
		}
	}
}

// GroupIn returns the hash in an id.
func GroupIn(id *ID) GroupHash {
	switch flags := id.Random[flagsAt]; {
	case flags&(flagGroup|flagOthers) == 0 || !Ours(id):
		return NotIndexed
	case flags&flagGroup == 0:
		return NoGroup
	}
	return groupHash(id.Random[uniqueAt:])
}
