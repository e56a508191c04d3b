package state

import (
	"bytes"
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Cursor walks a queue from one of its ends. The caller calls next for as long as it
// wants items, and may skip some. The cursor reads pages of as many items as the caller
// expects to need and nothing beyond, which keeps the transaction's conflict range narrow.
//
// Creating a cursor starts the read of its first page, so that the pages of many cursors
// take one round trip. The zero value is a finished walk.
type Cursor struct {
	R        kv.Reader
	L        *codec.Layout
	end      codec.End
	Asked    kv.RangeOptions // for a page
	together int             // items of which the rest is read at once; 0 leaves that to the caller

	page  kv.Future[[]kv.KeyValue] // being read; nil if none is
	Items []Stored                 // read, not returned yet
	begun int                      // of these: the rest of them is being read
	last  []byte                   // key of the last item read
	more  bool                     // there may be items after it
	heads bool                     // pages come with the beginnings of the ("m") keys
}

// Walk starts a walk that will probably need want items, and reads up to about so many bytes of them at once.
func Walk(l *codec.Layout, r kv.Reader, end codec.End, want, bytes, together int) Cursor {
	c := Cursor{R: r, L: l, end: end, together: together}
	c.Asked = kv.RangeOptions{Limit: want, Bytes: max(bytes, 1), Reverse: end == codec.Back}
	c.requestPage()
	return c
}

// requestPage starts to read the next page.
func (c *Cursor) requestPage() {
	rest := c.L.ItemRange()
	switch {
	case c.last == nil:
	case c.end == codec.Front:
		rest.Begin = kv.SingleKey(c.last).End
	case c.end == codec.Back:
		rest.End = c.last
	}
	c.page = c.R.GetRange(rest, c.Asked)
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
	c.more = c.Asked.Full(pairs)
	if len(pairs) == 0 {
		return nil
	}
	c.last = pairs[len(pairs)-1].Key
	c.Items, c.begun = make([]Stored, len(pairs)), 0
	for i, pair := range pairs {
		c.Items[i] = parseStored(c.L, pair)
	}
	if c.heads {
		return c.readHeads()
	}
	return nil
}

const (
	// expiredPage is the most items that a page has while a walk steps over those that have expired.
	expiredPage = 1024
	// expiredSingly is the most of these whose ("m") keys are read one by one: each may have two of 90 KB.
	expiredSingly = 64
)

// readHeads reads the ("m") keys of a page, because those of an item say when it expires: all at once, unless very
// much lies between them. Then it reads some of them one by one, and leaves the rest of the page to the next. It reads
// without conflict, because an item and these keys are written together. The error is one of the store.
func (c *Cursor) readHeads() error {
	r := c.R
	if tx, ok := r.(kv.Transaction); ok {
		r = tx.Snapshot()
	}
	var metas strip
	var items []*Stored // by span
	for i := range c.Items {
		if s := &c.Items[i]; s.Err == nil && codec.HasMeta(&s.Item.ID) {
			metas.add(c.L.MetaRange(&s.Item.ID))
			items = append(items, s)
		}
	}
	if len(items) == 0 {
		return nil
	}
	if c.end == codec.Back {
		slices.Reverse(metas.spans)
		slices.Reverse(items)
	}

	metas.begin(r, kv.RangeOptions{Limit: 2 * len(items), Bytes: expiredBytes})
	if err := metas.arrive(); err != nil {
		return err
	}
	rest := metas.found
	for n, s := range items[:metas.covered] {
		var parts []kv.KeyValue
		_, parts, rest = splitKeys(rest, metas.spans[n])
		s.head = kv.Ready(parts, nil)
	}

	singly := 0
	for i := range c.Items {
		if s := &c.Items[i]; s.head == nil && s.Err == nil && codec.HasMeta(&s.Item.ID) {
			if singly++; singly > expiredSingly {
				c.Items, c.last, c.more = c.Items[:i], c.Items[i-1].Pair.Key, true
				break
			}
			s.beginHead(r, c.L)
		}
	}
	return nil
}

// NoteExpired has the walk read more at a time, because those that expire together often lie together.
func (c *Cursor) noteExpired() {
	c.heads = true
	c.Asked.Limit = max(c.Asked.Limit, min(32*c.Asked.Limit, expiredPage))
}

// Next returns the next item, nil after the last. It reads another page once it has
// returned all of this one.
func (c *Cursor) Next() (*Stored, error) {
	if len(c.Items) == 0 && c.page == nil && c.more {
		c.requestPage()
	}
	if err := c.Arrive(); err != nil {
		return nil, err
	}
	if len(c.Items) == 0 {
		return nil, nil
	}
	c.beginReads()
	s := &c.Items[0]
	c.Items, c.begun = c.Items[1:], max(c.begun-1, 0)
	return s, nil
}

// BeginReads starts to read the rest of the next items, unless that has begun: of a few together, because it is not
// known how much there is, and of each no more than its part of a page.
func (c *Cursor) beginReads() {
	if c.begun > 0 || c.together == 0 || c.heads {
		return
	}
	c.begun = min(len(c.Items), c.together)
	some, share := c.Items[:c.begun], 0
	for i := range some {
		if codec.HasMeta(&some[i].Item.ID) {
			share++
		}
	}
	for i := range some {
		some[i].BeginRead(c.R, c.L, max(c.Asked.Bytes/max(share, 1), 1))
	}
}

// unread returns the item that next returned last, to be returned again.
func (c *Cursor) unread(s *Stored) {
	c.Items = append([]Stored{*s}, c.Items...)
	c.begun++
}

// Ends walks one queue from both ends. Each item can be taken from one end only.
type Ends struct {
	Walks [2]Cursor // by End
	taken [2][]byte // by End: key of the item taken last
}

// WalkEnds starts walks from the ends where items are wanted, as walk does for one.
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

// BeginReads starts to read the rest of the next items, once if they came from both ends.
func (e *Ends) BeginReads() {
	front, back := &e.Walks[codec.Front], &e.Walks[codec.Back]
	front.beginReads()
	shared := len(front.Items)
	for i := range back.Items {
		if shared == 0 || !bytes.Equal(back.Items[i].Pair.Key, front.Items[shared-1].Pair.Key) {
			break
		}
		shared--
		back.Items[i].Metas, back.Items[i].Asked = front.Items[shared].Metas, front.Items[shared].Asked
	}
	back.beginReads()
}

// Release frees what was read and not returned.
func (e *Ends) Release() {
	for end := range e.Walks {
		clear(e.Walks[end].Items)
	}
}

// Next returns the next item from one end, nil after the last or where the other end
// has taken the rest.
func (e *Ends) Next(end codec.End) (*Stored, error) {
	s, err := e.Walks[end].Next()
	if err != nil || s == nil {
		return nil, err
	}
	if other := e.taken[1-end]; other != nil {
		order := bytes.Compare(s.Pair.Key, other)
		if end == codec.Front && order >= 0 || end == codec.Back && order <= 0 {
			e.Walks[end] = Cursor{} // the two walks have met
			return nil, nil
		}
	}
	return s, nil
}

// NoteExpired records that an item which next returned has expired, and is removed.
func (e *Ends) NoteExpired(end codec.End, s *Stored) {
	e.Walks[end].noteExpired()
	e.NoteTaken(end, s)
}

// Unread has next return an item again.
func (e *Ends) Unread(end codec.End, s *Stored) { e.Walks[end].unread(s) }

// NoteTaken records that the caller took an item that next returned.
func (e *Ends) NoteTaken(end codec.End, s *Stored) { e.taken[end] = s.Pair.Key }
