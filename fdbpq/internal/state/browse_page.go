package state

import (
	"bytes"
	"cmp"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// ReadPage reads the next items from ("i") and ("h"), as far as a page of both reaches, in one order, and
// at most so many: their own keys alone. The error is one of the store.
func (b *Browser) ReadPage(r kv.Reader, after []byte, most int) (items []Standing, p Part, err error) {
	var found [2][]kv.KeyValue
	var asked [2]kv.RangeOptions
	var pages [2]kv.Future[[]kv.KeyValue]
	for n, kind := range [...]string{codec.KindItem, codec.KindHeld} {
		if b.State != codec.AnyState && (b.State == codec.Ready) != (kind == codec.KindItem) {
			continue
		}
		keys := b.L.KindRange(kind)
		if after != nil {
			place := append(b.L.Key(kind, len(after)), after...)
			if b.End == codec.Back {
				keys.End = place
			} else {
				keys.Begin = kv.SingleKey(place).End
			}
		}
		limit := cmp.Or(b.limits[n], firstBrowsePage)
		asked[n] = kv.RangeOptions{Limit: min(limit, most+1), Bytes: browsePage, Reverse: b.End == codec.Back}
		pages[n] = r.GetRange(keys, asked[n])
	}

	p.Ended = true
	for n := range pages {
		if pages[n] == nil {
			continue
		}
		if found[n], err = pages[n].Get(); err != nil {
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

// before reports whether a key, or a place, comes before another one from the end of the walk.
func (b *Browser) before(key, other []byte) bool {
	order := bytes.Compare(key, other)
	return b.End == codec.Front && order < 0 || b.End == codec.Back && order > 0
}

// merge merges pages as far as the part goes, and ends the part there if that would be more than so
// many items.
func (b *Browser) merge(found [2][]kv.KeyValue, p *Part, most int) []Standing {
	items := make([]Standing, 0, min(len(found[0])+len(found[1]), most))
	for len(found[0])+len(found[1]) > 0 {
		n := 0
		if len(found[0]) == 0 || len(found[1]) > 0 && b.before(b.L.Place(found[1][0].Key), b.L.Place(found[0][0].Key)) {
			n = 1
		}
		pair := found[n][0]
		place := b.L.Place(pair.Key)
		if !p.Ended && b.before(p.Place, place) {
			break
		}
		if len(items) == most {
			p.Place, p.Ended = b.L.Place(b.L.ItemKey(&items[most-1].ID)), false
			break
		}
		found[n] = found[n][1:]

		if id, err := b.L.ParseItem(pair.Key); err == nil {
			items = append(items, b.standing(id, pair.Value, n == 1))
		}
	}
	return items
}

// standing returns an item of a page, of which the rest is still to be read.
func (b *Browser) standing(id codec.ID, value []byte, held bool) (s Standing) {
	s = Standing{Record: codec.Record{ID: id, State: codec.Ready, Value: value}, Bytes: len(value)}
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

// adapt has the next pages hold a few times as many items as this part had of theirs.
func (b *Browser) adapt(items []Standing) {
	var used [2]int
	for i := range items {
		if items[i].State == codec.Ready {
			used[0]++
		} else {
			used[1]++
		}
	}
	for n := range used {
		b.limits[n] = min(max(4*used[n], minBrowsePage), maxBrowsePage)
	}
}

// beginGroup starts to read what else belongs to the first of some items, and returns these. It
// reads about so many bytes, and histories only if there may be some.
func (b *Browser) beginGroup(r kv.Reader, items []Standing, most int, pasts bool) (group []Standing, err error) {
	group, err = b.beginMetas(r, items, most)
	if err != nil || !pasts {
		return group, err
	}

	var spans []kv.Range
	var ready []int // places in group
	for i := range group {
		if s := &group[i]; s.State == codec.Ready {
			spans, ready = append(spans, kv.SingleKey(b.L.HistoryKey(&s.ID))), append(ready, i)
		}
	}
	if len(ready) == 0 {
		return group, nil
	}

	found, _, err := b.readSpans(r, spans, kv.RangeOptions{Limit: 2 * len(spans), Bytes: browsePage})
	if err != nil {
		return nil, err
	}
	for n, own := range found {
		if s := &group[ready[n]]; len(own) > 0 {
			s.Err = s.setPast(own[0].Value)
		}
	}
	if len(found) < len(ready) { // there is at least one
		group = group[:ready[len(found)]]
	}
	return group, nil
}

// beginMetas starts to read the ("m") keys of the first of some items, and returns these: together,
// or one by one while much else lies between.
func (b *Browser) beginMetas(r kv.Reader, items []Standing, most int) (group []Standing, err error) {
	var spans []kv.Range
	var with []int // places in items
	for i := range items {
		if s := &items[i]; !s.Skipped && s.Err == nil {
			s.rest = Stored{Item: codec.Item{ID: s.ID, PushedAt: codec.PushedAt(&s.ID)}}
			if codec.HasMeta(&s.ID) {
				spans, with = append(spans, b.L.MetaRange(&s.ID)), append(with, i)
			}
		}
	}
	upTo := func(n int) []Standing { // the items with the first n spans
		if n < len(with) {
			return items[:with[n]]
		}
		return items
	}
	if len(spans) == 0 {
		return items, nil
	}

	n := browseSingly
	if b.apart > 0 {
		b.apart--
	} else {
		found, near, err := b.readSpans(r, spans, kv.RangeOptions{Limit: 2 * len(spans), Bytes: most})
		if err != nil {
			return nil, err
		}
		for n, own := range found {
			items[with[n]].rest.metas = kv.Ready(own, nil)
		}
		switch {
		case len(found) == len(spans) || near && len(found) > 0:
			return upTo(len(found)), nil
		case near: // a large one
			n = 1
		default:
			b.apart, n = apartFor, max(n, len(found))
		}
	}

	n = min(n, len(spans))
	for _, i := range with[:n] {
		items[i].rest.BeginRead(r, b.L, Beginning) // unless it was found
	}
	return upTo(n), nil
}

// readSpans reads keys in spans, which are in the order of the walk. It returns those in each of
// them, in their own order, for the first spans that the read has covered. near says that it met
// not much else.
func (b *Browser) readSpans(r kv.Reader, spans []kv.Range, o kv.RangeOptions) (found [][]kv.KeyValue, near bool, err error) {
	all := kv.Range{Begin: spans[0].Begin, End: spans[len(spans)-1].End}
	if o.Reverse = b.End == codec.Back; o.Reverse {
		all = kv.Range{Begin: spans[len(spans)-1].Begin, End: spans[0].End}
	}
	pairs, err := r.GetRange(all, o).Get()
	if err != nil {
		return nil, false, err
	}

	found, others := inSpans(pairs, spans, o)
	strangers := 0
	for _, n := range others {
		strangers += n
	}
	return found, 2*strangers <= len(pairs), nil
}

// finishSome reads the items of a group in full, one after the other, until the part is large enough,
// and returns how many. Size is that of the part so far. The error is one of the store.
func (b *Browser) finishSome(r kv.Reader, group []Standing, size *int) (n int, err error) {
	for n < len(group) && *size < browsePart {
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
func (b *Browser) finish(r kv.Reader, s *Standing) error {
	if !s.Skipped && s.Err == nil {
		s.Err = s.rest.Load(r, b.L, s.Value, true)
		if err := codec.UnlessCorrupt(s.Err); err != nil {
			return err
		}
		s.Bytes = s.rest.Read()
		s.Item = s.rest.Item
		s.Skipped = s.Err == nil && s.State != codec.Leased && codec.Expired(s.Item.Expires, b.Now)
	}
	if s.Skipped || s.Err != nil {
		s.Item = codec.Item{ID: s.ID, PushedAt: codec.PushedAt(&s.ID)}
	}
	s.rest, s.Value = Stored{}, nil // they hold values
	return nil
}
