package state

import (
	"bytes"
	"cmp"
	"iter"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Cursor walks a queue from one of its ends, page by page. A page has as many items as the caller
// expects to need and nothing beyond, which keeps the transaction's conflict range narrow. The
// cursor is in one of these states:
//
//	state     page  items  more  what Peek does
//	reading   set   none   -     waits for the page
//	at        nil   some   -     returns items[0]
//	between   nil   none   yes   requests the next page
//	finished  nil   none   no    returns nil
//
// Walk begins with reading, so that the first pages of many cursors take one round trip. Arrive
// moves on from there, Drop and Pass from one item to the next or, after the last one of the page,
// to between or finished. The zero value is finished.
type Cursor struct {
	r        kv.Reader
	l        *codec.Layout
	cache    *cachedQueue // nil if the pages are not known
	end      codec.End
	asked    kv.RangeOptions // for a page
	together int             // for how many items the rest is read at once; 0: the caller reads it

	page  kv.Future[[]kv.KeyValue]
	items []ItemRead // of the page, from where the cursor is
	begun int        // for how many of these BeginReads has begun to read the rest
	last  []byte     // key of the last item of the page
	more  bool       // there may be items after it

	passed, passedBytes int // items that were passed over, and the bytes of their values
}

// Walk starts a walk that will probably need want items. A page has up to want items and about the
// given bytes. The rest of an item, which is under its ("m") keys, is read for together items at
// once.
func Walk(l *codec.Layout, r kv.Reader, end codec.End, want, bytes, together int) Cursor {
	return walk(nil, l, r, end, want, bytes, together)
}

func walk(
	queue *cachedQueue, l *codec.Layout, r kv.Reader, end codec.End, want, bytes, together int,
) Cursor {
	c := Cursor{cache: queue, r: r, l: l, end: end, together: together}
	c.asked = kv.RangeOptions{Limit: want, Bytes: max(bytes, 1), Reverse: end == codec.Back}
	c.requestPage()
	return c
}

// requestPage starts to read the next page.
func (c *Cursor) requestPage() {
	rest := c.l.ItemRange()
	switch {
	case c.last == nil && c.cache.begins(c.end):
		c.page = kv.Ready(c.cache.page(c.l, c.r, c.asked))
		return
	case c.last == nil:
	case c.end == codec.Front:
		rest.Begin = kv.SingleKey(c.last).End
	case c.end == codec.Back:
		rest.End = c.last
	}
	c.page = c.r.GetRange(rest, c.asked)
}

// Arrive waits for the page being read.
func (c *Cursor) Arrive() error {
	if c.page == nil {
		return nil
	}

	pairs, err := c.page.Get()
	if err != nil {
		return err
	}

	c.page = nil

	// A page that is not full has reached the end of the queue.
	c.more = c.asked.Full(pairs)
	if len(pairs) == 0 {
		return nil
	}

	c.last = pairs[len(pairs)-1].Key
	c.items, c.begun = make([]ItemRead, len(pairs)), 0
	for i, pair := range pairs {
		c.items[i] = ParseOwn(c.l, pair)
	}
	return nil
}

// Peek returns the next item, nil after the last.
func (c *Cursor) Peek() (*ItemRead, error) {
	if len(c.items) == 0 && c.page == nil && c.more {
		c.requestPage()
	}

	if err := c.Arrive(); err != nil {
		return nil, err
	}

	if len(c.items) == 0 {
		return nil, nil
	}

	c.BeginReads()
	return &c.items[0], nil
}

// Drop moves on behind the item that Peek returned, which stays valid.
func (c *Cursor) Drop() { c.items, c.begun = c.items[1:], max(c.begun-1, 0) }

// BeginReads starts to read the rest of the next items of the page, unless that has begun. It reads
// only a few at a time, because their sizes are unknown. They share the bytes of a page.
func (c *Cursor) BeginReads() {
	if c.begun > 0 || c.together == 0 {
		return
	}

	c.begun = min(len(c.items), c.together)

	// Only items with ("m") keys have a rest, so only they share the page.
	some, sharers := c.items[:c.begun], 0
	for i := range some {
		if codec.HasMeta(&some[i].Item.ID) {
			sharers++
		}
	}

	for i := range some {
		some[i].BeginRead(c.r, c.l, max(c.asked.Bytes/max(sharers, 1), 1))
	}
}

// IDs returns the ids of the items of the page that were not dropped.
func (c *Cursor) IDs() iter.Seq[*codec.ID] {
	return func(yield func(*codec.ID) bool) {
		for i := range c.items {
			if !yield(&c.items[i].Item.ID) {
				return
			}
		}
	}
}

// Pass drops an item because it may not be served. It returns how many were passed over so far, and
// the bytes of their values.
func (c *Cursor) Pass() (items, bytes int) {
	c.passed, c.passedBytes = c.passed+1, c.passedBytes+len(c.items[0].Pair.Value)

	// More of the same are likely: larger pages, and nothing but the items' own keys.
	c.together = 0
	c.asked.Limit = max(c.asked.Limit, min(c.passed, maxPassedPage), minPassedPage)
	c.asked.Bytes = max(c.asked.Bytes, passedPageBytes)
	c.Drop()
	return c.passed, c.passedBytes
}

// Bounds of the pages of a walk that passes over items: items, and bytes.
const (
	minPassedPage   = 64
	maxPassedPage   = 1024
	passedPageBytes = 256 << 10
)

// Ends walks one queue from both ends. Each item can be taken from one end only: a walk stops at an
// item that the other walk has taken.
type Ends struct {
	Walks [2]Cursor // by End
	taken [2][]byte // by End: key of the item taken last; nil before the first
}

// WalkEnds starts a walk of the ledger's queue from each end where items are wanted: see Walk. What
// is known of the first items is not read.
func (g *Ledger) WalkEnds(r kv.Reader, want [2]int, bytes, together int) (e Ends) {
	for end, n := range want {
		if n > 0 {
			// The ends share the bytes.
			share := bytes * n / (want[codec.Front] + want[codec.Back])
			e.Walks[end] = walk(g.cache, g.L, r, codec.End(end), n, share, together)
		}
	}
	return e
}

// Arrive waits for the pages being read at both ends.
func (e *Ends) Arrive() error {
	return cmp.Or(e.Walks[codec.Front].Arrive(), e.Walks[codec.Back].Arrive())
}

// Empty reports whether neither end has an item in its page. Both pages must have arrived.
func (e *Ends) Empty() bool {
	return len(e.Walks[codec.Front].items)+len(e.Walks[codec.Back].items) == 0
}

// Peek returns the next item from one end, nil after the last or where the ends have met.
func (e *Ends) Peek(end codec.End) (*ItemRead, error) {
	s, err := e.Walks[end].Peek()
	if err != nil || s == nil || e.Met(end, s.Pair.Key) {
		return nil, err
	}
	return s, nil
}

// Met reports whether a walk from one end that comes to the key has reached the item that the other
// end took last.
func (e *Ends) Met(end codec.End, key []byte) bool {
	other := e.taken[1-end]
	if other == nil {
		return false
	}
	order := bytes.Compare(key, other)
	return end == codec.Front && order >= 0 || end == codec.Back && order <= 0
}

// NoteTaken records that the item with the key was taken at an end.
func (e *Ends) NoteTaken(end codec.End, key []byte) { e.taken[end] = key }
