package state

import (
	"bytes"
	"cmp"
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// ResetBytes counts about this many items, and bytes of them, at most.
const (
	countedItems = 2048
	countedBytes = 4 << 20
)

// CountsBytes reports whether the queue counts bytes. An error of the store makes Flush fail.
func (g *Ledger) CountsBytes() bool {
	if b := &g.bytes; !b.loaded {
		settings, err := g.ReadableSettings()
		g.fail(err)
		b.loaded, b.on = true, err == nil && settings.MaxBytes > 0
	}
	return g.bytes.on
}

// addBytes counts an item that comes or, with a negative number, goes.
func (g *Ledger) addBytes(id *codec.ID, n int) {
	if codec.Ours(id) && g.bytes.on {
		g.bytes.delta += int64(n)
	}
}

// countRemoved counts an item that goes. Its ("m") keys need not have been read.
func (g *Ledger) countRemoved(h *codec.Record) {
	if g.CountsBytes() {
		size, err := g.SizeOf(h)
		g.fail(err)
		g.addBytes(&h.ID, -size)
	}
}

// NeedsMeta reports whether Delete has to read the ("m") keys of an item: for its size if the queue
// counts bytes, for the id of its job if the item has moved, for its joiner.
func (g *Ledger) NeedsMeta(id *codec.ID) bool {
	return codec.Linked(id) || codec.HasMeta(id) && g.CountsBytes()
}

// BeginDelete starts to read what Delete and SizeOf need of an item. Without it they read one item
// after the other. Most items need nothing.
func (g *Ledger) BeginDelete(id *codec.ID) {
	if g.metaReads[*id] == nil && g.NeedsMeta(id) {
		s := BeginItem(g.L, g.Tx.Snapshot(), id, Beginning)
		g.NoteMeta(&s)
	}
}

// ReuseMeta is BeginDelete for an item whose ("m") keys the caller reads, by BeginItem.
func (g *Ledger) ReuseMeta(s *ItemRead) {
	if g.NeedsMeta(&s.Item.ID) {
		g.NoteMeta(s)
	}
}

// NoteMeta has Delete use what was read of an item.
func (g *Ledger) NoteMeta(s *ItemRead) {
	if g.metaReads == nil {
		g.metaReads = map[codec.ID]*ItemRead{}
	}
	g.metaReads[s.Item.ID] = s
}

// noLinks is what an item says that says nothing of others.
var noLinks = &codec.Message{}

// linksOf returns what matters of an item when it goes: Message.First, Joiner and Join. What cannot
// be read is nothing: an alias that stays means nothing, and joiners have a time. An error of the
// store makes Flush fail.
func (g *Ledger) linksOf(h *codec.Record) *codec.Message {
	switch {
	case !codec.Linked(&h.ID):
		return noLinks
	case h.Message != nil:
		return h.Message
	}

	g.BeginDelete(&h.ID)
	s := g.metaReads[h.ID]
	g.fail(s.ReadHeaders(g.Tx.Snapshot(), g.L))
	return &s.Item.Message
}

// JobOf returns the id of the job of an item.
func (g *Ledger) JobOf(h *codec.Record) codec.ID {
	if first := g.linksOf(h).First; first != nil {
		return *first
	}
	return h.ID
}

// Understands returns ErrCorrupt if an item cannot be ended because it has a property that only a
// newer version understands, or one of the store.
func (g *Ledger) Understands(h *codec.Record) error {
	if !codec.Must(&h.ID) || h.Message != nil {
		return nil
	}
	g.BeginDelete(&h.ID)
	s := g.metaReads[h.ID]
	return cmp.Or(s.ReadHeaders(g.Tx.Snapshot(), g.L), s.Err)
}

// SizeOf returns the size of an item. It reads the item's ("m") keys, which must still be there,
// unless the message is known. What cannot be read does not count. The error is one of the store.
func (g *Ledger) SizeOf(h *codec.Record) (int, error) {
	if h.Message != nil {
		return h.Message.Size(), nil
	}

	size := len(codec.DecodeValue(g.L.Format, h.Value)) + h.Dropped
	g.BeginDelete(&h.ID)
	s := g.metaReads[h.ID]
	if s == nil {
		return size, nil
	}

	r := g.Tx.Snapshot()
	s.BeginRead(r, g.L, Beginning) // again if it was dropped
	if err := s.ReadHeaders(r, g.L); err != nil {
		return size, err
	}

	m, rest, err := codec.DecodeMeta(s.parts)
	if err != nil {
		return size, nil
	}

	size += m.Size() + len(rest)
	if !s.Cut {
		return size, nil
	}

	// All ("m") keys but the last are full, so its number and its length say how much was not read.
	last, err := r.GetRange(g.L.MetaRange(&h.ID), kv.RangeOptions{Limit: 1, Reverse: true}).Get()
	if err != nil || len(last) == 0 {
		return size, err
	}

	read, number := int64(len(s.parts)), last[0].Key[len(g.L.IDKey(codec.KindMeta, &h.ID)):]
	if part, _, err := tuple.DecodeInt(number); err == nil && part >= read {
		size += int(part-read)*codec.ChunkSize + len(last[0].Value)
	}
	return size, nil
}

// ResetBytes begins to count bytes, starting with the items that are there, or stops counting. It
// conflicts with everything that adds, moves or removes an item. The error is ErrSettings if there
// are more items than a transaction can count, or one of the store. Then nothing has changed.
func (g *Ledger) ResetBytes(on bool) error {
	before := g.bytes
	g.bytes = byteCount{loaded: true, on: on}
	if on {
		if err := g.countItems(); err != nil {
			g.bytes = before
			return err
		}
	}

	g.Tx.Clear(g.L.BytesKey())
	return nil
}

// countItems counts all items. It returns the errors of ResetBytes.
func (g *Ledger) countItems() error {
	// Items that staged pops have yet to collect count as well.
	items, err := g.stagedItems()
	if err != nil {
		return err
	}

	browser, place := Browser{L: g.L}, []byte(nil)
	for ended, size := false, 0; !ended; {
		read, page, err := browser.ReadPage(g.Tx, place, countedItems)
		if err != nil {
			return err
		}
		for i := range read {
			size += read[i].Bytes
			if read[i].Err == nil { // else it cannot be read
				items = append(items, &read[i].Record)
			}
		}
		if len(items) > countedItems || size > countedBytes {
			return fmt.Errorf("%w: max_bytes: the queue has more than %d items, or %d MB: "+
				"want fewer to set it, or another limit",
				codec.ErrSettings, countedItems, countedBytes>>20)
		}
		place, ended = page.Place, page.Ended
	}

	for _, h := range items {
		g.BeginDelete(&h.ID)
	}
	for _, h := range items {
		size, err := g.SizeOf(h)
		if err != nil {
			return err
		}
		g.addBytes(&h.ID, size)
	}

	return nil
}

// stagedItems returns the items that staged pops have yet to collect.
func (g *Ledger) stagedItems() (items []*codec.Record, err error) {
	prefix := g.L.PartPrefix(codec.PartAnswer)
	answers, err := g.Tx.GetRange(codec.Within(bytes.Clone(prefix)), kv.RangeOptions{}).Get()
	if err != nil {
		return nil, err
	}

	for _, pair := range answers {
		a, err := codec.ParseAnswer(pair.Value)
		if err != nil || a.Item == nil {
			continue
		}

		request := pair.Key[len(prefix):]
		value, err := g.Tx.Get(append(g.L.PartPrefix(codec.PartValue), request...)).Get()
		if err != nil {
			return nil, err
		}
		items = append(items, &codec.Record{ID: *a.Item, Value: value})
	}

	return items, nil
}
