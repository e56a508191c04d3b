package state

import (
	"maps"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// nextCount is the last item of a priority that is ready, and the last that is held, being read. A
// held item returns to its old place, so nothing new may be pushed before it.
type nextCount struct {
	l           *codec.Layout
	ready, held kv.Future[[]kv.KeyValue]
}

// ReadNextCount starts to read the count of the next item that is pushed at a priority.
func ReadNextCount(l *codec.Layout, snapshot kv.Reader, priority int64) kv.Future[int64] {
	last := kv.RangeOptions{Limit: 1, Reverse: true}
	return nextCount{l, snapshot.GetRange(l.PriorityRange(priority), last), snapshot.GetRange(l.HeldRange(priority), last)}
}

// Get implements kv.Future.
func (n nextCount) Get() (int64, error) {
	count, empty := n.l.FirstCount(), true
	for _, last := range []kv.Future[[]kv.KeyValue]{n.ready, n.held} {
		pairs, err := last.Get()
		if err != nil {
			return 0, err
		}
		if len(pairs) == 0 {
			continue
		}

		id, err := n.l.ParseItem(pairs[0].Key)
		if err != nil {
			return 0, err
		}
		if next := codec.Following(id.Count); empty || next > count {
			count, empty = next, false
		}
	}
	return count, nil
}

// CountsByQueue holds a count for each priority of each queue, by the queue's prefix.
type CountsByQueue map[string]map[int64]int64

// knownCounts is what a Batcher knows of the next counts, so that its pushes need not read the last
// items of their priorities, twice each. Counts that are too high do no harm: the order stays the
// same. So nothing has to be forgotten when items are taken.
type knownCounts struct {
	counts CountsByQueue
	size   int // at least the number of counts
}

// maxKnownCounts bounds knownCounts: some use each priority once.
const maxKnownCounts = 4096

// learn takes the counts after the pushes of a transaction.
func (k *knownCounts) learn(after CountsByQueue) {
	if k.size > maxKnownCounts {
		*k = knownCounts{}
	}
	if k.counts == nil {
		k.counts = CountsByQueue{}
	}

	for queue, next := range after {
		k.size += len(next)
		if known := k.counts[queue]; known != nil {
			maps.Copy(known, next)
		} else {
			k.counts[queue] = next
		}
	}
}
