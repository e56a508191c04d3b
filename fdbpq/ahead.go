package fdbpq

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// ReadAhead returns what is ahead of each of the queues. All queues take one round trip. An entry
// that cannot be read counts as none.
func ReadAhead(r kv.Reader, queues []Target) ([]Ahead, error) {
	type heads struct {
		due, over kv.Future[[]kv.KeyValue]
		source    kv.Future[[]byte]
	}
	begun := make([]heads, len(queues))
	for i, queue := range queues {
		l := queue.Layout()
		begun[i].due = r.GetRange(l.KindRange(codec.KindDue), kv.RangeOptions{Limit: 1})
		begun[i].over = r.GetRange(l.KindRange(codec.KindMsgIDEnd), kv.RangeOptions{Limit: 1})
		begun[i].source = r.Get(l.SourceKey())
	}

	found := make([]Ahead, len(queues))
	for i, queue := range queues {
		due, err := begun[i].due.Get()
		if err != nil {
			return nil, err
		}
		over, err := begun[i].over.Get()
		if err != nil {
			return nil, err
		}

		source, err := begun[i].source.Get()
		if err != nil {
			return nil, err
		}

		found[i].Source = source != nil
		if len(due) > 0 {
			if at, err := queue.Layout().DueTime(due[0].Key); err == nil {
				found[i].Due = at
			}
		}
		if len(over) > 0 {
			if until, _, err := queue.Layout().ParseMsgIDEnd(over[0].Key); err == nil {
				found[i].Over = until
			}
		}
	}
	return found, nil
}
