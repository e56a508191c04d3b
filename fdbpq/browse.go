package fdbpq

import (
	"cmp"
	"context"
	"errors"
	"math"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/internal/state"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Browse looks at the items of a queue, in the order in which they would be served if all of them
// were ready, or at its finished jobs, newest first.
type Browse struct {
	// State is the state of the items to visit; AnyState visits all, without finished jobs.
	State ItemState
	// End is the end to begin at. A FIFO queue has only the Front.
	End End
	// After is the id behind which to begin, whether that item is there or not; nil begins at the
	// end. Of a finished job it is the id of the job, and AfterTime is its Finished.Order.
	After     *ID
	AfterTime time.Time
	// MaxItems is how many items to look at, visited or not; 0 is no bound.
	MaxItems int
	// MaxBytes is about how many bytes of items to look at; 0 is no bound.
	MaxBytes int
	// Trail asks for the attempts of each item: see Browsed.Attempts.
	Trail bool
}

// BrowseEnd is where a Browse has ended.
type BrowseEnd struct {
	// Last is the item that was looked at last: another Browse can go on After it. If there was
	// none, it is Browse.After, or zero. Of a finished job it is the id of the job, and LastTime is
	// its Finished.Order.
	Last     ID
	LastTime time.Time
	// Scanned is how many items were looked at.
	Scanned int64
	// Bytes is how many bytes they have, as Browse.MaxBytes counts them.
	Bytes int
	// More says that there may be items behind Last.
	More bool
}

// Walk calls visit for items until it returns false, the bounds are reached, or there are no more.
// An item for which visit returns false counts as not looked at. Items that have expired by now,
// and are not leased, are looked at but not visited.
//
// Walk reads without conflict, in short transactions of about a megabyte, or of one larger item,
// and calls visit after each. It sees no single state of the queue: an item that is moved, or that
// is pushed before the place where the walk is, may be missed. An item that only changes its state
// is not. Walk brings back no due items, and passes over keys that no queue writes. Finished jobs
// that are not kept any longer are looked at but not visited, whether they are removed yet or not.
//
// Errors: ErrOp, errors of the store, and the context's error.
func (b *Browse) Walk(
	ctx context.Context, db kv.Database, q Target, now time.Time, visit func(*Browsed) bool,
) (BrowseEnd, error) {
	l := q.Layout()
	like := Op{Kind: OpRank, State: b.State, End: b.End} // has the same bounds
	if err := like.checkManaging(l); err != nil {
		return BrowseEnd{}, err
	}

	if b.State == Done {
		return b.walkFinished(ctx, db, l, now, visit)
	}

	browser := state.Browser{L: l, State: b.State, End: b.End, Now: now, Trail: b.Trail}
	end, place := BrowseEnd{More: true}, []byte(nil)
	if b.After != nil {
		end.Last, place = *b.After, l.Place(l.ItemKey(b.After))
	}
	mostItems, mostBytes := int64(cmp.Or(b.MaxItems, math.MaxInt)), cmp.Or(b.MaxBytes, math.MaxInt)
	for end.More && end.Scanned < mostItems && end.Bytes < mostBytes {
		page, err := kv.ReadTransact(ctx, db, func(r kv.Reader) (state.Page, error) {
			return browser.ReadWhole(r, place, int(min(mostItems-end.Scanned, math.MaxInt32)))
		})
		if err != nil {
			return end, err
		}

		for i := range page.Items {
			s := &page.Items[i]
			if !s.Skipped && !visit(browsed(s)) {
				return end, nil
			}
			end.Last = s.ID
			end.Scanned++
			if end.Bytes += s.Bytes; end.Bytes >= mostBytes {
				end.More = i < len(page.Items)-1 || !page.Ended
				return end, nil
			}
		}
		place, end.More = page.Place, !page.Ended
	}
	return end, nil
}

// walkFinished is Walk for finished jobs.
func (b *Browse) walkFinished(
	ctx context.Context, db kv.Database, l *codec.Layout, now time.Time, visit func(*Browsed) bool,
) (BrowseEnd, error) {
	end, after := BrowseEnd{More: true}, (*codec.FinishedEntry)(nil)
	if b.After != nil {
		end.Last, end.LastTime = *b.After, b.AfterTime
		after = &codec.FinishedEntry{Order: b.AfterTime, Job: *b.After}
	}

	mostItems, mostBytes := int64(cmp.Or(b.MaxItems, math.MaxInt)), cmp.Or(b.MaxBytes, math.MaxInt)
	for end.More && end.Scanned < mostItems && end.Bytes < mostBytes {
		most := int(min(mostItems-end.Scanned, math.MaxInt32))
		more := true // behind the page
		read := func(r kv.Reader) (jobs []state.FinishedRead, err error) {
			jobs, more, err = state.ReadFinishedPage(l, r, now, after, most)
			return jobs, err
		}
		page, err := kv.ReadTransact(ctx, db, read)
		if err != nil {
			return end, err
		}

		for i := range page {
			f := &page[i]
			if !f.Over && !visit(browsedFinished(f)) {
				return end, nil
			}
			end.Last, end.LastTime, after = f.Job, f.Order, &f.FinishedEntry
			end.Scanned++
			if end.Bytes += f.Bytes; end.Bytes >= mostBytes {
				end.More = more || i < len(page)-1
				return end, nil
			}
		}
		end.More = more
	}
	return end, nil
}

// browsedFinished returns a finished job as it is visited.
func browsedFinished(f *state.FinishedRead) *Browsed {
	if f.Err != nil {
		return &Browsed{Item: Item{ID: f.Job}, State: Done, Err: f.Err}
	}
	return &Browsed{
		Item: f.Record.Item, State: Done, LeasedSince: f.Record.Since, Holder: f.Record.Holder,
		Deliveries: f.Record.Deliveries, Finished: f.Record,
	}
}

// browsed returns an item as it is visited.
func browsed(s *state.ListedItem) *Browsed {
	b := &Browsed{Item: s.Item, State: s.State, Deliveries: s.Deliveries}
	b.Reason, b.Err, b.attempts = s.Reason, s.Err, s.Attempts
	if !s.Due.IsZero() {
		b.Due = codec.Micros(s.Due)
	}
	if b.State == Leased {
		b.Holder, b.LeasedSince = s.Holder, codec.Micros(s.LeasedSince())
		if s.Progress != "" {
			b.Progress = []byte(s.Progress)
		}
	}
	return b
}

// ReadItems calls visit for each of the ids, in their order, until it returns false. An id is that
// of a job, or the place of its item: Browsed.ID is the place, Browsed.Job the job. A job that is
// not in the queue may be a finished one. Browsed.Err is ErrNotFound if it is neither, or has
// expired by now and is not leased. ReadItems reads as Browse.Walk does with Browse.Trail.
//
// Errors of the store, and the context's error.
func ReadItems(
	ctx context.Context, db kv.Database, q Target, ids []ID, now time.Time,
	visit func(i int, item *Browsed) bool,
) error {
	browser := state.Browser{L: q.Layout(), Now: now, Trail: true}
	for done := 0; done < len(ids); {
		var finished []*Browsed // by place in the page; nil for others
		page, err := kv.ReadTransact(ctx, db, func(r kv.Reader) ([]state.ListedItem, error) {
			page, err := browser.ReadIDs(r, ids[done:])
			if err == nil {
				finished, err = readFinished(r, q.Layout(), ids[done:], page, now)
			}
			return page[:len(finished)], err
		})
		if err != nil {
			return err
		}

		for i := range page {
			item := browsed(&page[i])
			if page[i].Skipped {
				item = &Browsed{Item: Item{ID: ids[done]}, Err: notFound(&ids[done])}
			}
			if finished[i] != nil {
				item = finished[i]
			}
			if !visit(done, item) {
				return nil
			}
			done++
		}
	}
	return nil
}

// readFinished looks among the finished jobs for the ids of a page that are not in the queue, and
// returns nil for all others. It ends, as a page does, when it has read enough of them. The error
// is one of the store.
func readFinished(
	r kv.Reader, l *codec.Layout, ids []ID, page []state.ListedItem, now time.Time,
) (found []*Browsed, err error) {
	for size := 0; len(found) < len(page) && size < finishedBytes; {
		from := len(found)
		reads := make([]*state.FinishedLookup, min(len(page)-from, finishedAtOnce))
		for i := range reads {
			id := &ids[from+i]
			if errors.Is(page[from+i].Err, ErrNotFound) && !(l.Fifo && id.Priority != 0) {
				reads[i] = state.BeginFinished(l, r, id, state.Beginning)
			}
		}

		for i := 0; i < len(reads) && size < finishedBytes; i++ {
			job, err := loadFinished(r, reads[i], &ids[from+i], now, &size)
			if err != nil {
				return nil, err
			}
			found = append(found, job)
		}
	}
	return found, nil
}

const (
	// finishedBytes is about how many bytes of finished jobs one transaction of ReadItems reads,
	// and finishedAtOnce how many of them it begins to read at once.
	finishedBytes  = 1 << 20
	finishedAtOnce = 32
)

// loadFinished returns a finished job that is being read, nil if there is none, and adds its bytes
// to size. The error is one of the store.
func loadFinished(
	r kv.Reader, read *state.FinishedLookup, id *ID, now time.Time, size *int,
) (*Browsed, error) {
	if read == nil {
		return nil, nil
	}

	f, err := read.Load(r, state.NoBound)
	switch {
	case codec.UnlessCorrupt(err) != nil:
		return nil, err
	case err != nil:
		return &Browsed{Item: Item{ID: *id}, State: Done, Err: err}, nil
	case f == nil:
		return nil, nil
	}

	*size += f.Record.Message.Size() + len(f.Record.Result)
	if f.OverBy(now) {
		return nil, nil
	}
	return browsedFinished(f), nil
}
