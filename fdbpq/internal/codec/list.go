package codec

import (
	"fmt"
	"time"
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
// A push must not conflict with other pushes, and should not read the list each time. So it relies
// on an earlier batch of the same process that has seen the entry, for listedLife from the start of
// that batch. Otherwise it reads the entry, without conflict, and writes it if it is missing or has
// a mark.
//
// Taking a queue off the list takes two transactions. The first finds the queue empty and leaves a
// mark. The second, RetireAfter later, finds the queue still empty with the same mark, and removes
// the entry. Both read the entry and the range of the items, so that they conflict with every
// change of either.
//
// A push that commits before the second transaction is seen by it, or makes it conflict. So let it
// commit afterwards:
//
//   - If it read the entry, it began after the mark was made, because otherwise it would have ended
//     by now. So it saw the mark, or no entry, and wrote the entry. Either the second transaction
//     conflicts with that, or the write restores what it removed.
//   - If it relied on an earlier batch, that batch began less than listedLife before, so after the
//     mark was made, too. It saw the entry without a mark, or wrote it: the mark was gone, and the
//     second transaction did not find it.
//
// This holds as long as a transaction ends within RetireAfter - listedLife of its start. All
// durations are measured by the clock of one process.
type List struct {
	Prefix string // of the keys in the list
	root   string // of the keys of the queues in it
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
	if err := d.end(); err != nil {
		return "", fmt.Errorf("%w: list of queues: value %x: %w", ErrCorrupt, value, err)
	}
	return mark, nil
}

// Name returns the name in the key of an entry.
func (l *List) Name(key []byte) (string, error) {
	d := decoder{rest: key[len(l.Prefix):]}
	name := d.text()
	if err := d.end(); err != nil {
		return "", fmt.Errorf("%w: list of queues: key %x: %w", ErrCorrupt, key, err)
	}
	return name, nil
}

// Mark is what Retire adds to the list entry of a queue that it found empty.
type Mark string
