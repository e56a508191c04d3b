package state

import (
	"bytes"
	"iter"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Cursor walks a queue from one of its ends. Peek returns the item where it is, and Drop moves it on.
// The cursor reads pages of as many items as the caller expects to need and nothing beyond, which
// keeps the transaction's conflict range narrow.
//
// Creating a cursor starts the read of its first page, so that the pages of many cursors
// take one round trip. The zero value is a finished walk.
type Cursor struct {
	r        kv.Reader
	l        *codec.Layout
	end      codec.End
	asked    kv.RangeOptions // for a page
	together int             // items of which the rest is read at once; 0 leaves that to the caller

	page  kv.Future[[]kv.KeyValue] // being read; nil if none is
	items []Stored                 // read, from where the cursor is
	begun int                      // of these: the rest of them is being read
	last  []byte                   // key of the last item read
	more  bool                     // there may be items after it

	passed, passedBytes int // items that were passed over, and the bytes of their values
}

// Walk starts a walk that will probably need want items, and reads up to about so many bytes of
// them at once.
func Walk(l *codec.Layout, r kv.Reader, end codec.End, want, bytes, together int) Cursor {
	c := Cursor{r: r, l: l, end: end, together: together}
	c.asked = kv.RangeOptions{Limit: want, Bytes: max(bytes, 1), Reverse: end == codec.Back}
	c.requestPage()
	return c
}

// requestPage starts to read the next page.
func (c *Cursor) requestPage() {
	rest := c.l.ItemRange()
	switch {
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
	c.more = c.asked.Full(pairs)
	if len(pairs) == 0 {
		return nil
	}

	c.last = pairs[len(pairs)-1].Key
	c.items, c.begun = make([]Stored, len(pairs)), 0
	for i, pair := range pairs {
		c.items[i] = ParseStored(c.l, pair)
	}
	return nil
}

// Peek returns the next item, nil after the last. It reads another page once all of this one was
// dropped.
func (c *Cursor) Peek() (*Stored, error) {
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

// Drop goes on behind the item that Peek returned, which stays valid.
func (c *Cursor) Drop() { c.items, c.begun = c.items[1:], max(c.begun-1, 0) }

// BeginReads starts to read the rest of the next items that have arrived, unless that has begun: of
// a few together, because it is not known how much there is, and of each no more than its part of a
// page.
func (c *Cursor) BeginReads() {
	if c.begun > 0 || c.together == 0 {
		return
	}

	c.begun = min(len(c.items), c.together)
	some, share := c.items[:c.begun], 0
	for i := range some {
		if codec.HasMeta(&some[i].Item.ID) {
			share++
		}
	}

	for i := range some {
		some[i].BeginRead(c.r, c.l, max(c.asked.Bytes/max(share, 1), 1))
	}
}

// BeginRead starts to read the rest of an item that Peek returned, unless that has begun.
func (c *Cursor) BeginRead(s *Stored) { s.BeginRead(c.r, c.l, c.asked.Bytes) }

// Ahead returns the ids of the items that have arrived and were not dropped.
func (c *Cursor) Ahead() iter.Seq[*codec.ID] {
	return func(yield func(*codec.ID) bool) {
		for i := range c.items {
			if !yield(&c.items[i].Item.ID) {
				return
			}
		}
	}
}

// Pass drops an item because it may not be served, and returns how many were passed over so far, and
// the bytes of their values. The walk reads more at a time then, and nothing else of those items.
func (c *Cursor) Pass() (items, bytes int) {
	c.passed, c.passedBytes = c.passed+1, c.passedBytes+len(c.items[0].Pair.Value)
	c.together = 0
	c.asked.Limit = max(c.asked.Limit, min(c.passed, maxPassedPage), minPassedPage)
	c.asked.Bytes = max(c.asked.Bytes, passedPageBytes)
	c.Drop()
	return c.passed, c.passedBytes
}

// minPassedPage and maxPassedPage bound the pages of a walk that passes over items.
const (
	minPassedPage = 64
	maxPassedPage = 1024

	passedPageBytes = 256 << 10
)

// Ends walks one queue from both ends. Each item can be taken from one end only.
type Ends struct {
	Walks [2]Cursor // by End
	taken [2][]byte // by End: key of the item taken last
}

// WalkEnds starts walks from the ends where items are wanted, as Walk does for one.
func WalkEnds(l *codec.Layout, r kv.Reader, want [2]int, bytes, together int) Ends {
	var e Ends
	for end, n := range want {
		if n > 0 {
			e.Walks[end] = Walk(l, r, codec.End(end), n, bytes*n/(want[codec.Front]+want[codec.Back]), together)
		}
	}
	return e
}

// Arrive waits for the pages being read at both ends.
func (e *Ends) Arrive() error {
	for end := range e.Walks {
		if err := e.Walks[end].Arrive(); err != nil {
			return err
		}
	}
	return nil
}

// Empty reports whether the pages at both ends have arrived and have no items.
func (e *Ends) Empty() bool {
	return len(e.Walks[codec.Front].items)+len(e.Walks[codec.Back].items) == 0
}

// Peek returns the next item from one end, nil after the last or where the other end has taken the
// rest.
func (e *Ends) Peek(end codec.End) (*Stored, error) {
	s, err := e.Walks[end].Peek()
	if err != nil || s == nil || e.Met(end, s.Pair.Key) {
		return nil, err
	}
	return s, nil
}

// Met reports whether the other end has taken the item with the key, or what comes before it from
// there.
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
