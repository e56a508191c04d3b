package fdbpq

import (
	"bytes"
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// cursor walks a queue from one of its ends. The caller calls next for as long as it
// wants items, and may skip some. The cursor reads pages of as many items as the caller
// expects to need and nothing beyond, which keeps the transaction's conflict range narrow.
//
// Creating a cursor starts the read of its first page, so that the pages of many cursors
// take one round trip. The zero value is a finished walk.
type cursor struct {
	r        kv.Reader
	l        *layout
	end      End
	asked    kv.RangeOptions // for a page
	together int             // items of which the rest is read at once; 0 leaves that to the caller

	page  kv.Future[[]kv.KeyValue] // being read; nil if none is
	items []stored                 // read, not returned yet
	begun int                      // of these: the rest of them is being read
	last  []byte                   // key of the last item read
	more  bool                     // there may be items after it
	heads bool                     // pages come with the beginnings of the ("m") keys
}

// walk starts a walk that will probably need want items, and reads up to about so many bytes of them at once.
func (l *layout) walk(r kv.Reader, end End, want, bytes, together int) cursor {
	c := cursor{r: r, l: l, end: end, together: together}
	c.asked = kv.RangeOptions{Limit: want, Bytes: max(bytes, 1), Reverse: end == Back}
	c.requestPage()
	return c
}

// requestPage starts to read the next page.
func (c *cursor) requestPage() {
	rest := c.l.itemRange()
	switch {
	case c.last == nil:
	case c.end == Front:
		rest.Begin = kv.SingleKey(c.last).End
	case c.end == Back:
		rest.End = c.last
	}
	c.page = c.r.GetRange(rest, c.asked)
}

// arrive waits for the page being read.
func (c *cursor) arrive() error {
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
	c.items, c.begun = make([]stored, len(pairs)), 0
	for i, pair := range pairs {
		c.items[i] = c.l.parseStored(pair)
	}
	if c.heads {
		return c.readHeads()
	}
	return nil
}

const (
	// expiredPage is the most items that a page has while a walk steps over those that have expired.
	expiredPage = 1024
	// expiredSingly is the most of these whose ("m") keys are read one by one.
	expiredSingly = 256
)

// readHeads reads the ("m") keys of a page, because those of an item say when it expires: all at once, unless very
// much lies between them. Then it reads some of them one by one, and leaves the rest of the page to the next. It reads
// without conflict, because an item and these keys are written together. The error is one of the store.
func (c *cursor) readHeads() error {
	r := c.r
	if tx, ok := r.(kv.Transaction); ok {
		r = tx.Snapshot()
	}
	var metas strip
	var items []*stored // by span
	for i := range c.items {
		if s := &c.items[i]; s.err == nil && s.item.ID.hasMeta() {
			metas.add(c.l.metaRange(&s.item.ID))
			items = append(items, s)
		}
	}
	if len(items) == 0 {
		return nil
	}
	if c.end == Back {
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
		if s := &c.items[i]; s.head == nil && s.err == nil && s.item.ID.hasMeta() {
			if singly++; singly > expiredSingly {
				c.items, c.last, c.more = c.items[:i], c.items[i-1].pair.Key, true
				break
			}
			s.beginHead(r, c.l)
		}
	}
	return nil
}

// noteExpired has the walk read more at a time, because those that expire together often lie together.
func (c *cursor) noteExpired() {
	c.heads = true
	c.asked.Limit = max(c.asked.Limit, min(32*c.asked.Limit, expiredPage))
}

// next returns the next item, nil after the last. It reads another page once it has
// returned all of this one.
func (c *cursor) next() (*stored, error) {
	if len(c.items) == 0 && c.page == nil && c.more {
		c.requestPage()
	}
	if err := c.arrive(); err != nil {
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

// beginReads starts to read the rest of the next items, unless that has begun: of a few together, because it is not
// known how much there is, and of each no more than its part of a page.
func (c *cursor) beginReads() {
	if c.begun > 0 || c.together == 0 || c.heads {
		return
	}
	c.begun = min(len(c.items), c.together)
	some, share := c.items[:c.begun], 0
	for i := range some {
		if some[i].item.ID.hasMeta() {
			share++
		}
	}
	for i := range some {
		some[i].beginRead(c.r, c.l, max(c.asked.Bytes/max(share, 1), 1))
	}
}

// unread returns the item that next returned last, to be returned again.
func (c *cursor) unread(s *stored) {
	c.items = append([]stored{*s}, c.items...)
	c.begun++
}

// ends walks one queue from both ends. Each item can be taken from one end only.
type ends struct {
	walks [2]cursor // by End
	taken [2][]byte // by End: key of the item taken last
}

// walkEnds starts walks from the ends where items are wanted, as walk does for one.
func (l *layout) walkEnds(r kv.Reader, want [2]int, bytes, together int) ends {
	var e ends
	for end, n := range want {
		if n > 0 {
			e.walks[end] = l.walk(r, End(end), n, bytes*n/(want[Front]+want[Back]), together)
		}
	}
	return e
}

// arrive waits for the pages being read at both ends.
func (e *ends) arrive() error {
	for end := range e.walks {
		if err := e.walks[end].arrive(); err != nil {
			return err
		}
	}
	return nil
}

// beginReads starts to read the rest of the next items, once if they came from both ends.
func (e *ends) beginReads() {
	front, back := &e.walks[Front], &e.walks[Back]
	front.beginReads()
	shared := len(front.items)
	for i := range back.items {
		if shared == 0 || !bytes.Equal(back.items[i].pair.Key, front.items[shared-1].pair.Key) {
			break
		}
		shared--
		back.items[i].metas, back.items[i].asked = front.items[shared].metas, front.items[shared].asked
	}
	back.beginReads()
}

// release frees what was read and not returned.
func (e *ends) release() {
	for end := range e.walks {
		clear(e.walks[end].items)
	}
}

// next returns the next item from one end, nil after the last or where the other end
// has taken the rest.
func (e *ends) next(end End) (*stored, error) {
	s, err := e.walks[end].next()
	if err != nil || s == nil {
		return nil, err
	}
	if other := e.taken[1-end]; other != nil {
		order := bytes.Compare(s.pair.Key, other)
		if end == Front && order >= 0 || end == Back && order <= 0 {
			e.walks[end] = cursor{} // the two walks have met
			return nil, nil
		}
	}
	return s, nil
}

// noteExpired records that an item which next returned has expired, and is removed.
func (e *ends) noteExpired(end End, s *stored) {
	e.walks[end].noteExpired()
	e.noteTaken(end, s)
}

// unread has next return an item again.
func (e *ends) unread(end End, s *stored) { e.walks[end].unread(s) }

// noteTaken records that the caller took an item that next returned.
func (e *ends) noteTaken(end End, s *stored) { e.taken[end] = s.pair.Key }
