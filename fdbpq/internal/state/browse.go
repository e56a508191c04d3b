package state

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects/trail"
)

// Browser reads the items of a queue in order, ready and held ones merged, a page at a time. It
// changes nothing.
type Browser struct {
	L     *codec.Layout
	State codec.ItemState // of the items to return; AnyState is all
	End   codec.End
	Now   time.Time
	Trail bool // of each item, read also the attempts
}

// Page is the result of one transaction.
type Page struct {
	Items []ListedItem
	Place []byte // how far the page goes, in the order of keys: see codec.Layout.Place
	Ended bool   // nothing comes after the page
}

// ListedItem is an item of a page.
type ListedItem struct {
	codec.Record
	Item    codec.Item // in full, unless Skipped or Err
	Skipped bool       // it is in another state, or has expired
	Bytes   int        // about how many were read of it
	Err     error      // ErrCorrupt if it cannot be read

	Attempts []trail.Attempt // of all lives, if asked for and there are some of this life

	rest     ItemRead
	attempts *AttemptsRead
}

const (
	// pageBytes is about how many bytes a page reads, and rangeBytes each of its ranges, which have
	// at most maxRange items.
	pageBytes  = 1 << 20
	rangeBytes = pageBytes / 4
	maxRange   = 1024

	// browseAtOnce is of how many items the rest is read at once. Each takes up to a value and an
	// ("m") key of 90 KB.
	browseAtOnce = 32
)

// ReadWhole reads up to most items in full after a place; nil is the beginning. A page ends when it
// is large enough, but has at least one item if there is one. The error is one of the store.
func (b *Browser) ReadWhole(r kv.Reader, after []byte, most int) (p Page, err error) {
	past := r.GetRange(b.L.KindRange(codec.KindHistory), kv.RangeOptions{Limit: 1})
	all, p, err := b.ReadPage(r, after, most)
	if err != nil {
		return Page{}, err
	}

	pasts, err := past.Get() // usually none, and then no item's history need be read
	if err != nil {
		return Page{}, err
	}

	// Read the rest of the items group by group, until the page is large enough.
	for size := 0; len(p.Items) < len(all) && size < pageBytes; {
		group := all[len(p.Items):]
		group = group[:min(len(group), browseAtOnce)]
		read, err := b.readGroup(r, group, len(pasts) > 0, &size)
		if err != nil {
			return Page{}, err
		}
		p.Items = all[:len(p.Items)+read]
	}

	if n := len(p.Items); n < len(all) { // too large for one page
		p.Place, p.Ended = b.L.Place(b.L.ItemKey(&all[n-1].ID)), false
	}
	return p, nil
}

// ReadIDs reads the first items of a list of ids, as many as a page holds. Each id is that of a
// job, or the place of its item. Items that are not in the queue have ErrNotFound. The error is one
// of the store.
func (b *Browser) ReadIDs(r kv.Reader, ids []codec.ID) (items []ListedItem, err error) {
	for size := 0; len(items) < len(ids) && size < pageBytes; {
		some := ids[len(items):]
		some = some[:min(len(some), browseAtOnce)]
		group := make([]ListedItem, len(some))
		for i, read := range b.seek(r, some) {
			if err := group[i].arrive(b.L, &read, &some[i]); err != nil {
				return nil, err
			}
		}

		read, err := b.readGroup(r, group, true, &size)
		if err != nil {
			return nil, err
		}
		items = append(items, group[:read]...)
	}

	return items, nil
}

// seek looks for some items by their ids.
func (b *Browser) seek(r kv.Reader, ids []codec.ID) []IDLookup {
	items := make([]IDLookup, len(ids))
	for i := range items {
		items[i].Begin(&ids[i], LookUp(b.L, r, &ids[i]))
	}
	for i := range items {
		items[i].BeginAlias(r, b.L)
	}
	for i := range items {
		if s := &items[i]; s.Follow() {
			s.Begin(&s.Place, LookUp(b.L, r, &s.Place))
		}
	}
	return items
}

// arrive waits for the keys of an item that was asked for by its id. The error is one of the store.
func (s *ListedItem) arrive(l *codec.Layout, read *IDLookup, id *codec.ID) error {
	h, err := read.Find()
	s.ID = *id
	switch {
	case err != nil:
	case h == nil, l.Fifo && id.Priority != 0: // the keys of a FIFO queue have no priority
		err = fmt.Errorf("%w: %s", codec.ErrNotFound, id)
	default:
		s.Record = *h
	}

	if fatal := codec.UnlessCorrupt(err); fatal != nil && !errors.Is(err, codec.ErrNotFound) {
		return err
	}

	s.Err = err
	return nil
}

// ReadPage reads the own keys of up to most items after a place, from a range of ("i") and a range
// of ("h"), as far as both reach. The error is one of the store.
func (b *Browser) ReadPage(
	r kv.Reader, after []byte, most int,
) (items []ListedItem, p Page, err error) {
	var asked [2]kv.RangeOptions
	var ranges [2]kv.Future[[]kv.KeyValue]
	back := b.End == codec.Back
	for n, kind := range [...]string{codec.KindItem, codec.KindHeld} {
		if b.State != codec.AnyState && (b.State == codec.Ready) != (kind == codec.KindItem) {
			continue
		}

		keys := b.L.KindRange(kind)
		if after != nil {
			if place := append(b.L.Key(kind, len(after)), after...); back {
				keys.End = place
			} else {
				keys.Begin = kv.SingleKey(place).End
			}
		}

		limit := min(maxRange, most+1)
		asked[n] = kv.RangeOptions{Limit: limit, Bytes: rangeBytes, Reverse: back}
		ranges[n] = r.GetRange(keys, asked[n])
	}

	// The page goes as far as the range that ends first.
	var found [2][]kv.KeyValue
	p.Ended = true
	for n := range ranges {
		if ranges[n] == nil {
			continue
		}

		if found[n], err = ranges[n].Get(); err != nil {
			return nil, p, err
		}

		if asked[n].Full(found[n]) {
			last := b.L.Place(found[n][len(found[n])-1].Key)
			if p.Ended || b.before(last, p.Place) {
				p.Place, p.Ended = last, false
			}
		}
	}

	return b.merge(found, &p, most), p, nil
}

// before reports whether a key, or a place, comes before another one, seen from the end of the
// walk.
func (b *Browser) before(key, other []byte) bool {
	order := bytes.Compare(key, other)
	return b.End == codec.Front && order < 0 || b.End == codec.Back && order > 0
}

// merge merges two ranges as far as the page goes. It ends the page after most items.
func (b *Browser) merge(found [2][]kv.KeyValue, p *Page, most int) []ListedItem {
	items := make([]ListedItem, 0, min(len(found[0])+len(found[1]), most))
	place := func(n int) []byte { return b.L.Place(found[n][0].Key) }
	for len(found[0])+len(found[1]) > 0 {
		n := 0
		if len(found[0]) == 0 || len(found[1]) > 0 && b.before(place(1), place(0)) {
			n = 1
		}
		if !p.Ended && b.before(p.Place, place(n)) {
			break
		}

		// There may be more in the ranges, so the page ends at the last item that fits.
		if len(items) == most {
			p.Place, p.Ended = b.L.Place(b.L.ItemKey(&items[most-1].ID)), false
			break
		}

		pair := found[n][0]
		found[n] = found[n][1:]
		if id, err := b.L.ParseItem(pair.Key); err == nil {
			items = append(items, b.listed(id, pair.Value, n == 1))
		}
	}

	return items
}

// listed returns an item of a range. Its rest is still to be read.
func (b *Browser) listed(id codec.ID, value []byte, held bool) (s ListedItem) {
	s.Record, s.Bytes = codec.Record{ID: id, State: codec.Ready, Value: value}, len(value)
	if !held {
		return s
	}

	h, err := codec.ParseRecord(&id, value)
	if err != nil {
		s.Record, s.Err = codec.Record{ID: id}, err
		return s
	}

	s.Record = *h
	s.Skipped = b.State != codec.AnyState && b.State != h.State
	return s
}

// readGroup starts to read what belongs to some items, and their histories if there may be any.
// Then it reads the items in full, one after the other, until the page is large enough. It returns
// how many, and adds their bytes to size. The error is one of the store.
func (b *Browser) readGroup(
	r kv.Reader, group []ListedItem, pasts bool, size *int,
) (n int, err error) {
	var histories [browseAtOnce]kv.Future[[]byte]
	for i := range group {
		s := &group[i]
		if s.Skipped || s.Err != nil {
			continue
		}

		s.rest = BeginItem(b.L, r, &s.ID, Beginning)
		if pasts && s.State == codec.Ready {
			histories[i] = r.Get(b.L.HistoryKey(&s.ID))
		}
	}

	for i, history := range histories {
		if history == nil {
			continue
		}

		past, err := history.Get()
		if err != nil {
			return 0, err
		}
		group[i].History, group[i].Err = codec.ParseHistory(&group[i].ID, past)
	}
	for i := range group {
		if s := &group[i]; b.Trail && !s.Skipped && s.Err == nil {
			s.attempts = BeginAttempts(b.L, r, &s.Record)
		}
	}

	for n < len(group) && *size < pageBytes {
		s := &group[n]
		if err := b.finish(r, s); err != nil {
			return n, err
		}
		*size += s.Bytes
		n++
	}
	return n, nil
}

// finish reads an item in full, unless it is skipped. The error is one of the store.
func (b *Browser) finish(r kv.Reader, s *ListedItem) error {
	if !s.Skipped && s.Err == nil {
		s.Err = s.rest.Load(r, b.L, s.Value, true)
		if err := codec.UnlessCorrupt(s.Err); err != nil {
			return err
		}

		var err error
		if s.Attempts, err = s.attempts.OfAllLives(r, &s.rest.Item.Message); err != nil {
			return err
		}
		s.Bytes = s.rest.Read() + len(s.Attempts)*trail.MaxReason
		s.Item = s.rest.Item
		s.Skipped = s.Err == nil && s.State != codec.Leased && codec.Expired(s.Item.Expires, b.Now)
	}

	if s.Skipped || s.Err != nil {
		s.Item = codec.Item{ID: s.ID, PushedAt: codec.PushedAt(&s.ID)}
	}

	s.rest, s.attempts, s.Value = ItemRead{}, nil, nil // free the values that they hold
	return nil
}
