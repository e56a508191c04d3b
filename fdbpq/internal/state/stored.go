package state

import (
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Stored is an item as it was read.
type Stored struct {
	Item  codec.Item
	Pair  kv.KeyValue              // the item's own key and value, as stored
	head  kv.Future[[]kv.KeyValue] // the first two ("m") keys being read; nil unless begun
	Metas kv.Future[[]kv.KeyValue] // the ("m") keys being read; nil before BeginRead, or if there are none
	Asked kv.RangeOptions          // of metas
	parts []kv.KeyValue            // the ("m") keys, once read
	Err   error                    // ErrCorrupt if this item cannot be read

	Cut      bool // there may be more ("m") keys than parts
	headless bool // these do not even have all headers
}

// parseStored parses the pair of an item, without its ("m") keys.
func parseStored(l *codec.Layout, pair kv.KeyValue) Stored {
	id, err := l.ParseItem(pair.Key)
	if err != nil {
		return Stored{Pair: pair, Err: err}
	}
	return StoredAs(l, id, pair)
}

// StoredAs is parseStored for an item whose id is known.
func StoredAs(l *codec.Layout, id codec.ID, pair kv.KeyValue) Stored {
	message := codec.Message{Value: codec.DecodeValue(l.Format, pair.Value)}
	return Stored{Item: codec.Item{ID: id, Message: message, PushedAt: codec.PushedAt(&id)}, Pair: pair}
}

// BeginRead starts to read the item's ("m") keys, the first time it is called: at least one, and no more than
// about so many bytes of them, 0 for all.
func (s *Stored) BeginRead(r kv.Reader, l *codec.Layout, bytes int) {
	if s.Metas == nil && s.Err == nil {
		s.Asked = kv.RangeOptions{Bytes: bytes}
		s.Metas = ReadMetas(l, r, &s.Item.ID, s.Asked)
	}
}

// beginHead starts to read the first of the item's ("m") keys, which say when it expires, if it has any.
func (s *Stored) beginHead(r kv.Reader, l *codec.Layout) {
	if s.Err == nil && codec.HasMeta(&s.Item.ID) {
		s.head = r.GetRange(l.MetaRange(&s.Item.ID), kv.RangeOptions{Limit: 2})
	}
}

// ReadUnlessExpired reads the item in full, unless it has expired by now. The error is one of the store.
// bytes is as for BeginRead.
func (s *Stored) ReadUnlessExpired(r kv.Reader, l *codec.Layout, now time.Time, bytes int) (has bool, err error) {
	if s.head != nil {
		parts, err := s.head.Get()
		if err != nil {
			return false, err
		}
		if m, _, err := codec.DecodeMeta(parts); err == nil && codec.Expired(m.Expires, now) {
			s.Item.Expires, s.Item.Unique = m.Expires, m.Unique
			return true, nil
		}
		if len(parts) < 2 && s.Metas == nil {
			s.Metas = s.head
		}
	}
	s.BeginRead(r, l, bytes) // usually a no-op
	if err := s.FinishRead(); err != nil {
		return false, err
	}
	if s.headless { // it is not known whether it has expired
		if err := s.ReadRest(r, l, NoBound); err != nil {
			return false, err
		}
	}
	if s.Err != nil {
		return false, nil
	}
	return codec.Expired(s.Item.Expires, now), nil
}

// ExpiredItem is the item as something that has expired, to be removed. It does not keep the value.
func (s *Stored) ExpiredItem(l *codec.Layout) *codec.Held {
	lasting := codec.LastingOf(&s.Item.Message)
	return &codec.Held{
		ID: s.Item.ID, History: codec.History{Lasting: lasting},
		Dropped: len(codec.DecodeValue(l.Format, s.Pair.Value)),
	}
}

// ReadMetas starts to read the ("m") keys of an item. It returns nil if there are none.
func ReadMetas(l *codec.Layout, r kv.Reader, id *codec.ID, o kv.RangeOptions) kv.Future[[]kv.KeyValue] {
	if !codec.HasMeta(id) {
		return nil
	}
	return r.GetRange(l.MetaRange(id), o)
}

// FinishRead waits for what BeginRead started, and completes the item, unless that is cut. The error is
// one of the store; what is wrong with the item alone is in s.err.
func (s *Stored) FinishRead() error {
	if s.Metas == nil || s.Err != nil || s.parts != nil {
		return nil
	}
	parts, err := s.Metas.Get()
	if err != nil {
		return err
	}
	s.parts, s.Cut = parts, s.Asked.Full(parts)
	s.parse()
	return nil
}

// parse sets the message to what the parts hold. One that is cut has no more of its value than is in the
// item's own key and, as long as s.headless, nothing else.
func (s *Stored) parse() {
	m, rest, err := codec.DecodeMeta(s.parts)
	if s.headless = err != nil && s.Cut; s.headless {
		return
	}
	if err != nil {
		s.Err = fmt.Errorf("item %s: %w", s.Item.ID, err)
		return
	}
	m.Value = s.Item.Value
	s.Item.Message = m
	if len(rest) > 0 && !s.Cut {
		s.Item.Value = append(s.Item.Value, rest...)
	}
}

// ReadRest goes on to read an item that is cut, unless it has more than about so many bytes. Then it stays cut.
// The error is as that of FinishRead.
func (s *Stored) ReadRest(r kv.Reader, l *codec.Layout, most int) error {
	for s.Cut && s.Err == nil {
		left := most + RoomAlone - s.read() // a message may have fewer bytes than its keys
		if left <= 0 {
			return nil
		}
		keys, o := l.MetaRange(&s.Item.ID), kv.RangeOptions{Bytes: left}
		if n := len(s.parts); n > 0 {
			keys.Begin = kv.SingleKey(s.parts[n-1].Key).End
		}
		more, err := r.GetRange(keys, o).Get()
		if err != nil {
			return err
		}
		s.parts = append(s.parts, more...)
		s.Cut = o.Full(more)
		s.parse()
	}
	return nil
}

// read is the number of bytes read of the item so far.
func (s *Stored) read() int {
	parts := s.parts
	if parts == nil && s.head != nil {
		parts, _ = s.head.Get() // which are there
	}
	n := len(s.Pair.Value)
	for _, part := range parts {
		n += len(part.Value)
	}
	return n
}

// Release frees what was read of an item besides itself.
func (s *Stored) Release() {
	s.Metas, s.parts, s.Pair.Value = nil, nil, nil
}

// Whole returns an item whose read has begun, to be returned by an operation that leaves it where it is. The error is
// ErrNoRoom, ErrCorrupt or one of the store.
func (s *Stored) Whole(r kv.Reader, l *codec.Layout, returned *ItemRoom) (codec.Item, error) {
	if err := s.FinishRead(); err != nil {
		return codec.Item{}, err
	}
	if !returned.Refused {
		if err := s.ReadRest(r, l, returned.Left()); err != nil {
			return codec.Item{}, err
		}
	}
	if s.Err != nil {
		return codec.Item{}, s.Err
	}
	if returned.Refused = returned.Refused || s.Cut; !returned.Take(s.Item.Message.Size()) {
		return codec.Item{}, ErrNoRoom
	}
	item := s.Item
	s.Release()
	return item, nil
}
