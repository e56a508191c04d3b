package fdbpq

import (
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// stored is an item as it was read. One that was taken keeps what is needed to
// restore it.
type stored struct {
	item  Item
	pair  kv.KeyValue              // under the item's key; the value may be in another format
	metas kv.Future[[]kv.KeyValue] // the ("m") keys being read; nil if the item has none, or they are not asked for yet
	parts []kv.KeyValue            // what metas gave
	err   error                    // ErrCorrupt: this item cannot be read
}

// inQueue is an item that was taken, and the queue that it was in.
type takenItem struct {
	l *layout
	*stored
}

// stored decodes the pair of an item. Its ("m") keys are not read yet.
func (l *layout) stored(pair kv.KeyValue) stored {
	id, err := l.parseItem(pair.Key)
	if err != nil {
		return stored{pair: pair, err: err}
	}
	return l.storedAs(id, pair)
}

// storedAs is stored for an item whose id is known.
func (l *layout) storedAs(id ID, pair kv.KeyValue) stored {
	message := Message{Value: l.format.decode(pair.Value)}
	return stored{item: Item{ID: id, Message: message, PushedAt: id.pushedAt()}, pair: pair}
}

// readParts begins to read the item's ("m") keys, unless that was done before.
func (s *stored) beginRead(r kv.Reader, l *layout) {
	if s.metas == nil && s.err == nil {
		s.metas = l.readMetas(r, &s.item.ID)
	}
}

// readMetas begins to read the ("m") keys of an item. It returns nil if the item
// has none.
func (l *layout) readMetas(r kv.Reader, id *ID) kv.Future[[]kv.KeyValue] {
	if !id.hasMeta() {
		return nil
	}
	return r.GetRange(l.metaRange(id), kv.RangeOptions{})
}

// wait ends what readParts began. The error is one of the store; what is wrong
// with the item alone is in s.err.
func (s *stored) finishRead() error {
	if s.metas == nil || s.err != nil || s.parts != nil {
		return nil
	}
	parts, err := s.metas.Get()
	if err != nil {
		return err
	}
	s.parts = parts
	headers, rest, err := decodeMeta(parts)
	if err != nil {
		s.err = fmt.Errorf("item %s: %w", s.item.ID, err)
		return nil
	}
	s.item.Headers = headers
	if len(rest) > 0 {
		s.item.Value = append(s.item.Value, rest...)
	}
	return nil
}

// size is the bytes of what is stored.
func (s *stored) size() int {
	n := len(s.pair.Key) + len(s.pair.Value)
	for _, part := range s.parts {
		n += len(part.Key) + len(part.Value)
	}
	return n
}
