package state

import (
	"bytes"
	"iter"
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Cursor walks a queue from one of its ends. The caller calls Next for as long as it
// wants items, and may skip some. The cursor reads pages of as many items as the caller
// expects to need and nothing beyond, which keeps the transaction's conflict range narrow.
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
	items []Stored                 // read, not returned yet
	begun int                      // of these: the rest of them is being read
	last  []byte                   // key of the last item read
	more  bool                     // there may be items after it
	heads bool                     // pages come with the beginnings of the ("m") keys

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

	if c.heads {
		return c.readHeads()
	}
	return nil
}

const (
	// expiredPage is the most items that a page has while a walk steps over those that have
	// expired.
	expiredPage = 1024
	// expiredSingly is the most of these whose ("m") keys are read one by one: each may have two of
	// 90 KB.
	expiredSingly = 64
)

// readHeads reads the ("m") keys of a page, because those of an item say when it expires: all at
// once, unless very much lies between them. Then it reads some of them one by one, and leaves the
// rest of the page to the next. It reads without conflict, because an item and these keys are
// written together. The error is one of the store.
func (c *Cursor) readHeads() error {
	r := c.r
	if tx, ok := r.(kv.Transaction); ok {
		r = tx.Snapshot()
	}
	var metas strip
	var items []*Stored // by span
	for i := range c.items {
		if s := &c.items[i]; s.Err == nil && codec.HasMeta(&s.Item.ID) {
			metas.add(c.l.MetaRange(&s.Item.ID))
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
	for i := range c.items {
		if s := &c.items[i]; s.head == nil && s.Err == nil && codec.HasMeta(&s.Item.ID) {
			if singly++; singly > expiredSingly {
				c.items, c.last, c.more = c.items[:i], c.items[i-1].Pair.Key, true
				break
			}
			s.beginHead(r, c.l)
		}
	}
	return nil
}

// noteExpired has the walk read more at a time, because those that expire together often lie
// together.
func (c *Cursor) noteExpired() {
	c.heads = true
	c.asked.Limit = max(c.asked.Limit, min(32*c.asked.Limit, expiredPage))
}

// Next returns the next item, nil after the last. It reads another page once it has
// returned all of this one.
func (c *Cursor) Next() (*Stored, error) {
	if len(c.items) == 0 && c.page == nil && c.more {
		c.requestPage()
	}

	if err := c.Arrive(); err != nil {
		return nil, err
	}
	if len(c.items) == 0 {
		return nil, nil
	}

	c.beginReads()
	s := &c.items[0]
	c.items, c.begun = c.items[1:], max(c.begun-1, 0)
	return s, nil
}

// beginReads starts to read the rest of the next items, unless that has begun: of a few together,
// because it is not known how much there is, and of each no more than its part of a page.
func (c *Cursor) beginReads() {
	if c.begun > 0 || c.together == 0 || c.heads {
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

// BeginRead starts to read the rest of an item that Next returned, unless that has begun.
func (c *Cursor) BeginRead(s *Stored) { s.BeginRead(c.r, c.l, c.asked.Bytes) }

// Whole returns an item that Next returned, as Stored.whole does.
func (c *Cursor) Whole(s *Stored, returned *ItemRoom) (codec.Item, error) {
	return s.whole(c.r, c.l, returned)
}

// unread returns the item that Next returned last, to be returned again.
func (c *Cursor) unread(s *Stored) {
	c.items = append([]Stored{*s}, c.items...)
	c.begun++
}

// Ends walks one queue from both ends. Each item can be taken from one end only.
type Ends struct {
	walks [2]Cursor // by End
	taken [2][]byte // by End: key of the item taken last
}

// WalkEnds starts walks from the ends where items are wanted, as Walk does for one.
func WalkEnds(l *codec.Layout, r kv.Reader, want [2]int, bytes, together int) Ends {
	var e Ends
	for end, n := range want {
		if n > 0 {
			e.walks[end] = Walk(l, r, codec.End(end), n, bytes*n/(want[codec.Front]+want[codec.Back]), together)
		}
	}
	return e
}

// Arrive waits for the pages being read at both ends.
func (e *Ends) Arrive() error {
	for end := range e.walks {
		if err := e.walks[end].Arrive(); err != nil {
			return err
		}
	}
	return nil
}

// BeginReads starts to read the rest of the next items, once if they came from both ends.
func (e *Ends) BeginReads() {
	front, back := &e.walks[codec.Front], &e.walks[codec.Back]
	front.beginReads()

	// Where the walks meet, the back has the items of the front, the last one first.
	shared := len(front.items)
	for i := range back.items {
		if shared == 0 || !bytes.Equal(back.items[i].Pair.Key, front.items[shared-1].Pair.Key) {
			break
		}
		shared--
		back.items[i].metas, back.items[i].asked = front.items[shared].metas, front.items[shared].asked
	}

	back.beginReads()
}

// Empty reports whether the pages at both ends have arrived and have no items.
func (e *Ends) Empty() bool {
	return len(e.walks[codec.Front].items)+len(e.walks[codec.Back].items) == 0
}

// Release frees what was read and not returned.
func (e *Ends) Release() {
	for end := range e.walks {
		clear(e.walks[end].items)
	}
}

// Next returns the next item from one end, nil after the last or where the other end
// has taken the rest.
func (e *Ends) Next(end codec.End) (*Stored, error) {
	s, err := e.walks[end].Next()
	if err != nil || s == nil {
		return nil, err
	}
	if e.Met(end, s.Pair.Key) {
		e.walks[end] = Cursor{}
		return nil, nil
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

// Ahead returns the ids of the items that were read and that Next returns after the present one.
func (e *Ends) Ahead(end codec.End) iter.Seq[*codec.ID] {
	return func(yield func(*codec.ID) bool) {
		items := e.walks[end].items
		for i := range items {
			if !yield(&items[i].Item.ID) {
				return
			}
		}
	}
}

// Pass records that an item that Next returned is passed over, and returns how many were so far, and
// the bytes of their values. The walk reads more at a time then, and nothing else of those items.
func (e *Ends) Pass(end codec.End, s *Stored) (items, bytes int) {
	c := &e.walks[end]
	c.passed, c.passedBytes = c.passed+1, c.passedBytes+len(s.Pair.Value)
	c.together = 0
	c.asked.Limit = max(c.asked.Limit, min(c.passed, maxPassedPage), minPassedPage)
	c.asked.Bytes = max(c.asked.Bytes, passedPageBytes)
	return c.passed, c.passedBytes
}

// minPassedPage and maxPassedPage bound the pages of a walk that passes over items.
const (
	minPassedPage = 64
	maxPassedPage = 1024

	passedPageBytes = 256 << 10
)

// NoteExpired records that an item that Next returned has expired, and is removed.
func (e *Ends) NoteExpired(end codec.End, s *Stored) {
	e.walks[end].noteExpired()
	e.NoteTaken(end, s)
}

// Unread has Next return an item again.
func (e *Ends) Unread(end codec.End, s *Stored) { e.walks[end].unread(s) }

// NoteTaken records that the caller took an item that Next returned.
func (e *Ends) NoteTaken(end codec.End, s *Stored) { e.taken[end] = s.Pair.Key }
