package fdbpq

import (
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// stored is an item as it was read.
type stored struct {
	item  Item
	pair  kv.KeyValue              // the item's own key and value, as stored
	held  *held                    // it is not at that key, but held and due: see dueWalk; usually nil
	metas kv.Future[[]kv.KeyValue] // the ("m") keys being read; nil before beginRead, or if there are none
	parts []kv.KeyValue            // the ("m") keys, once read
	err   error                    // ErrCorrupt if this item cannot be read
}

// parseStored parses the pair of an item, without its ("m") keys.
func (l *layout) parseStored(pair kv.KeyValue) stored {
	id, err := l.parseItem(pair.Key)
	if err != nil {
		return stored{pair: pair, err: err}
	}
	return l.storedAs(id, pair)
}

// storedAs is parseStored for an item whose id is known.
func (l *layout) storedAs(id ID, pair kv.KeyValue) stored {
	message := Message{Value: l.format.decode(pair.Value)}
	return stored{item: Item{ID: id, Message: message, PushedAt: id.pushedAt()}, pair: pair}
}

// beginRead starts to read the item's ("m") keys, the first time it is called.
func (s *stored) beginRead(r kv.Reader, l *layout) {
	if s.metas == nil && s.err == nil {
		s.metas = l.readMetas(r, &s.item.ID)
	}
}

// readMetas starts to read the ("m") keys of an item. It returns nil if there are none.
func (l *layout) readMetas(r kv.Reader, id *ID) kv.Future[[]kv.KeyValue] {
	if !id.hasMeta() {
		return nil
	}
	return r.GetRange(l.metaRange(id), kv.RangeOptions{})
}

// finishRead waits for what beginRead started, and completes the item. The error is one of
// the store; what is wrong with the item alone is in s.err.
func (s *stored) finishRead() error {
	if s.metas == nil || s.err != nil || s.parts != nil {
		return nil
	}
	parts, err := s.metas.Get()
	if err != nil {
		return err
	}
	s.parts = parts
	m, rest, err := decodeMeta(parts)
	if err != nil {
		s.err = fmt.Errorf("item %s: %w", s.item.ID, err)
		return nil
	}
	m.Value = s.item.Value
	s.item.Message = m
	if len(rest) > 0 {
		s.item.Value = append(s.item.Value, rest...)
	}
	return nil
}
