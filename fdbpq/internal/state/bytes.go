package state

import (
	"bytes"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// The first byte of the key that says which items count: see the table of keys in package codec.
const (
	countedAll byte = iota
	countedTo
)

// CountsBytes reports whether the queue counts bytes. An error makes Flush fail.
func (g *Ledger) CountsBytes() bool {
	b := &g.bytes
	if b.loaded {
		return b.on
	}
	b.loaded = true

	settings, err := g.ReadableSettings()
	if err != nil || settings.MaxBytes == 0 {
		g.fail(err)
		return false
	}

	counted, err := g.Tx.Get(g.L.CountedKey()).Get()
	g.fail(err)

	b.on = true
	b.all = len(counted) > 0 && counted[0] == countedAll
	if len(counted) > 0 && !b.all {
		b.to = counted[1:]
	}
	return true
}

// addBytes counts an item that comes or, with a negative number, goes.
func (g *Ledger) addBytes(id *codec.ID, n int) {
	b := &g.bytes
	if codec.Ours(id) && (b.all || b.to != nil && bytes.Compare(g.L.Place(g.L.ItemKey(id)), b.to) <= 0) {
		b.delta += int64(n)
	}
}

// countAdded counts an item that is added.
func (g *Ledger) countAdded(id *codec.ID, m *codec.Message) {
	if g.CountsBytes() {
		g.addBytes(id, m.Size())
	}
}

// countRemoved counts an item that goes, whose ("m") keys need not have been read.
func (g *Ledger) countRemoved(h *codec.Record) {
	if g.CountsBytes() {
		size, err := g.SizeOf(h)
		g.fail(err)
		g.addBytes(&h.ID, -size)
	}
}

// BeginSize starts to read what it takes to know the size of an item, if the queue counts bytes.
func (g *Ledger) BeginSize(id *codec.ID) {
	if !codec.HasMeta(id) || !g.CountsBytes() || g.bytes.sizes[*id].first != nil {
		return
	}
	r, metas := g.Tx.Snapshot(), g.L.MetaRange(id)
	g.noteSize(id, sizeRead{
		r.GetRange(metas, kv.RangeOptions{Limit: 1}), r.GetRange(metas, kv.RangeOptions{Limit: 1, Reverse: true}),
	})
}

// knowSize is BeginSize for an item whose ("m") keys were read.
func (g *Ledger) knowSize(id *codec.ID, metas []kv.KeyValue) {
	if n := len(metas); codec.HasMeta(id) && g.CountsBytes() {
		g.noteSize(id, sizeRead{kv.Ready(metas[:min(n, 1)], nil), kv.Ready(metas[max(n-1, 0):], nil)})
	}
}

func (g *Ledger) noteSize(id *codec.ID, read sizeRead) {
	if g.bytes.sizes == nil {
		g.bytes.sizes = map[codec.ID]sizeRead{}
	}
	g.bytes.sizes[*id] = read
}

// SizeOf returns the size of an item, which must still have its ("m") keys unless its message is
// known. What cannot be read of it does not count. The error is one of the store.
func (g *Ledger) SizeOf(h *codec.Record) (int, error) {
	if h.Message != nil {
		return h.Message.Size(), nil
	}
	size := len(codec.DecodeValue(g.L.Format, h.Value)) + h.Dropped
	if !codec.HasMeta(&h.ID) {
		return size, nil
	}

	g.BeginSize(&h.ID)
	read := g.bytes.sizes[h.ID]
	first, err := read.first.Get()
	if err != nil || len(first) == 0 {
		return size, err
	}
	last, err := read.last.Get()
	if err != nil || len(last) == 0 {
		return size, err
	}

	m, rest, err := codec.DecodeMeta(first)
	if err != nil && !bytes.Equal(first[0].Key, last[0].Key) { // its headers may take more than one key
		if first, err = g.Tx.Snapshot().GetRange(g.L.MetaRange(&h.ID), kv.RangeOptions{}).Get(); err != nil {
			return size, err
		}
		m, rest, err = codec.DecodeMeta(first)
		last = first[len(first)-1:]
	}
	if err != nil {
		return size, nil
	}

	if part, _, err := tuple.DecodeInt(last[0].Key[len(g.L.IDKey(codec.KindMeta, &h.ID)):]); err == nil && part >= int64(len(first)) {
		size += int(part-int64(len(first)))*codec.ChunkSize + len(last[0].Value)
	}
	return size + m.Size() + len(rest), nil
}

// ResetBytes forgets what was counted, and counts anew if the settings say so. The error is one of
// the store.
func (g *Ledger) ResetBytes() error {
	g.bytes = byteCount{}
	g.Tx.Clear(g.L.BytesKey())
	g.Tx.Clear(g.L.CountedKey())
	_, err := g.CountPage()
	return err
}

// CountsAllBytes reports whether the bytes of all items count, or the queue does not count bytes.
func (g *Ledger) CountsAllBytes() (bool, error) {
	return !g.CountsBytes() || g.bytes.all || g.err != nil, g.err
}

// CountPage counts items that do not count yet, as many as a transaction has room for, and reports
// whether all count then. The error is one of the store.
func (g *Ledger) CountPage() (all bool, err error) {
	if all, err := g.CountsAllBytes(); all {
		return true, err
	}

	b := &g.bytes
	items, size := 0, 0
	for page := FirstSweepPage; !b.all && items < SweepItems && size < SweepBytes; page = min(4*page, MaxSweepPage) {
		found, end, err := g.uncounted(page)
		if err != nil {
			return false, err
		}

		for _, h := range found {
			g.BeginSize(&h.ID)
		}

		b.all, b.to = end == nil, end
		for _, h := range found {
			n, err := g.SizeOf(h)
			if err != nil {
				return false, err
			}
			g.addBytes(&h.ID, n)
			size += len(h.Value)
		}
		items += page
	}

	counted := []byte{countedAll}
	if !b.all {
		counted = append([]byte{countedTo}, b.to...)
	}
	g.Tx.Set(g.L.CountedKey(), counted)
	g.wrote = true
	return b.all, nil
}

// uncounted returns the next items that do not count yet, about limit of them, and the place of the
// last one; nil if these are all. It conflicts with whoever adds, moves or removes one of them.
func (g *Ledger) uncounted(limit int) (found []*codec.Record, end []byte, err error) {
	kinds := [...]string{codec.KindItem, codec.KindHeld}
	var pages [len(kinds)]kv.Future[[]kv.KeyValue]
	o := kv.RangeOptions{Limit: limit, Bytes: SweepBytes}
	for i, kind := range kinds {
		keys := g.L.KindRange(kind)
		if g.bytes.to != nil {
			keys.Begin = kv.SingleKey(append(g.L.Key(kind, len(g.bytes.to)), g.bytes.to...)).End
		}
		pages[i] = g.Tx.GetRange(keys, o)
	}

	var pairs []kv.KeyValue
	for _, page := range pages {
		some, err := page.Get()
		if err != nil {
			return nil, nil, err
		}
		pairs = append(pairs, some...)
		if o.Full(some) {
			if last := g.L.Place(some[len(some)-1].Key); end == nil || bytes.Compare(last, end) < 0 {
				end = last
			}
		}
	}

	uncollected, err := g.uncollected()
	if err != nil {
		return nil, nil, err
	}

	heldPrefix := g.L.Key(codec.KindHeld, 0)
	for _, pair := range append(pairs, uncollected...) {
		place := g.L.Place(pair.Key)
		if end != nil && bytes.Compare(place, end) > 0 || g.bytes.to != nil && bytes.Compare(place, g.bytes.to) <= 0 {
			continue
		}
		id, err := g.L.ParseItem(pair.Key)
		if err != nil {
			continue // another program's
		}

		h := &codec.Record{ID: id, Value: pair.Value}
		if bytes.HasPrefix(pair.Key, heldPrefix) {
			if h, err = codec.ParseRecord(&id, pair.Value); err != nil {
				continue
			}
		}

		found = append(found, h)
	}
	return found, end, nil
}

// uncollected returns the items that staged pops have yet to collect, with the keys that they had.
func (g *Ledger) uncollected() (pairs []kv.KeyValue, err error) {
	answers, err := g.Tx.GetRange(codec.Within(g.L.PartPrefix(codec.PartAnswer)), kv.RangeOptions{}).Get()
	if err != nil {
		return nil, err
	}

	prefix := len(g.L.PartPrefix(codec.PartAnswer))
	for _, pair := range answers {
		a, err := codec.ParseAnswer(pair.Value)
		if err != nil || a.Item == nil {
			continue
		}

		value, err := g.Tx.Get(append(g.L.PartPrefix(codec.PartValue), pair.Key[prefix:]...)).Get()
		if err != nil {
			return nil, err
		}
		pairs = append(pairs, kv.KeyValue{Key: g.L.ItemKey(a.Item), Value: value})
	}
	return pairs, nil
}
