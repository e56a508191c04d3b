package fdbpq

import (
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// list is the list of the queues of one kind in a Keyspace:
//
//	("pq-queues", name) = (microseconds)        in the list, since about then
//	                    = (microseconds, mark)  the same, and somebody found the queue
//	                                            empty and wants to take it off
//
// Pushes put queues there, and Retire takes off those that are empty.
//
// # Why no queue with items is missing
//
// A push must not conflict with other pushes, nor read the list each time. So a
// push relies on what a batch of the same process has seen, for listedLife from
// the beginning of that batch. Without such knowledge it reads its entry, and
// writes it if it is missing or has a mark. None of this is a read that can
// conflict.
//
// To take a queue off the list takes two transactions. The first finds the queue
// empty and leaves a mark. The second comes RetireAfter later, finds the queue
// empty and the same mark, and removes the entry. Both read, so as to conflict
// with whatever changes that: the entry, and the range of the items.
//
// Take a push to the queue. If it is committed before the second transaction
// is, that one finds the item, or conflicts. If it is committed after it, and
// it read the entry or wrote it, it began after the mark was made, or it would
// have been over: it saw the mark, or no entry, and wrote the entry, which makes the
// second one conflict or puts back what it removed. And if it relied on another
// batch, that one began less than listedLife earlier, so after the mark too,
// and had seen the entry without it, or put it there: somebody had removed the
// mark, and the second transaction did not find it.
//
// That holds if a transaction is over RetireAfter - listedLife after it began.
// It compares durations that one process measures by its own clock, and never
// the clocks of two machines. It does not hold for versions of this package that
// relied on an entry indefinitely: a queue that such a process pushes to may be
// missing until another process pushes to it.
type list struct {
	prefix string // of the keys of the list
	root   string // of the keys of the queues in it
}

const (
	// listedLife is how long a push may rely on an earlier batch having seen that
	// its queue is in the list.
	listedLife = time.Minute

	// RetireAfter is how much later than the call of Retire that left a mark the
	// one must begin that takes the queue off the list.
	RetireAfter = 10 * time.Minute
)

func newList(base tuple.Subspace, root string) *list {
	return &list{
		prefix: string(base.Pack(tuple.Tuple{root + listSuffix})),
		root:   string(base.Pack(tuple.Tuple{root})),
	}
}

// entry is the key of the queue in its list.
func (l *layout) listKey() []byte {
	name := l.prefix[len(l.list.root):] // packed
	return append(append(make([]byte, 0, len(l.list.prefix)+len(name)), l.list.prefix...), name...)
}

// knownListed reports whether a push at that time may rely on the queue being in
// the list. Either clock may have been stopped, or set, in between.
func (l *layout) recentlyListed(now time.Time) bool {
	seen := l.listedSince.Load()
	if seen == nil {
		return false
	}
	age, byWall := now.Sub(*seen), now.Round(0).Sub(seen.Round(0))
	return 0 <= age && age < listedLife && 0 <= byWall && byWall < listedLife
}

// register writes that the queue is in the list, without a mark.
func (l *layout) register(tx kv.Transaction, now time.Time) {
	tx.Set(l.listKey(), tuple.Tuple{now.UnixMicro()}.Pack())
}

// parseEntry returns the mark of an entry, "" without one.
func parseListEntry(value []byte) (Mark, error) {
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

// pairs reads up to limit entries after the queue of that name.
func (l *list) pairs(r kv.Reader, after string, limit int) kv.Future[[]kv.KeyValue] {
	span := within([]byte(l.prefix))
	if after != "" {
		span.Begin = kv.SingleKey(tuple.AppendString([]byte(l.prefix), after)).End
	}
	return r.GetRange(span, kv.RangeOptions{Limit: limit})
}

// name is the name of the queue whose entry has the key.
func (l *list) name(key []byte) (string, error) {
	name, rest, err := tuple.DecodeString(key[len(l.prefix):])
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d bytes more", len(rest))
	}
	if err != nil {
		return "", fmt.Errorf("%w: list of queues: key %x: %w", ErrCorrupt, key, err)
	}
	return name, nil
}

func (l *list) names(r kv.Reader, after string, limit int) kv.Future[[]string] {
	return names{l, l.pairs(r, after, limit)}
}

// names is the names of queues being read.
type names struct {
	l     *list
	pairs kv.Future[[]kv.KeyValue]
}

// Get implements kv.Future.
func (n names) Get() ([]string, error) {
	pairs, err := n.pairs.Get()
	if err != nil {
		return nil, err
	}
	names := make([]string, len(pairs))
	for i, pair := range pairs {
		if names[i], err = n.l.name(pair.Key); err != nil {
			return nil, err
		}
	}
	return names, nil
}
