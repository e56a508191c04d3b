package state

import (
	"bytes"
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// The first byte of the key that says which items count: see the table of keys in package codec.
const (
	countedAll byte = iota
	countedTo
)

// countedAtOnce is about how many bytes of items ResetBytes reads.
const countedAtOnce = 4 << 20

// CountsBytes reports whether the queue counts bytes. An error of the store makes Flush fail.
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
	if len(counted) > 0 && counted[0] == countedTo {
		b.to = counted[1:]
	}
	return true
}

// addBytes counts an item that comes or, with a negative number, goes.
func (g *Ledger) addBytes(id *codec.ID, n int) {
	b := &g.bytes
	if !codec.Ours(id) {
		return
	}
	if b.all || b.to != nil && bytes.Compare(g.L.Place(g.L.ItemKey(id)), b.to) <= 0 {
		b.delta += int64(n)
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

// BeginSize starts to read what SizeOf needs of an item, if the queue counts bytes.
func (g *Ledger) BeginSize(id *codec.ID) {
	if codec.HasMeta(id) && g.CountsBytes() && g.bytes.sizes[*id] == nil {
		s := BeginItem(g.L, g.Tx.Snapshot(), id, Beginning)
		g.noteSize(&s)
	}
}

// knowSize is BeginSize for an item whose ("m") keys were read.
func (g *Ledger) knowSize(id *codec.ID, metas []kv.KeyValue) {
	if codec.HasMeta(id) && g.CountsBytes() {
		g.noteSize(&Stored{Item: codec.Item{ID: *id}, metas: kv.Ready(metas, nil)})
	}
}

func (g *Ledger) noteSize(s *Stored) {
	if g.bytes.sizes == nil {
		g.bytes.sizes = map[codec.ID]*Stored{}
	}
	g.bytes.sizes[s.Item.ID] = s
}

// SizeOf returns the size of an item. It reads the item's ("m") keys, which must still be there,
// unless the message is known. What cannot be read does not count. The error is one of the store.
func (g *Ledger) SizeOf(h *codec.Record) (int, error) {
	if h.Message != nil {
		return h.Message.Size(), nil
	}

	size := len(codec.DecodeValue(g.L.Format, h.Value)) + h.Dropped
	g.BeginSize(&h.ID)
	s := g.bytes.sizes[h.ID]
	if s == nil {
		return size, nil
	}

	r := g.Tx.Snapshot()
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
	g.bytes = byteCount{loaded: true, on: on, all: on}
	if on {
		if err := g.countItems(); err != nil {
			g.bytes = before
			return err
		}
	}

	g.Tx.Clear(g.L.BytesKey())
	g.setCounted(on)
	return nil
}

// setCounted records that all items count, or none.
func (g *Ledger) setCounted(all bool) {
	if !all {
		g.Tx.Clear(g.L.CountedKey())
		return
	}
	g.Tx.Set(g.L.CountedKey(), []byte{countedAll})
	g.bytes.all, g.bytes.to = true, nil
}

// countItems counts all items. The errors are those of ResetBytes.
func (g *Ledger) countItems() error {
	// Items that staged pops have yet to collect count as well.
	items, err := g.uncollected()
	if err != nil {
		return err
	}

	browser, place := Browser{L: g.L}, []byte(nil)
	for ended, size := false, 0; !ended; {
		page, part, err := browser.ReadPage(g.Tx, place, SweepItems)
		if err != nil {
			return err
		}
		for i := range page {
			size += page[i].Bytes
			if page[i].Err == nil { // else it cannot be read
				items = append(items, &page[i].Record)
			}
		}
		if len(items) > SweepItems || size > countedAtOnce {
			return fmt.Errorf("%w: max_bytes: the queue has more than %d items, or %d MB: "+
				"want fewer to set it, or another limit",
				codec.ErrSettings, SweepItems, countedAtOnce>>20)
		}
		place, ended = part.Place, part.Ended
	}

	for _, h := range items {
		g.BeginSize(&h.ID)
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

// uncollected returns the items that staged pops have yet to collect.
func (g *Ledger) uncollected() (items []*codec.Record, err error) {
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
