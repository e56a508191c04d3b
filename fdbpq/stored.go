package fdbpq

import (
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// stored is an item as it was read.
type stored struct {
	item  Item
	pair  kv.KeyValue              // the item's own key and value, as stored
	head  kv.Future[[]kv.KeyValue] // the first two ("m") keys being read; nil unless begun
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

// beginHead starts to read the first of the item's ("m") keys, which say when it expires, if it has any.
func (s *stored) beginHead(r kv.Reader, l *layout) {
	if s.err == nil && s.item.ID.hasMeta() {
		s.head = r.GetRange(l.metaRange(&s.item.ID), kv.RangeOptions{Limit: 2})
	}
}

// readUnlessExpired reads the item in full, unless it has expired by now. The error is one of the store.
func (s *stored) readUnlessExpired(r kv.Reader, l *layout, now time.Time) (has bool, err error) {
	if s.head != nil {
		parts, err := s.head.Get()
		if err != nil {
			return false, err
		}
		if m, _, err := decodeMeta(parts); err == nil && expired(m.Expires, now) {
			s.item.Expires, s.item.Unique = m.Expires, m.Unique
			if len(parts) == 1 {
				s.parts = parts
			}
			return true, nil
		}
		if len(parts) < 2 && s.metas == nil {
			s.metas = s.head
		}
	}
	s.beginRead(r, l) // usually a no-op
	if err := s.finishRead(); err != nil || s.err != nil {
		return false, err
	}
	return expired(s.item.Expires, now), nil
}

// expiredItem is the item as something that has expired, to be removed.
func (s *stored) expiredItem() *held {
	return &held{id: s.item.ID, expires: s.item.Expires, unique: s.item.Unique, value: s.pair.Value, parts: s.parts}
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
