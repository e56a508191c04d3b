package state

import (
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// TakenItem is an item that was taken, and its queue.
type TakenItem struct {
	L *codec.Layout
	*codec.Item
}

// Taken returns an item that is taken, whose history is given as stored, with all that is
// needed to restore it. Most items need nothing but themselves.
func (s *Stored) Taken(l *codec.Layout, past []byte) TakenItem {
	switch {
	case !codec.Ours(&s.Item.ID):
		codec.KeepFor(&s.Item, &codec.Kept{Value: s.Pair.Value, Past: past})
	case past != nil:
		codec.KeepFor(&s.Item, &codec.Kept{Past: past})
	}
	return TakenItem{L: l, Item: &s.Item}
}

// RestoreOverhead is about the number of bytes that restoring an item takes in a transaction
// besides what is stored: conflict ranges and counters. Long keys take more.
const RestoreOverhead = 500

// RestoreSize is about the number of bytes that restoring the item takes in a transaction.
func (i *TakenItem) RestoreSize() int { return i.Size() + len(i.L.Prefix) + RestoreOverhead }

// Occupied is the keys that an item may have, being read: to restore it there would
// overwrite it.
type Occupied struct{ Held, Item kv.Future[[]byte] }

// ReadOccupied starts to read whether an item is in the queue.
func ReadOccupied(l *codec.Layout, r kv.Reader, id *codec.ID) Occupied {
	return Occupied{r.Get(l.HeldKey(id)), r.Get(l.ItemKey(id))}
}

// Check returns ErrExists if the item is in the queue.
func (o *Occupied) Check(id *codec.ID) error {
	exists, err := o.Any()
	if err == nil && exists {
		err = fmt.Errorf("%w: %s", codec.ErrExists, id)
	}
	return err
}

// Any reports whether the item is in the queue.
func (o *Occupied) Any() (bool, error) {
	for _, future := range []kv.Future[[]byte]{o.Held, o.Item} {
		if value, err := future.Get(); err != nil || value != nil {
			return value != nil, err
		}
	}
	return false, nil
}
