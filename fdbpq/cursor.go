package fdbpq

import (
	"bytes"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// cursor walks over the items of a queue from one of its ends, as far as the
// caller goes on calling next: it may pass over items that it does not want. It
// reads pages of as many items as are wanted, and looks at no more of the queue
// than these, which keeps the range that the transaction conflicts with narrow.
//
// The first page is begun with the cursor, so that those of many cursors are read in
// one round trip. The zero value is a walk that is over.
type cursor struct {
	r    kv.Reader
	l    *layout
	end  End
	want int // items of a page

	page  kv.Future[[]kv.KeyValue] // asked for, not here yet
	items []stored                 // here, not passed yet
	last  []byte                   // key of the last that came
	more  bool                     // there may be items behind it
}

// walk begins a walk that will probably want that many items.
func (l *layout) walk(r kv.Reader, end End, want int) cursor {
	c := cursor{r: r, l: l, end: end, want: want}
	c.ask()
	return c
}

// ask begins to read the next page.
func (c *cursor) ask() {
	rest := c.l.itemRange()
	switch {
	case c.last == nil:
	case c.end == Front:
		rest.Begin = kv.SingleKey(c.last).End
	case c.end == Back:
		rest.End = c.last
	}
	c.page = c.r.GetRange(rest, kv.RangeOptions{Limit: c.want, Reverse: c.end == Back})
}

// arrive waits for the page that was asked for.
func (c *cursor) arrive() error {
	if c.page == nil {
		return nil
	}
	pairs, err := c.page.Get()
	if err != nil {
		return err
	}
	c.page = nil
	c.more = len(pairs) == c.want
	if len(pairs) == 0 {
		return nil
	}
	c.last = pairs[len(pairs)-1].Key
	c.items = make([]stored, len(pairs))
	for i, pair := range pairs {
		c.items[i] = c.l.stored(pair)
	}
	return nil
}

// next passes over an item and returns it; nil means that there are no more. It
// reads another page if the items that are here are used up.
func (c *cursor) next() (*stored, error) {
	if len(c.items) == 0 && c.page == nil && c.more {
		c.ask()
	}
	if err := c.arrive(); err != nil || len(c.items) == 0 {
		return nil, err
	}
	s := &c.items[0]
	c.items = c.items[1:]
	return s, nil
}

// ends is walks over one queue from both ends, of which at most one may take an
// item.
type ends struct {
	walks [2]cursor // by End
	taken [2][]byte // the key of the item that each took last
}

// walkEnds begins walks from those ends where items are wanted.
func (l *layout) walkEnds(r kv.Reader, want [2]int) ends {
	var e ends
	for end, n := range want {
		if n > 0 {
			e.walks[end] = l.walk(r, End(end), n)
		}
	}
	return e
}

// arrive waits for what was asked for at both ends.
func (e *ends) arrive() error {
	for end := range e.walks {
		if err := e.walks[end].arrive(); err != nil {
			return err
		}
	}
	return nil
}

// readParts begins to read the rest of the items that are here; of those that are
// here from both ends, once.
func (e *ends) readParts() {
	front, back := &e.walks[Front], &e.walks[Back]
	for i := range front.items {
		front.items[i].readParts(front.r, front.l)
	}
	for i := range back.items {
		s := &back.items[i]
		if n := len(front.items); n > 0 && bytes.Compare(s.pair.Key, front.items[n-1].pair.Key) <= 0 {
			break // the front has this one and all behind it
		}
		s.readParts(back.r, back.l)
	}
}

// next returns the next item from one end, nil if there are no more or the other
// end took it.
func (e *ends) next(end End) (*stored, error) {
	s, err := e.walks[end].next()
	if err != nil || s == nil {
		return nil, err
	}
	if other := e.taken[1-end]; other != nil {
		order := bytes.Compare(s.pair.Key, other)
		if end == Front && order >= 0 || end == Back && order <= 0 {
			e.walks[end] = cursor{} // the walks have met
			return nil, nil
		}
	}
	return s, nil
}

// take notes that an item that next returned is taken.
func (e *ends) take(end End, s *stored) { e.taken[end] = s.pair.Key }
