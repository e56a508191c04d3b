package state

import (
	"bytes"
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// readAhead is what is known of the beginning of a queue, so that pops need not look for it: items
// are all ready items with keys below end. The zero value knows nothing.
type readAhead struct {
	items []kv.KeyValue // in order, as they are stored
	size  int           // about how many bytes they take
	end   []byte        // nil before the first page
	all   bool          // nothing is ready from end on
}

const (
	// maxReadAhead is how many items pushes leave in a readAhead at most, and maxReadAheadBytes
	// about how many bytes.
	maxReadAhead      = 64
	maxReadAheadBytes = 16 << 10

	// Where up to few items are wanted, about ahead items are read, or aheadBytes, for later pops.
	few        = 4
	ahead      = 16
	aheadBytes = 4 << 10
)

// begins reports whether page serves a walk from an end.
func (c *cachedQueue) begins(end codec.End) bool {
	return c != nil && (end == codec.Front || c.readAhead.all)
}

// page returns the first items of the queue, or from its back the last, as far as they are known.
// Whatever else is asked for it reads.
func (c *cachedQueue) page(
	l *codec.Layout, r kv.Reader, o kv.RangeOptions,
) ([]kv.KeyValue, error) {
	w := &c.readAhead
	for !w.all && !o.Full(upTo(w.items, o)) {
		rest, more := l.ItemRange(), o
		if w.end != nil {
			rest.Begin = w.end
		}
		if o.Limit <= few {
			more.Limit, more.Bytes = ahead, min(o.Bytes, aheadBytes)
		}

		pairs, err := r.GetRange(rest, more).Get()
		if err != nil {
			return nil, err
		}

		if w.all = !more.Full(pairs); !w.all {
			w.end = kv.SingleKey(pairs[len(pairs)-1].Key).End
		}
		for _, pair := range pairs {
			w.items = append(w.items, ownPair(pair))
			c.growReadAhead(sizeOfPair(pair))
		}
	}

	if !o.Reverse {
		return slices.Clone(upTo(w.items, o)), nil
	}
	last := slices.Clone(w.items)
	slices.Reverse(last)
	return upTo(last, o), nil
}

// upTo returns the first of some items, up to the bounds.
func upTo(items []kv.KeyValue, o kv.RangeOptions) []kv.KeyValue {
	bytes := 0
	for n := range items {
		bytes += len(items[n].Value)
		if n+1 == o.Limit || bytes >= o.Bytes {
			return items[:n+1]
		}
	}
	return items
}

// attached records that a ready item is written. It takes over the key.
func (c *cachedQueue) attached(key, value []byte) {
	if c == nil {
		return
	}
	w := &c.readAhead
	if !w.all && bytes.Compare(key, w.end) >= 0 {
		return
	}

	c.detached(key) // it may be there
	at, _ := w.find(key)
	pair := kv.KeyValue{Key: key, Value: bytes.Clone(value)}
	w.items = slices.Insert(w.items, at, pair)
	c.growReadAhead(sizeOfPair(pair))

	if len(w.items) > maxReadAhead || w.size > maxReadAheadBytes {
		half := len(w.items) / 2
		w.end, w.all = w.items[half].Key, false
		for _, pair := range w.items[half:] {
			c.growReadAhead(-sizeOfPair(pair))
		}
		w.items = slices.Delete(w.items, half, len(w.items))
	}
}

// detached records that a ready item is removed.
func (c *cachedQueue) detached(key []byte) {
	if c == nil {
		return
	}
	w := &c.readAhead
	at, found := w.find(key)
	if !found {
		return
	}

	c.growReadAhead(-sizeOfPair(w.items[at]))
	if at == 0 { // as pops do
		w.items[0] = kv.KeyValue{}
		if w.items = w.items[1:]; len(w.items) == 0 {
			w.items = nil // frees the array
		}
		return
	}
	w.items = slices.Delete(w.items, at, at+1)
}

// find returns where the item with a key is, or would be.
func (w *readAhead) find(key []byte) (at int, found bool) {
	if len(w.items) > 0 && bytes.Equal(w.items[0].Key, key) {
		return 0, true
	}
	return slices.BinarySearchFunc(w.items, key, func(p kv.KeyValue, key []byte) int {
		return bytes.Compare(p.Key, key)
	})
}

func (c *cachedQueue) growReadAhead(bytes int) {
	c.readAhead.size += bytes
	c.grow(bytes)
}

// ownPair copies an item that was read. In the store, one block of memory holds many small keys and
// values, and the one that stays longest would keep all of it.
func ownPair(p kv.KeyValue) kv.KeyValue {
	both := slices.Concat(p.Key, p.Value)
	key := len(p.Key)
	return kv.KeyValue{Key: both[:key:key], Value: both[key:len(both):len(both)]}
}

// sizeOfPair is about how many bytes an item of a readAhead takes.
func sizeOfPair(p kv.KeyValue) int { return 64 + len(p.Key) + len(p.Value) }
