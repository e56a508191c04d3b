package state

import (
	"errors"
	"fmt"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Browser reads the items of a queue wherever they stand, ready and held ones merged by their
// places, a part at a time, and changes nothing. Between parts it only remembers how the keys lie, so
// a part may be read again.
type Browser struct {
	L     *codec.Layout
	State codec.ItemState // of the items to return; AnyState is all
	End   codec.End
	Now   time.Time

	limits [2]int // of the next pages of ("i") and ("h"); 0 before the first
	apart  int    // so many more groups have their ("m") keys read one by one
}

// Part is what is read in one transaction.
type Part struct {
	Items []Standing
	Place []byte // in the order of keys, up to where it goes: see codec.Layout.Place
	Ended bool   // there is nothing behind that
}

// Standing is an item where it stands.
type Standing struct {
	codec.Record
	Item    codec.Item // in full, unless Skipped or Err
	Skipped bool       // it is in another state, or has expired
	Bytes   int        // that were read of it, about
	Err     error      // ErrCorrupt if it cannot be read

	rest Stored
}

const (
	// browsePart is about how many bytes a part reads, and browsePage those of each of its pages.
	browsePart = 1 << 20
	browsePage = browsePart / 4

	firstBrowsePage = 128
	minBrowsePage   = 16
	maxBrowsePage   = 1024

	// browseSingly is how many items are read one by one at once. Each takes at least a value and an
	// ("m") key, of up to 90 KB.
	browseSingly = 16
	// apartFor is for how many groups items are read one by one, once much lies between them.
	apartFor = 16
)

// ReadPart reads the items behind a place, nil for the first ones: at most so many, and as many as a
// part has, but at least one if there is one. The error is one of the store.
func (b *Browser) ReadPart(r kv.Reader, after []byte, most int) (p Part, err error) {
	past := r.GetRange(b.L.KindRange(codec.KindHistory), kv.RangeOptions{Limit: 1})
	all, p, err := b.ReadPage(r, after, most)
	if err != nil {
		return Part{}, err
	}
	pasts, err := past.Get()
	if err != nil {
		return Part{}, err
	}

	size := 0
	for len(p.Items) < len(all) && size < browsePart {
		group, err := b.beginGroup(r, all[len(p.Items):], browsePart-size, len(pasts) > 0)
		if err != nil {
			return Part{}, err
		}
		read, err := b.finishSome(r, group, &size)
		if err != nil {
			return Part{}, err
		}
		p.Items = all[:len(p.Items)+read]
	}

	if n := len(p.Items); n < len(all) {
		p.Place, p.Ended = b.L.Place(b.L.ItemKey(&all[n-1].ID)), false
	}
	b.adapt(p.Items)
	return p, nil
}

// ReadIDs reads the first of some items, as many as a part has. Those that are not in the queue have
// ErrNotFound. The error is one of the store.
func (b *Browser) ReadIDs(r kv.Reader, ids []codec.ID) (items []Standing, err error) {
	for size := 0; len(items) < len(ids) && size < browsePart; {
		some := ids[len(items):]
		some = some[:min(len(some), browseSingly)]
		group, reads := make([]Standing, len(some)), make([]Lookup, len(some))
		for i := range some {
			reads[i] = LookUp(b.L, r, &some[i])
			reads[i].history = r.Get(b.L.HistoryKey(&some[i]))
			group[i].rest = BeginItem(b.L, r, &some[i], Beginning)
		}
		for i := range group {
			if err := group[i].arrive(b.L, &reads[i], &some[i]); err != nil {
				return nil, err
			}
		}

		read, err := b.finishSome(r, group, &size)
		if err != nil {
			return nil, err
		}
		items = append(items, group[:read]...)
	}
	return items, nil
}

// arrive sets the item to what was read with its id. The error is one of the store.
func (s *Standing) arrive(l *codec.Layout, read *Lookup, id *codec.ID) error {
	h, err := read.Anywhere(id)
	switch {
	case err != nil:
	case h == nil, l.Fifo && id.Priority != 0: // which would be another item
		err = fmt.Errorf("%w: %s", codec.ErrNotFound, id)
	default:
		s.Record = *h
		if h.State == codec.Ready {
			var past []byte
			if past, err = read.Past(); err == nil {
				err = s.setPast(past)
			}
		}
	}

	s.ID = *id
	if fatal := codec.UnlessCorrupt(err); fatal != nil && !errors.Is(err, codec.ErrNotFound) {
		return err
	}
	s.Err = err
	return nil
}

// setPast sets the history of a ready item, given as stored. The error is ErrCorrupt.
func (s *Standing) setPast(past []byte) (err error) {
	s.History, err = codec.ParseHistory(&s.ID, past)
	return err
}
