package state

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Stored is an item being read: its own key, and its ("m") keys, which have its headers and the
// rest of a long value. Either comes first.
type Stored struct {
	Item codec.Item
	Pair kv.KeyValue // the item's own key and value, as stored
	Err  error       // ErrCorrupt if this item cannot be read
	Cut  bool        // there may be more ("m") keys than were read

	metas    kv.Future[[]kv.KeyValue] // the ("m") keys being read; nil before BeginRead, or if there are none
	asked    kv.RangeOptions          // of metas
	parts    []kv.KeyValue            // the ("m") keys, once read
	headless bool                     // these do not even have all headers
}

// ParseStored parses the pair of an item, without its ("m") keys.
func ParseStored(l *codec.Layout, pair kv.KeyValue) Stored {
	id, err := l.ParseItem(pair.Key)
	if err != nil {
		return Stored{Pair: pair, Err: err}
	}
	s := Stored{Item: codec.Item{ID: id, PushedAt: codec.PushedAt(&id)}, Pair: pair}
	s.Item.Value = codec.DecodeValue(l.Format, pair.Value)
	return s
}

// Beginning is how many bytes of its ("m") keys BeginItem reads of an item that is to move or to
// go: a single key of an item that has several, because all but the last are full.
const Beginning = codec.ChunkSize

// BeginItem starts to read what belongs to an item besides its own key, which the caller reads: no
// more than about so many bytes, because there may be no room for more.
func BeginItem(l *codec.Layout, r kv.Reader, id *codec.ID, bytes int) Stored {
	s := Stored{Item: codec.Item{ID: *id, PushedAt: codec.PushedAt(id)}}
	s.BeginRead(r, l, bytes)
	return s
}

// BeginRead starts to read the item's ("m") keys, the first time it is called: at least one, and no
// more than about so many bytes of them, 0 for all.
func (s *Stored) BeginRead(r kv.Reader, l *codec.Layout, bytes int) {
	if s.metas != nil || s.Err != nil || !codec.HasMeta(&s.Item.ID) {
		return
	}
	s.asked = kv.RangeOptions{Bytes: bytes}
	s.metas = r.GetRange(l.MetaRange(&s.Item.ID), s.asked)
}

// Expired reads the item, unless it is too large, and reports whether it has expired by now. bytes
// is as for BeginRead. The error is one of the store.
func (s *Stored) Expired(r kv.Reader, l *codec.Layout, now time.Time, bytes int) (bool, error) {
	s.BeginRead(r, l, bytes) // usually a no-op
	if err := s.FinishRead(); err != nil {
		return false, err
	}
	if s.headless { // it is not known whether it has expired
		if err := s.ReadRest(r, l, NoBound); err != nil {
			return false, err
		}
	}
	return s.Err == nil && codec.Expired(s.Item.Expires, now), nil
}

// FinishRead waits for what BeginRead started, and completes the item, unless that is cut. The
// error is one of the store; what is wrong with the item alone is in s.Err.
func (s *Stored) FinishRead() error {
	if s.metas == nil || s.Err != nil || s.parts != nil {
		return nil
	}
	parts, err := s.metas.Get()
	if err != nil {
		return err
	}
	s.parts, s.Cut = parts, s.asked.Full(parts)
	s.parse()
	return nil
}

// parse sets the message to what the parts hold. One that is cut has no more of its value than is
// in the item's own key and, as long as s.headless, nothing else.
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

// Load waits for what BeginItem started, and completes the item with the value in its own key, as
// stored. With rest it also reads the rest of a large item; without, one that is cut stays so. The
// error wraps ErrCorrupt if the item cannot be read, or is one of the store.
func (s *Stored) Load(r kv.Reader, l *codec.Layout, value []byte, rest bool) error {
	s.SetOwn(l, value)
	if s.parts != nil { // read before, without the value
		s.parse()
	}

	err := s.FinishRead()
	if err == nil && rest {
		err = s.ReadRest(r, l, NoBound)
	}
	return cmp.Or(err, s.Err)
}

// SetOwn sets the own key and value of an item that BeginItem reads, as stored.
func (s *Stored) SetOwn(l *codec.Layout, value []byte) {
	s.Pair = kv.KeyValue{Key: l.ItemKey(&s.Item.ID), Value: value}
	s.Item.Value = codec.DecodeValue(l.Format, value)
}

// Lasting waits for what BeginItem started, and returns what travels with the item; nothing if that
// cannot be read: its entry of the time index stays until it is due, and the unique key means
// nothing without the item. The error is one of the store.
func (s *Stored) Lasting() (codec.Lasting, error) {
	err := s.FinishRead()
	return codec.LastingOf(&s.Item.Message), err
}

// ReadRest goes on to read an item that is cut, unless it has more than about so many bytes. Then
// it stays cut. The error is as that of FinishRead.
func (s *Stored) ReadRest(r kv.Reader, l *codec.Layout, most int) error {
	for s.Cut && s.Err == nil {
		left := most + RoomAlone - s.Read() // a message may have fewer bytes than its keys
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

// Read is the number of bytes read of the item so far.
func (s *Stored) Read() int {
	n := len(s.Pair.Value)
	for _, part := range s.parts {
		n += len(part.Value)
	}
	return n
}

// Release frees what was read of an item besides itself.
func (s *Stored) Release() {
	s.metas, s.parts, s.Pair.Value = nil, nil, nil
}

// Whole returns an item whose read has begun, to be returned by an operation that leaves it where
// it is. The error is ErrNoRoom, ErrCorrupt or one of the store.
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

	if returned.Refused = returned.Refused || s.Cut; !returned.Admit(s.Item.Message.Size()) {
		return codec.Item{}, ErrNoRoom
	}
	item := s.Item
	s.Release()
	return item, nil
}

// Lookup is the keys that an item may have, being read: that of a held item, and the two of one in
// ("i").
type Lookup struct {
	held, item, history kv.Future[[]byte] // nil if not begun
	dropped             int               // bytes of the item's value that Shrink has dropped
	known               *codec.Record     // the item, leased and without its value; then nothing is read
}

// LookUp starts to read an item wherever it is, but no history.
func LookUp(l *codec.Layout, r kv.Reader, id *codec.ID) Lookup {
	return Lookup{held: r.Get(l.HeldKey(id)), item: r.Get(l.ItemKey(id))}
}

// LookUpReady goes on after LookUpHeld, and starts to read the item where else it can be, if it is
// not held. One that is held needs no more: a move of it writes the key that was read.
func (k *Lookup) LookUpReady(r kv.Reader, l *codec.Layout, id *codec.ID) {
	if k.known != nil {
		return
	}
	if record, err := k.held.Get(); record == nil && err == nil && k.item == nil {
		k.item, k.history = r.Get(l.ItemKey(id)), r.Get(l.HistoryKey(id))
	}
}

// Shrink waits for what was begun, and drops the value of the item, which an acknowledgement does
// without.
func (k *Lookup) Shrink(l *codec.Layout, id *codec.ID) error {
	if k.known != nil {
		return nil
	}
	record, err := k.held.Get()
	if err != nil {
		return err
	}
	if h, err := codec.ParseRecord(id, record); record != nil && err == nil {
		k.dropped = len(codec.DecodeValue(l.Format, h.Value))
		k.held = kv.Ready(slices.Clone(record[:len(record)-len(h.Value)]), nil)
	}

	if k.item == nil {
		return nil
	}
	value, err := k.item.Get()
	if err == nil && value != nil {
		k.dropped = len(codec.DecodeValue(l.Format, value))
		k.item = kv.Ready([]byte{}, nil)
	}
	return err
}

// Find returns the item if the token still holds, nil otherwise. Programs may make up tokens: with
// the fence 0 of an item that was never leased or, since the keys of a FIFO queue have no priority,
// with another id for the same item.
func (k *Lookup) Find(l *codec.Layout, token *codec.Token) (*codec.Record, error) {
	if token.Fence <= 0 || l.Fifo && token.ID.Priority != 0 {
		return nil, nil
	}
	h, err := k.Anywhere(&token.ID)
	if h == nil || err != nil {
		return nil, err
	}

	h.Dropped += k.dropped
	if h.State == codec.Ready { // back in ("i"), and nobody else got it
		past, err := k.Past()
		if err != nil {
			return nil, err
		}
		if h.History, err = codec.ParseHistory(&token.ID, past); err != nil {
			return nil, err
		}
		h.End = token.End
	}
	if h.Fence != token.Fence || h.NeverLeased() {
		return nil, nil
	}
	return h, nil
}

// Anywhere returns the item in whichever state it is, nil if it is not in the queue. One that is
// ready has neither history nor expiry.
func (k *Lookup) Anywhere(id *codec.ID) (*codec.Record, error) {
	if k.known != nil {
		h := *k.known
		return &h, nil
	}
	record, err := k.held.Get()
	if err != nil {
		return nil, err
	}
	if record != nil {
		return codec.ParseRecord(id, record)
	}

	value, err := k.item.Get()
	if value == nil || err != nil {
		return nil, err
	}
	return &codec.Record{ID: *id, State: codec.Ready, Value: value}, nil
}

// Past returns the history of an item in ("i"), as stored, nil if it has none.
func (k *Lookup) Past() ([]byte, error) { return k.history.Get() }

// Exists reports whether the item is in the queue.
func (k *Lookup) Exists() (bool, error) {
	for _, key := range []kv.Future[[]byte]{k.held, k.item} {
		if value, err := key.Get(); err != nil || value != nil {
			return value != nil, err
		}
	}
	return false, nil
}

// WantFree returns ErrExists if the item is in the queue: to restore it there would overwrite it.
func (k *Lookup) WantFree(id *codec.ID) error {
	exists, err := k.Exists()
	if err == nil && exists {
		err = fmt.Errorf("%w: %s", codec.ErrExists, id)
	}
	return err
}

// ReadHistory starts to read the history of an item that is to be taken. It reads without
// conflict, because an item and its history are written together.
func ReadHistory(l *codec.Layout, tx kv.Transaction, id *codec.ID) kv.Future[[]byte] {
	return tx.Snapshot().Get(l.HistoryKey(id))
}

// later is a future that Get computes.
type later[T any] func() (T, error)

// Get implements kv.Future.
func (f later[T]) Get() (T, error) { return f() }
