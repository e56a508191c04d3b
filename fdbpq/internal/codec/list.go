package codec

import (
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// List is the list of the queues of one kind in a Keyspace:
//
//	("pq-queues", name) = (microseconds)        listed, since about then
//	                    = (microseconds, mark)  listed, but Retire found the queue empty
//
// Pushes list queues, and Retire takes empty ones off the list.
//
// # Why no queue with items is missing
//
// A push must not conflict with other pushes, and should not read the list each time.
// So it relies on an earlier batch of the same process that has seen the entry, for
// ListedLife from the start of that batch. Otherwise it reads the entry, without conflict,
// and writes it if it is missing or has a mark.
//
// Taking a queue off the list takes two transactions. The first finds the queue empty and
// leaves a mark. The second, RetireAfter later, finds the queue still empty with the same
// mark, and removes the entry. Both read the entry and the range of the items, so that they
// conflict with every change of either.
//
// Now take a push. If it commits before the second transaction, that transaction sees the
// item, or conflicts. So let it commit after the second transaction:
//
//   - If it read the entry, it began after the mark was made, because otherwise it would
//     have ended by now. So it saw the mark, or no entry, and wrote the entry. Either the
//     second transaction conflicts with that, or the write restores what it removed.
//   - If it relied on an earlier batch, that batch began less than ListedLife before, and
//     so after the mark was made, too. The batch saw the entry without a mark, or wrote it:
//     the mark was gone, and the second transaction did not find it.
//
// This holds as long as a transaction ends within RetireAfter - ListedLife of its start.
// All durations are measured by the clock of one process; no two clocks are compared. It
// does not hold for old versions of this package, which relied on an entry indefinitely: a
// queue that one of them pushes to may be missing until another process pushes to it.
type List struct {
	Prefix string // of the keys in the list
	root   string // of the keys of the queues in it
}

const (
	// ListedLife is how long pushes may rely on a batch that saw their queue in the
	// list.
	ListedLife = time.Minute

	// RetireAfter is the least time between the call of Retire that marks a queue and
	// the call that takes it off the list.
	RetireAfter = 10 * time.Minute
)

func NewList(base tuple.Subspace, root string) *List {
	return &List{
		Prefix: string(base.Pack(tuple.Tuple{root + ListSuffix})),
		root:   string(base.Pack(tuple.Tuple{root})),
	}
}

// ListKey is the key of the queue in its list.
func (l *Layout) ListKey() []byte {
	name := l.Prefix[len(l.List.root):] // packed
	return append(append(make([]byte, 0, len(l.List.Prefix)+len(name)), l.List.Prefix...), name...)
}

// RecentlyListed reports whether a push may rely on the queue being in the list. It
// compares both the monotonic and the wall clock, because either may have been stopped or
// set meanwhile.
func (l *Layout) RecentlyListed(now time.Time) bool {
	seen := l.ListedSince.Load()
	if seen == nil {
		return false
	}
	age, byWall := now.Sub(*seen), now.Round(0).Sub(seen.Round(0))
	return 0 <= age && age < ListedLife && 0 <= byWall && byWall < ListedLife
}

// ParseListEntry returns the mark of an entry, "" without one.
func ParseListEntry(value []byte) (Mark, error) {
	_, rest, err := tuple.DecodeInt(value)
	var mark []byte
	if err == nil && len(rest) > 0 {
		mark, rest, err = tuple.DecodeBytes(rest)
	}
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d bytes more", len(rest))
	}
	if err != nil {
		return "", fmt.Errorf("%w: list of queues: value %x: %w", ErrCorrupt, value, err)
	}
	return Mark(mark), nil
}

// Name returns the name in the key of an entry.
func (l *List) Name(key []byte) (string, error) {
	name, rest, err := tuple.DecodeString(key[len(l.Prefix):])
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d bytes more", len(rest))
	}
	if err != nil {
		return "", fmt.Errorf("%w: list of queues: key %x: %w", ErrCorrupt, key, err)
	}
	return name, nil
}

// Mark is what Retire adds to the list entry of a queue that it found empty.
type Mark string
