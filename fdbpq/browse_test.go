package fdbpq_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// walk walks a queue to its end in one call, and returns the items.
func (f *fixture) walk(
	b fdbpq.Browse, q fdbpq.Target, now time.Time,
) (items []fdbpq.Browsed, end fdbpq.BrowseEnd) {
	f.Helper()
	bytes := 0

	end, err := b.Walk(f.ctx, f.db, q, now, func(item *fdbpq.Browsed) bool {
		// What else is read has no size of its own.
		items, bytes = append(items, *item), bytes+len(item.Value)
		return true
	})
	if err != nil {
		f.Fatal(err)
	}

	if end.Bytes < bytes {
		f.Errorf("%d bytes were looked at: want at least %d", end.Bytes, bytes)
	}

	end.Bytes = 0 // the rest depends on the encoding
	return items, end
}

// idsOf returns the ids of items.
func idsOf(items []fdbpq.Browsed) (ids []fdbpq.ID) {
	for _, item := range items {
		ids = append(ids, item.ID)
	}
	return ids
}

// A walk returns the items of a long queue in order and in full, from either end, in any state, in
// pages of any size.
func TestBrowse(t *testing.T) {
	onEngines(t, func(f *fixture) {
		random, _ := newRandom(f.T)
		r := newModelRun(f, random, true, map[string]int{})
		q := r.homes[0]

		for len(q.items) < f.steps(harness.Times(200, 1200)) {
			pushes := many(20, func(int) fdbpq.Op { return r.push(q) })
			leases := slices.Repeat([]fdbpq.Op{{Kind: fdbpq.OpLease, Lease: time.Hour}}, 4)

			for _, ops := range [][]fdbpq.Op{pushes, append(leases, r.settlements(q)...)} {
				r.applyBy(r.main, []modelPart{{q, r.on(q, ops...)}})
				r.findAllArrived()
			}
		}

		for state := fdbpq.AnyState; state <= fdbpq.Leased; state++ {
			for _, end := range []fdbpq.End{fdbpq.Front, fdbpq.Back} {
				for _, b := range []fdbpq.Browse{
					{}, {MaxItems: 1 + random.IntN(300)}, {MaxBytes: 1 + random.IntN(3_000_000)},
				} {
					b.State, b.End = state, end
					r.walk(q, b, 10_000)
				}
			}
		}
	})
}

// Neither an item that cannot be read nor a foreign key hides other items.
func TestBrowseDamaged(t *testing.T) {
	onEngines(t, func(f *fixture) {
		f.corrupt = true
		q, now := f.queue("jobs"), time.Now()
		var ids []fdbpq.ID

		for i := range 6 {
			push := opPush(q, int64(i), fmt.Sprint(i))
			push.Message.Headers = map[string][]string{"A": {"b"}}

			if i == 2 || i == 3 {
				push.Delay = time.Hour
			}

			ids = append(ids, f.applyAt(now, push)[0].Item.ID)
		}

		// Headers of item 1 are gone and those of item 4 bad, so is the record of item 3, which is
		// delayed, and the history of item 5. Two keys are of no item.
		write(f, func(tx kv.Transaction) {
			metas := must(tx.GetRange(everythingIn(f, "jobs", "m"), kv.RangeOptions{}).Get())
			tx.Clear(metas[1].Key)
			tx.Set(metas[4].Key, []byte("no headers"))
			tx.Set(fdbpq.HeldKey(q, &ids[3]), []byte("\x03no"))
			tx.Set(tuple.Tuple{f.priority, "jobs", "i", int64(0), "no item"}.Pack(), []byte("?"))
			tx.Set(tuple.Tuple{f.priority, "jobs", "i", int64(9)}.Pack(), []byte("?"))
			tx.Set(tuple.Tuple{
				f.priority, "jobs", "a", int64(5), ids[5].Count, ids[5].Random[:],
			}.Pack(), []byte("?"))
		})

		summary := func(items []fdbpq.Browsed) (list []string) {
			for _, item := range items {
				switch {
				case item.Err == nil:
					list = append(list, string(item.Value))
				case errors.Is(item.Err, fdbpq.ErrCorrupt) && item.Value == nil:
					list = append(list, fmt.Sprint(slices.Index(ids, item.ID), " is damaged"))
				default:
					list = append(list, fmt.Sprint(item.Err))
				}
			}
			return list
		}

		want := []string{"0", "1 is damaged", "2", "3 is damaged", "4 is damaged", "5 is damaged"}
		for _, end := range []fdbpq.End{fdbpq.Front, fdbpq.Back} {
			for n := range 7 { // 0 is all at once
				var all []fdbpq.Browsed
				b := fdbpq.Browse{End: end, MaxItems: n}

				for more := true; more; {
					items, last := f.walk(b, q, now)
					all, b.After, more = append(all, items...), &last.Last, last.More
				}
				wantList(f.T, fmt.Sprint("items from ", end, " by ", n), summary(all), want...)
			}
			slices.Reverse(want)
		}

		var all []fdbpq.Browsed
		wantError(f.T,
			fdbpq.ReadItems(f.ctx, f.db, q, ids, now, func(_ int, item *fdbpq.Browsed) bool {
				all = append(all, *item)
				return true
			}), nil)
		wantList(f.T, "items by their ids", summary(all), want...)
	})
}

// Histories that removed items left behind do not show up in a walk.
func TestBrowseAmongOldHistories(t *testing.T) {
	f := onMem(t)
	f.corrupt = true
	q, now := f.queue("jobs"), time.Now()
	var want []string // ids with deliveries: every other nak is uncounted

	for i := range 20 {
		want = append(want, fmt.Sprint(f.push(q, 1, "v"), i%2))
	}

	var ops []fdbpq.Op
	leases := slices.Repeat([]fdbpq.Op{{Kind: fdbpq.OpLease, Queue: q}}, 20)
	for i, r := range f.applyAt(now, leases...) {
		ops = append(ops,
			fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: r.Lease.Token, Uncounted: i%2 == 0})
	}

	f.applyAt(now, ops...)
	write(f, func(tx kv.Transaction) {
		histories := tx.GetRange(everythingIn(f, "jobs", "a"), kv.RangeOptions{})
		for _, pair := range must(histories.Get()) {
			for n := range 30 {
				key := slices.Clone(pair.Key)
				key[len(key)-2] ^= byte(1 + n) // of the random part
				tx.Set(key, pair.Value)
			}
		}
	})

	for _, end := range []fdbpq.End{fdbpq.Front, fdbpq.Back} {
		items, _ := f.walk(fdbpq.Browse{End: end}, q, now)
		var got []string

		for _, item := range items {
			got = append(got, fmt.Sprint(item.ID, item.Deliveries))
		}
		wantList(t, "items and deliveries", got, want...)

		slices.Reverse(want)
	}
}

// A walk refuses states and ends that the queue does not have, ends with its context, and does not
// take an id with a priority for an item of a FIFO queue.
func TestBrowseOfWhatThereIsNot(t *testing.T) {
	f := onMem(t)
	for _, b := range []fdbpq.Browse{
		{State: fdbpq.Done + 1}, {End: fdbpq.Back + 1}, {End: fdbpq.Back},
	} {
		_, err := b.Walk(f.ctx, f.db, f.fifoQueue("jobs"), time.Now(), nil)
		wantError(t, err, fdbpq.ErrOp)
	}

	ctx, cancel := context.WithCancel(f.ctx)
	cancel()

	_, err := new(fdbpq.Browse).Walk(ctx, f.db, f.queue("jobs"), time.Now(), nil)
	wantError(t, err, context.Canceled)

	queue := f.fifoQueue("jobs")
	other := f.apply(opPush(queue, 0, "v"))[0].Item.ID
	other.Priority = 5 // its key has none

	wantError(t, fdbpq.ReadItems(f.ctx, f.db, queue, []fdbpq.ID{other}, time.Now(),
		func(_ int, item *fdbpq.Browsed) bool {
			wantError(t, item.Err, fdbpq.ErrNotFound)
			return true
		}), nil)
}

// Pages of any bounds, read to the end, have every item of a state once and in order.
func TestPagesToTheEnd(t *testing.T) {
	onEngines(t, func(f *fixture) {
		const n = 7
		now := time.Now()
		for _, q := range []fdbpq.Target{f.queue("jobs"), f.fifoQueue("jobs")} {
			books := f.fillStates(q, n, now)
			for state, want := range books {
				for _, page := range []struct{ wanted, items, bytes int }{
					{wanted: 1}, {wanted: 2}, {wanted: 3}, {items: 1}, {items: 2}, {items: 3},
					{bytes: 1}, {bytes: 300_000}, {wanted: 2, items: 3},
				} {
					b := fdbpq.Browse{State: state, MaxItems: page.items, MaxBytes: page.bytes}
					got := f.pages(b, q, now, page.wanted)
					what := fmt.Sprintf("%v, pages of %+v", state, page)
					wantEqual(f.T, what, fmt.Sprint(got), fmt.Sprint(want))
				}
			}
		}
	})
}

// fillStates pushes items, of which n go into each state, and returns their jobs by state, in
// order. A few of their values fill a part of a walk.
func (f *fixture) fillStates(
	q fdbpq.Target, n int, now time.Time,
) map[fdbpq.ItemState][]fdbpq.ID {
	f.Helper()
	books := map[fdbpq.ItemState][]fdbpq.ID{}
	for _, state := range []fdbpq.ItemState{
		fdbpq.Done, fdbpq.Leased, fdbpq.Delayed, fdbpq.Ready,
	} {
		for i := range n {
			push := kept(opPush(q, int64(i%2), string(pattern([]int{10, 10, 400_000}[i%3], i))))
			if q.Layout().Fifo {
				push.Priority = 0
			}
			if state == fdbpq.Delayed {
				push.Delay = time.Hour
			}

			job := f.one(now, push).Item.ID
			books[state] = append(books[state], job)
			if state == fdbpq.Leased || state == fdbpq.Done {
				r := f.one(now, fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Hour})
				if state == fdbpq.Done {
					at := now.Add(time.Duration(i-n) * time.Second)
					wantError(f.T, f.one(at, ackWith(q, r.Lease.Token, "")).Err, nil)
				}
			}
		}
	}

	slices.Reverse(books[fdbpq.Done]) // newest first
	for _, state := range []fdbpq.ItemState{fdbpq.Leased, fdbpq.Delayed, fdbpq.Ready} {
		slices.SortFunc(books[state], compareIDs)
		books[fdbpq.AnyState] = append(books[fdbpq.AnyState], books[state]...)
	}
	slices.SortFunc(books[fdbpq.AnyState], compareIDs)
	return books
}

// pages walks a queue page by page, up to that many items each, and returns the jobs. 0 items is no
// bound.
func (f *fixture) pages(
	b fdbpq.Browse, q fdbpq.Target, now time.Time, wanted int,
) (jobs []fdbpq.ID) {
	f.Helper()
	for more := true; more; {
		n, before := 0, len(jobs)
		end := must(b.Walk(f.ctx, f.db, q, now, func(item *fdbpq.Browsed) bool {
			if wanted > 0 && n == wanted {
				return false
			}
			jobs, n = append(jobs, item.Job()), n+1
			return true
		}))
		if more = end.More; more && end.Scanned == 0 && len(jobs) == before {
			f.Fatalf("%+v: a page looked at nothing, and there is more", b)
		}
		b.After, b.AfterTime = &end.Last, end.LastTime
	}
	return jobs
}
