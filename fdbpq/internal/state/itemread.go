package state

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// ItemRead is an item being read: its own key and value, and its ("m") keys, which have its headers
// and the rest of a long value. Either may come first, in any state. It is in one of these states:
//
//	state     metas  parts  Cut  headless  Item has
//	own       nil    nil    -    -         the id and the value in its own key, which may be all
//	reading   set    nil    -    -         the same
//	whole     set    set    no   no        everything
//	cut       set    set    yes  no        everything but the rest of the value
//	headless  set    set    yes  yes       the same as in own: too little was read for the headers
//
// BeginRead moves an item that has ("m") keys from own to reading, FinishRead from there to one of
// the last three, ReadMeta from cut or headless towards whole, and Drop from whole back to cut. Err
// is set, and the item stays as it is, once it turns out to be corrupt.
type ItemRead struct {
	Item codec.Item
	Pair kv.KeyValue // the item's own key and value, as stored
	Err  error       // ErrCorrupt if the item cannot be read
	Cut  bool        // there may be more ("m") keys than were read

	own      []byte // the value in the item's own key, decoded
	metas    kv.Future[[]kv.KeyValue]
	asked    kv.RangeOptions // of metas
	parts    []kv.KeyValue   // the ("m") keys that were read
	headless bool
	known    bool // all of it, without a read
}

// Beginning is how many bytes of its ("m") keys BeginItem reads of an item that is to move or to
// go: a single key if the item has several, because all but the last are full.
const Beginning = codec.ChunkSize

// ParseOwn parses the own key and value of an item.
func ParseOwn(l *codec.Layout, pair kv.KeyValue) ItemRead {
	id, err := l.ParseItem(pair.Key)
	if err != nil {
		return ItemRead{Pair: pair, Err: err}
	}
	s := ItemRead{Item: codec.Item{ID: id, PushedAt: codec.PushedAt(&id)}, Pair: pair}
	s.setOwn(codec.DecodeValue(l.Format, pair.Value))
	return s
}

// BeginItem starts to read the ("m") keys of an item whose own key the caller reads. bytes is as
// for BeginRead.
func BeginItem(l *codec.Layout, r kv.Reader, id *codec.ID, bytes int) ItemRead {
	item := codec.Item{ID: *id, PushedAt: codec.PushedAt(id)}
	s := ItemRead{Item: item}
	s.BeginRead(r, l, bytes)
	return s
}

// KnownItem is an item that need not be read. Its message is small: one ("m") key at most.
func KnownItem(l *codec.Layout, id *codec.ID, m *codec.Message) ItemRead {
	item := codec.Item{ID: *id, PushedAt: codec.PushedAt(id), Message: *m}
	s := ItemRead{Item: item, known: true}
	if codec.HasMeta(id) {
		s.parts = []kv.KeyValue{{Key: l.MetaKey(id, 0)}}
	}
	return s
}

// BeginRead starts to read the item's ("m") keys, unless that has begun: about as many bytes, but
// at least one key; 0 is all. More than that may not fit into memory.
func (s *ItemRead) BeginRead(r kv.Reader, l *codec.Layout, bytes int) {
	if s.metas != nil || s.known || s.Err != nil || !codec.HasMeta(&s.Item.ID) {
		return
	}
	s.asked = kv.RangeOptions{Bytes: bytes}
	s.metas = r.GetRange(l.MetaRange(&s.Item.ID), s.asked)
}

// FinishRead waits for what BeginRead started. The error is one of the store; an error of the item
// alone is in s.Err.
func (s *ItemRead) FinishRead() error {
	if s.metas == nil || s.Err != nil || s.parts != nil {
		return nil
	}
	parts, err := s.metas.Get()
	if err != nil {
		return err
	}

	// A read that came back full may have stopped before the last key.
	s.parts, s.Cut = parts, s.asked.Full(parts)
	s.parse()
	return nil
}

// parse sets the message to what the parts hold.
func (s *ItemRead) parse() {
	m, rest, err := codec.DecodeMeta(s.parts)
	if s.headless = err != nil && s.Cut; s.headless {
		return
	}

	if err != nil {
		s.Err = fmt.Errorf("item %s: %w", s.Item.ID, err)
		return
	}

	// DecodeMeta knows nothing of the part of the value in the item's own key.
	m.Value = s.own
	if len(rest) > 0 && !s.Cut {
		m.Value = slices.Concat(s.own, rest)
	}
	s.Item.Message = m
}

// ReadMeta waits for what BeginRead started, and reads the rest of an item that is cut, unless the
// item has more than about most bytes. Then it stays cut. The error is one of the store.
func (s *ItemRead) ReadMeta(r kv.Reader, l *codec.Layout, most int) error {
	if err := s.FinishRead(); err != nil {
		return err
	}
	for s.Cut && s.Err == nil {
		left := most + ExtraForFirst - s.Read() // a message may have fewer bytes than its keys
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

// Load waits for what BeginItem started, and adds the value in the item's own key, as stored. With
// rest it reads the rest of an item that is cut. The error wraps ErrCorrupt, or is one of the
// store.
func (s *ItemRead) Load(r kv.Reader, l *codec.Layout, value []byte, rest bool) error {
	s.SetOwn(l, value)
	err := s.FinishRead()
	if err == nil && rest {
		err = s.ReadMeta(r, l, NoBound)
	}
	return cmp.Or(err, s.Err)
}

// SetOwn sets the own key and value, as stored, of an item that BeginItem reads. What was parsed
// without the value is parsed again with it.
func (s *ItemRead) SetOwn(l *codec.Layout, value []byte) {
	if s.known {
		return
	}
	s.Pair = kv.KeyValue{Key: l.ItemKey(&s.Item.ID), Value: value}
	s.setOwn(codec.DecodeValue(l.Format, value))
	if s.parts != nil && s.Err == nil {
		s.parse()
	}
}

func (s *ItemRead) setOwn(value []byte) { s.own, s.Item.Value = value, value }

// Expired reads enough of the item to report whether it has expired by now. bytes is as for
// BeginRead. The error is one of the store.
func (s *ItemRead) Expired(r kv.Reader, l *codec.Layout, now time.Time, bytes int) (bool, error) {
	s.BeginRead(r, l, bytes) // usually a no-op
	err := s.ReadHeaders(r, l)
	return err == nil && s.Err == nil && codec.Expired(s.Item.Expires, now), err
}

// ReadHeaders waits for what BeginRead started, and reads on if that was too little for the
// headers. The error is one of the store.
func (s *ItemRead) ReadHeaders(r kv.Reader, l *codec.Layout) error {
	if err := s.FinishRead(); err != nil || !s.headless {
		return err
	}
	return s.ReadMeta(r, l, NoBound)
}

// Lasting waits for what BeginItem started, and returns what travels with the item. If that cannot
// be read, the result is empty, which does no harm: the entry of the time index stays until it is
// due, and the unique key means nothing without the item. The error is one of the store.
func (s *ItemRead) Lasting() (codec.Lasting, error) {
	err := s.FinishRead()
	return codec.LastingOf(&s.Item.Message), err
}

// Whole returns an item whose read has begun, for an operation that leaves it in the queue. The
// error is ErrNoRoom, ErrCorrupt or one of the store.
func (s *ItemRead) Whole(r kv.Reader, l *codec.Layout, returned *ReadBudget) (codec.Item, error) {
	if err := s.FinishRead(); err != nil {
		return codec.Item{}, err
	}

	if !returned.Refused {
		if err := s.ReadMeta(r, l, returned.Left()); err != nil {
			return codec.Item{}, err
		}
	}

	if s.Err != nil {
		return codec.Item{}, s.Err
	}

	returned.Refused = returned.Refused || s.Cut
	if !returned.Admit(s.Item.Message.Size()) {
		return codec.Item{}, ErrNoRoom
	}

	item := s.Item
	s.Release()
	return item, nil
}

// Known reports whether all of the item was known, and nothing of it was read.
func (s *ItemRead) Known() bool { return s.known }

// Read returns how many bytes of the item have been read.
func (s *ItemRead) Read() int {
	n := len(s.Pair.Value)
	for _, part := range s.parts {
		n += len(part.Value)
	}
	return n
}

// Drop frees the ("m") keys that were read of an item, but not its headers. ReadMeta reads them
// again.
func (s *ItemRead) Drop() {
	if s.known || s.parts == nil || s.Err != nil {
		return
	}
	s.metas, s.parts, s.Cut = nil, nil, true
	s.Item.Value = s.own
}

// clear removes the ("m") keys, all of which have been read. One key at a time leaves nothing that
// later reads have to step over, as ranges do in the embedded store.
func (s *ItemRead) clear(tx kv.Transaction) {
	for _, part := range s.parts {
		tx.Clear(part.Key)
	}
}

// Parts returns how many ("m") keys the item has, 0 if not all were read.
func (s *ItemRead) Parts() int {
	if s.Cut {
		return 0
	}
	return len(s.parts)
}

// Release frees everything read for an item but the item itself.
func (s *ItemRead) Release() {
	s.metas, s.parts, s.own, s.Pair.Value = nil, nil, nil, nil
}

// ReadCounter waits for a counter. One that is missing is 0.
func ReadCounter(value kv.Future[[]byte]) (int64, error) {
	encoded, err := value.Get()
	if err != nil {
		return 0, err
	}
	return ParseLength(encoded)
}

// ParseLength returns the number in a counter, 0 for nil. The error is ErrCorrupt.
func ParseLength(value []byte) (int64, error) {
	if value == nil {
		return 0, nil
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("%w: item counter has %d bytes: want 8", codec.ErrCorrupt, len(value))
	}
	return int64(binary.LittleEndian.Uint64(value)), nil
}

// later is a future that Get computes.
type later[T any] func() (T, error)

// Get implements kv.Future.
func (f later[T]) Get() (T, error) { return f() }
