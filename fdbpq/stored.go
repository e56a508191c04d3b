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
	asked kv.RangeOptions          // of metas
	parts []kv.KeyValue            // the ("m") keys, once read
	err   error                    // ErrCorrupt if this item cannot be read

	cut      bool // there may be more ("m") keys than parts
	headless bool // these do not even have all headers
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

// beginRead starts to read the item's ("m") keys, the first time it is called: at least one, and no more than
// about so many bytes of them, 0 for all.
func (s *stored) beginRead(r kv.Reader, l *layout, bytes int) {
	if s.metas == nil && s.err == nil {
		s.asked = kv.RangeOptions{Bytes: bytes}
		s.metas = l.readMetas(r, &s.item.ID, s.asked)
	}
}

// beginHead starts to read the first of the item's ("m") keys, which say when it expires, if it has any.
func (s *stored) beginHead(r kv.Reader, l *layout) {
	if s.err == nil && s.item.ID.hasMeta() {
		s.head = r.GetRange(l.metaRange(&s.item.ID), kv.RangeOptions{Limit: 2})
	}
}

// readUnlessExpired reads the item in full, unless it has expired by now. The error is one of the store.
// bytes is as for beginRead.
func (s *stored) readUnlessExpired(r kv.Reader, l *layout, now time.Time, bytes int) (has bool, err error) {
	if s.head != nil {
		parts, err := s.head.Get()
		if err != nil {
			return false, err
		}
		if m, _, err := decodeMeta(parts); err == nil && expired(m.Expires, now) {
			s.item.Expires, s.item.Unique = m.Expires, m.Unique
			return true, nil
		}
		if len(parts) < 2 && s.metas == nil {
			s.metas = s.head
		}
	}
	s.beginRead(r, l, bytes) // usually a no-op
	if err := s.finishRead(); err != nil {
		return false, err
	}
	if s.headless { // it is not known whether it has expired
		if err := s.readRest(r, l, noBound); err != nil {
			return false, err
		}
	}
	if s.err != nil {
		return false, nil
	}
	return expired(s.item.Expires, now), nil
}

// expiredItem is the item as something that has expired, to be removed.
func (s *stored) expiredItem() *held {
	return &held{id: s.item.ID, history: history{lasting: s.item.Message.lasts()}, value: s.pair.Value}
}

// readMetas starts to read the ("m") keys of an item. It returns nil if there are none.
func (l *layout) readMetas(r kv.Reader, id *ID, o kv.RangeOptions) kv.Future[[]kv.KeyValue] {
	if !id.hasMeta() {
		return nil
	}
	return r.GetRange(l.metaRange(id), o)
}

// finishRead waits for what beginRead started, and completes the item, unless that is cut. The error is
// one of the store; what is wrong with the item alone is in s.err.
func (s *stored) finishRead() error {
	if s.metas == nil || s.err != nil || s.parts != nil {
		return nil
	}
	parts, err := s.metas.Get()
	if err != nil {
		return err
	}
	s.parts, s.cut = parts, s.asked.Full(parts)
	s.parse()
	return nil
}

// parse sets the message to what the parts hold. One that is cut has no more of its value than is in the
// item's own key and, as long as s.headless, nothing else.
func (s *stored) parse() {
	m, rest, err := decodeMeta(s.parts)
	if s.headless = err != nil && s.cut; s.headless {
		return
	}
	if err != nil {
		s.err = fmt.Errorf("item %s: %w", s.item.ID, err)
		return
	}
	m.Value = s.item.Value
	s.item.Message = m
	if len(rest) > 0 && !s.cut {
		s.item.Value = append(s.item.Value, rest...)
	}
}

// readRest goes on to read an item that is cut, unless it has more than about so many bytes. Then it stays cut.
// The error is as that of finishRead.
func (s *stored) readRest(r kv.Reader, l *layout, most int) error {
	for s.cut && s.err == nil {
		left := most + roomAlone - s.read() // a message may have fewer bytes than its keys
		if left <= 0 {
			return nil
		}
		keys, o := l.metaRange(&s.item.ID), kv.RangeOptions{Bytes: left}
		if n := len(s.parts); n > 0 {
			keys.Begin = kv.SingleKey(s.parts[n-1].Key).End
		}
		more, err := r.GetRange(keys, o).Get()
		if err != nil {
			return err
		}
		s.parts = append(s.parts, more...)
		s.cut = o.Full(more)
		s.parse()
	}
	return nil
}

// read is the number of bytes read of the item so far.
func (s *stored) read() int {
	n := len(s.pair.Value)
	for _, part := range s.parts {
		n += len(part.Value)
	}
	return n
}

// release frees what was read of an item besides itself.
func (s *stored) release() {
	s.metas, s.parts, s.pair.Value = nil, nil, nil
}
