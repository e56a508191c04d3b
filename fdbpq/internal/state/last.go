package state

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// LastItems is the last item of a priority that is ready, and the last that is held, being
// read. A held item returns to its old place, so nothing new may be pushed before it.
type LastItems struct{ ready, held kv.Future[[]kv.KeyValue] }

// ReadLast starts to read the last items of a priority.
func ReadLast(l *codec.Layout, snapshot kv.Reader, priority int64) LastItems {
	last := kv.RangeOptions{Limit: 1, Reverse: true}
	return LastItems{snapshot.GetRange(l.PriorityRange(priority), last), snapshot.GetRange(l.HeldRange(priority), last)}
}

// NextCount returns the count after those of the last items.
func NextCount(l *codec.Layout, last LastItems) (int64, error) {
	count, empty := l.FirstCount(), true
	for _, future := range []kv.Future[[]kv.KeyValue]{last.ready, last.held} {
		pairs, err := future.Get()
		if err != nil {
			return 0, err
		}
		if len(pairs) == 0 {
			continue
		}
		id, err := l.ParseItem(pairs[0].Key)
		if err != nil {
			return 0, err
		}
		if next := codec.Following(id.Count); empty || next > count {
			count, empty = next, false
		}
	}
	return count, nil
}
