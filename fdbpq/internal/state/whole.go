package state

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// WholeItem is an item that is to be written again elsewhere, being read.
type WholeItem struct {
	Item  Stored
	Head  kv.Future[[]kv.KeyValue] // the first ("m") keys, nil if there are none
	Large bool                     // the item has more than these, once load has returned
}

// wholeHead reads the first ("m") key of an item that has several: all but the last are full.
var wholeHead = kv.RangeOptions{Bytes: codec.ChunkSize}

// BeginWhole starts to read what belongs to an item besides its own key. Of a large item that is
// only the beginning, because there may be no room for it.
func BeginWhole(l *codec.Layout, r kv.Reader, id *codec.ID) (w WholeItem) {
	if codec.HasMeta(id) {
		w.Head = r.GetRange(l.MetaRange(id), wholeHead)
	}
	return w
}

// BeginWholes is BeginWhole for several items.
func BeginWholes(l *codec.Layout, r kv.Reader, pairs []kv.KeyValue) []WholeItem {
	begun := make([]WholeItem, len(pairs))
	for i, pair := range pairs {
		if id, err := l.ParseItem(pair.Key); err == nil {
			begun[i] = BeginWhole(l, r, &id)
		}
	}
	return begun
}

// Load waits for what begin started, for an item with the given value, as stored. With rest it
// also reads the rest of a large item; without, the caller must not use one. The error wraps
// ErrCorrupt if the item cannot be read, or is one of the store.
func (w *WholeItem) Load(g *Ledger, id *codec.ID, value []byte, rest bool) error {
	w.Item = StoredAs(g.L, *id, kv.KeyValue{Key: g.L.ItemKey(id), Value: value})
	if w.Head == nil {
		return nil
	}
	parts, err := w.Head.Get()
	if err != nil {
		return err
	}
	if w.Large = wholeHead.Full(parts); w.Large && !rest {
		return nil
	}
	w.Item.Metas = kv.Ready(parts, nil)
	if w.Large {
		w.Item.Metas = ReadMetas(g.L, g.Tx, id, kv.RangeOptions{})
	}
	if err := w.Item.FinishRead(); err != nil {
		return err
	}
	return w.Item.Err
}

// Lasting waits for what begin started, and returns what travels with the item; nothing if that cannot be
// read. The error is one of the store.
func (w *WholeItem) Lasting() (codec.Lasting, error) {
	if w.Head == nil {
		return codec.Lasting{}, nil
	}
	parts, err := w.Head.Get()
	if err != nil {
		return codec.Lasting{}, err
	}
	m, _, err := codec.DecodeMeta(parts)
	if err != nil {
		// Its entry of the time index stays until it is due, and the unique key means nothing without it.
		return codec.Lasting{}, nil
	}
	return codec.LastingOf(&m), nil
}

// Size is the number of bytes of ("m") keys that begin has read.
func (w *WholeItem) Size() (n int) {
	if w.Head == nil {
		return 0
	}
	parts, _ := w.Head.Get() // whoever needs them has seen the error
	for _, part := range parts {
		n += len(part.Value)
	}
	return n
}
