package state

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// later is a future that Get computes.
type later[T any] func() (T, error)

// Get implements kv.Future.
func (f later[T]) Get() (T, error) { return f() }

// ReadNextCount starts to read the count of the next item that is pushed at a priority: the last
// item there that is ready, and the last that is held. A held item returns to its old place, so
// nothing new may be pushed before it.
func ReadNextCount(l *codec.Layout, snapshot kv.Reader, priority int64) kv.Future[int64] {
	last := kv.RangeOptions{Limit: 1, Reverse: true}
	reads := [...]kv.Future[[]kv.KeyValue]{
		snapshot.GetRange(l.PriorityRange(priority), last), snapshot.GetRange(l.HeldRange(priority), last),
	}
	return later[int64](func() (int64, error) {
		count, empty := int64(0), true
		if l.Fifo { // the recipe of FIFO queues counts from 1
			count = 1
		}
		for _, read := range reads {
			pairs, err := read.Get()
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
	})
}

// CountsByQueue holds a count for each priority of each queue, by the queue's prefix.
type CountsByQueue map[string]map[int64]int64
