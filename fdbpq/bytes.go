package fdbpq

import (
	"bytes"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// A queue with Settings.MaxBytes, and only such a queue, counts the bytes of its items:
//
//	("b")            = int64         counter: Message.Size of all items
//	("b", "counted") = byte, bytes   which items count
//
// The byte is countedAll, or countedTo, followed by a key of an item without ("i"): then all items up
// to that place count, in whichever state they are, and none behind it. Without the key none counts.
//
// Setting MaxBytes counts the items that are there, as many as a transaction has room for. If there are
// more, pushes first count the rest, a transaction at a time. Meanwhile, whoever adds or removes an item
// that counts keeps the counter right, and conflicts with those transactions, and they with it.
// Resetting MaxBytes removes both keys.
//
// An item counts until it is gone: also while a staged pop has yet to collect it.

const kindBytes = "b"

const (
	countedAll byte = iota
	countedTo
)

func (l *layout) bytesKey() []byte { return l.key(kindBytes, 0) }

func (l *layout) countedKey() []byte {
	return tuple.AppendString(l.key(kindBytes, 16), "counted")
}

// place is the key of an item, ready or held, without the queue's subspace and the kind.
func (l *layout) place(key []byte) []byte { return key[len(l.prefix)+kindSize:] }

// byteCount is what a transaction knows of the bytes of a queue.
type byteCount struct {
	loaded bool
	on     bool   // the queue counts them
	all    bool   // all items count
	to     []byte // the place up to which they do; nil if none does
	delta  int64  // change of the counter
	sizes  map[ID]sizeRead
}

// countsBytes reports whether the queue counts bytes. An error makes flush fail.
func (g *ledger) countsBytes() bool {
	b := &g.bytes
	if b.loaded {
		return b.on
	}
	b.loaded = true
	settings, err := g.limits()
	if err != nil || settings.MaxBytes == 0 {
		g.fail(err)
		return false
	}
	counted, err := g.tx.Get(g.l.countedKey()).Get()
	g.fail(err)
	b.on = true
	b.all = len(counted) > 0 && counted[0] == countedAll
	if len(counted) > 0 && !b.all {
		b.to = counted[1:]
	}
	return true
}

// fail keeps an error for flush.
func (g *ledger) fail(err error) {
	if g.err == nil {
		g.err = err
	}
}

// addBytes counts an item that comes or, with a negative number, goes.
func (g *ledger) addBytes(id *ID, n int) {
	b := &g.bytes
	if id.ours() && (b.all || b.to != nil && bytes.Compare(g.l.place(g.l.itemKey(id)), b.to) <= 0) {
		b.delta += int64(n)
	}
}

// countAdded counts an item that is added.
func (g *ledger) countAdded(id *ID, m *Message) {
	if g.countsBytes() {
		g.addBytes(id, m.Size())
	}
}

// countRemoved counts an item that goes, whose ("m") keys need not have been read.
func (g *ledger) countRemoved(h *held) {
	if g.countsBytes() {
		size, err := g.sizeOf(h)
		g.fail(err)
		g.addBytes(&h.id, -size)
	}
}

// sizeRead is the first and the last ("m") key of an item, being read.
type sizeRead struct{ first, last kv.Future[[]kv.KeyValue] }

// beginSize starts to read what it takes to know the size of an item, if the queue counts bytes.
func (g *ledger) beginSize(id *ID) {
	if !id.hasMeta() || !g.countsBytes() {
		return
	}
	if g.bytes.sizes == nil {
		g.bytes.sizes = map[ID]sizeRead{}
	}
	if _, begun := g.bytes.sizes[*id]; !begun {
		r, metas := g.tx.Snapshot(), g.l.metaRange(id)
		g.bytes.sizes[*id] = sizeRead{
			r.GetRange(metas, kv.RangeOptions{Limit: 1}), r.GetRange(metas, kv.RangeOptions{Limit: 1, Reverse: true}),
		}
	}
}

// sizeOf returns the size of an item, which must still have its ("m") keys unless its message is known.
// What cannot be read of it does not count. The error is one of the store.
func (g *ledger) sizeOf(h *held) (int, error) {
	if h.message != nil {
		return h.message.Size(), nil
	}
	size := len(g.l.format.decode(h.value)) + h.dropped
	if !h.id.hasMeta() {
		return size, nil
	}
	g.beginSize(&h.id)
	read := g.bytes.sizes[h.id]
	first, err := read.first.Get()
	if err != nil || len(first) == 0 {
		return size, err
	}
	last, err := read.last.Get()
	if err != nil || len(last) == 0 {
		return size, err
	}
	m, rest, err := decodeMeta(first)
	if err != nil && !bytes.Equal(first[0].Key, last[0].Key) { // its headers may take more than one key
		if first, err = g.l.readMetas(g.tx.Snapshot(), &h.id, kv.RangeOptions{}).Get(); err != nil {
			return size, err
		}
		m, rest, err = decodeMeta(first)
		last = first[len(first)-1:]
	}
	if err != nil {
		return size, nil
	}
	if part, _, err := tuple.DecodeInt(last[0].Key[len(g.l.idKey(kindMeta, &h.id)):]); err == nil && part >= int64(len(first)) {
		size += int(part-int64(len(first)))*chunkSize + len(last[0].Value)
	}
	return size + m.Size() + len(rest), nil
}

// resetBytes forgets what was counted, and counts anew if the settings say so. The error is one of the
// store.
func (g *ledger) resetBytes() error {
	g.bytes = byteCount{}
	g.tx.Clear(g.l.bytesKey())
	g.tx.Clear(g.l.countedKey())
	_, err := g.countPage()
	return err
}

// countPage counts items that do not count yet, as many as a transaction has room for, and reports whether
// all count then. The error is one of the store.
func (g *ledger) countPage() (all bool, err error) {
	if !g.countsBytes() || g.bytes.all || g.err != nil {
		return true, g.err
	}
	b := &g.bytes
	items, size := 0, 0
	for page := firstSweepPage; !b.all && items < sweepItems && size < sweepBytes; page = min(4*page, maxSweepPage) {
		found, end, err := g.uncounted(page)
		if err != nil {
			return false, err
		}
		for _, h := range found {
			g.beginSize(&h.id)
		}
		b.all, b.to = end == nil, end
		for _, h := range found {
			n, err := g.sizeOf(h)
			if err != nil {
				return false, err
			}
			g.addBytes(&h.id, n)
			size += len(h.value)
		}
		items += page
	}
	counted := []byte{countedAll}
	if !b.all {
		counted = append([]byte{countedTo}, b.to...)
	}
	g.tx.Set(g.l.countedKey(), counted)
	g.wrote = true
	return b.all, nil
}

// uncounted returns the next items that do not count yet, about limit of them, and the place of the last one;
// nil if these are all. It conflicts with whoever adds, moves or removes one of them.
func (g *ledger) uncounted(limit int) (found []*held, end []byte, err error) {
	kinds := [...]string{kindItem, kindHeld}
	var pages [len(kinds)]kv.Future[[]kv.KeyValue]
	o := kv.RangeOptions{Limit: limit, Bytes: sweepBytes}
	for i, kind := range kinds {
		keys := g.l.kindRange(kind)
		if g.bytes.to != nil {
			keys.Begin = kv.SingleKey(append(g.l.key(kind, len(g.bytes.to)), g.bytes.to...)).End
		}
		pages[i] = g.tx.GetRange(keys, o)
	}
	var pairs []kv.KeyValue
	for _, page := range pages {
		some, err := page.Get()
		if err != nil {
			return nil, nil, err
		}
		pairs = append(pairs, some...)
		if o.Full(some) {
			if last := g.l.place(some[len(some)-1].Key); end == nil || bytes.Compare(last, end) < 0 {
				end = last
			}
		}
	}
	uncollected, err := g.uncollected()
	if err != nil {
		return nil, nil, err
	}
	heldPrefix := g.l.key(kindHeld, 0)
	for _, pair := range append(pairs, uncollected...) {
		place := g.l.place(pair.Key)
		if end != nil && bytes.Compare(place, end) > 0 || g.bytes.to != nil && bytes.Compare(place, g.bytes.to) <= 0 {
			continue
		}
		id, err := g.l.parseItem(pair.Key)
		if err != nil {
			continue // another program's
		}
		h := &held{id: id, value: pair.Value}
		if bytes.HasPrefix(pair.Key, heldPrefix) {
			if h, err = parseHeld(&id, pair.Value); err != nil {
				continue
			}
		}
		found = append(found, h)
	}
	return found, end, nil
}

// uncollected returns the items that staged pops have yet to collect, with the keys that they had.
func (g *ledger) uncollected() (pairs []kv.KeyValue, err error) {
	answers, err := g.tx.GetRange(within(g.l.partPrefix(partAnswer)), kv.RangeOptions{}).Get()
	if err != nil {
		return nil, err
	}
	prefix := len(g.l.partPrefix(partAnswer))
	for _, pair := range answers {
		a, err := parseAnswer(pair.Value)
		if err != nil || a.item == nil {
			continue
		}
		value, err := g.tx.Get(append(g.l.partPrefix(partValue), pair.Key[prefix:]...)).Get()
		if err != nil {
			return nil, err
		}
		pairs = append(pairs, kv.KeyValue{Key: g.l.itemKey(a.item), Value: value})
	}
	return pairs, nil
}
