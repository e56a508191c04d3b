package fdbpq

import (
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// wholeItem is an item that is to be written again elsewhere, being read.
type wholeItem struct {
	item  stored
	head  kv.Future[[]kv.KeyValue] // the first ("m") keys, nil if there are none
	large bool                     // the item has more than these, once load has returned
}

// wholeHead reads the first ("m") key of an item that has several: all but the last are full.
var wholeHead = kv.RangeOptions{Bytes: chunkSize}

// beginWhole starts to read what belongs to an item besides its own key. Of a large item that is
// only the beginning, because there may be no room for it.
func (l *layout) beginWhole(r kv.Reader, id *ID) (w wholeItem) {
	if id.hasMeta() {
		w.head = r.GetRange(l.metaRange(id), wholeHead)
	}
	return w
}

// beginWholes is beginWhole for several items.
func (l *layout) beginWholes(r kv.Reader, pairs []kv.KeyValue) []wholeItem {
	begun := make([]wholeItem, len(pairs))
	for i, pair := range pairs {
		if id, err := l.parseItem(pair.Key); err == nil {
			begun[i] = l.beginWhole(r, &id)
		}
	}
	return begun
}

// load waits for what begin started, for an item with the given value, as stored. With rest it
// also reads the rest of a large item; without, the caller must not use one. The error wraps
// ErrCorrupt if the item cannot be read, or is one of the store.
func (w *wholeItem) load(g *ledger, id *ID, value []byte, rest bool) error {
	w.item = g.l.storedAs(*id, kv.KeyValue{Key: g.l.itemKey(id), Value: value})
	if w.head == nil {
		return nil
	}
	parts, err := w.head.Get()
	if err != nil {
		return err
	}
	if w.large = wholeHead.Full(parts); w.large && !rest {
		return nil
	}
	w.item.metas = kv.Ready(parts, nil)
	if w.large {
		w.item.metas = g.l.readMetas(g.tx, id, kv.RangeOptions{})
	}
	if err := w.item.finishRead(); err != nil {
		return err
	}
	return w.item.err
}

// lasting waits for what begin started, and returns what travels with the item; nothing if that cannot be
// read. The error is one of the store.
func (w *wholeItem) lasting() (lasting, error) {
	if w.head == nil {
		return lasting{}, nil
	}
	parts, err := w.head.Get()
	if err != nil {
		return lasting{}, err
	}
	m, _, err := decodeMeta(parts)
	if err != nil {
		// Its entry of the time index stays until it is due, and the unique key means nothing without it.
		return lasting{}, nil
	}
	return m.lasts(), nil
}

// size is the number of bytes of ("m") keys that begin has read.
func (w *wholeItem) size() (n int) {
	if w.head == nil {
		return 0
	}
	parts, _ := w.head.Get() // whoever needs them has seen the error
	for _, part := range parts {
		n += len(part.Value)
	}
	return n
}
