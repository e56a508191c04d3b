package fdbpq_test

import (
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
)

// browse compares what a Browse and ReadItems find in a queue with the model, now and then.
func (r *modelRun) browse() {
	if r.random.IntN(3) > 0 {
		return
	}
	q := r.homes[r.random.IntN(2)]
	if r.random.IntN(4) == 0 {
		q = r.m.queue(q.name+"-dead", q.fifo)
	}
	b := fdbpq.Browse{State: fdbpq.ItemState(r.random.IntN(4)), End: r.end(q), MaxItems: r.random.IntN(8), MaxBytes: r.random.IntN(3) * 40}
	if id := r.someID(q); r.random.IntN(3) == 0 && id != (fdbpq.ID{}) {
		b.After = &id
	}

	passed := func(i *modelItem) bool { // by the walk, before it begins
		return b.After != nil && (compareIDs(i.ID, *b.After) <= 0) == (b.End == fdbpq.Front) || b.After != nil && i.ID == *b.After
	}
	want := q.inOrder(func(i *modelItem) bool {
		return !passed(i) && (b.State == fdbpq.AnyState || b.State == i.state) && (i.state == fdbpq.Leased || !r.m.expired(i))
	})
	scans := q.inOrder(func(i *modelItem) bool {
		return !passed(i) && (b.State == fdbpq.AnyState || (b.State == fdbpq.Ready) == (i.state == fdbpq.Ready))
	})
	if b.End == fdbpq.Back {
		slices.Reverse(want)
	}
	r.walkAll(q, b, want, len(scans))
	r.readItems(q)
	r.m.counts["browsed"] += len(want)
}

// walkAll walks a queue, page by page.
func (r *modelRun) walkAll(q *modelQueue, b fdbpq.Browse, want []*modelItem, scans int) {
	for {
		left := 1 + r.random.IntN(10)
		end, err := b.Walk(r.f.ctx, r.f.db, q.target, r.m.now, func(item *fdbpq.Browsed) bool {
			if left--; left < 0 {
				return false
			}
			if len(want) == 0 {
				r.f.Fatalf("%s: %+v: more than there is: %v", q.name, b, item.ID)
			}
			r.wantBrowsed(q, item, want[0])
			want = want[1:]
			return true
		})
		if err != nil {
			r.f.Fatal(err)
		}
		scans -= int(end.Scanned)
		// A page that ends because of its bytes does not tell whether there is more.
		least := 1
		if r.large {
			least = 0
		}
		if b.MaxItems > 0 && end.Scanned > int64(b.MaxItems) || !end.More && scans != 0 || end.More && scans < least {
			r.f.Fatalf("%s: %+v: %+v, and %d are left to look at", q.name, b, end, scans)
		}
		if !end.More {
			break
		}
		b.After = &end.Last
	}
	if len(want) > 0 {
		r.f.Fatalf("%s: %+v: %d are missing, from %v on", q.name, b, len(want), want[0])
	}
}

// readItems reads items by their ids.
func (r *modelRun) readItems(q *modelQueue) {
	var ids []fdbpq.ID
	for range r.random.IntN(40) {
		ids = append(ids, r.someID(q))
	}
	n := 0
	err := fdbpq.ReadItems(r.f.ctx, r.f.db, q.target, ids, r.m.now, func(i int, item *fdbpq.Browsed) bool {
		if want := q.items[ids[i]]; want != nil && (want.state == fdbpq.Leased || !r.m.expired(want)) {
			r.wantBrowsed(q, item, want)
		} else if !errors.Is(item.Err, fdbpq.ErrNotFound) || item.ID != ids[i] {
			r.f.Fatalf("%s: %v, %v, which is gone", q.name, item.ID, item.Err)
		}
		n++
		return true
	})
	if err != nil || n != len(ids) {
		r.f.Fatalf("%d items of %d, %v", n, len(ids), err)
	}
}

func (r *modelRun) wantBrowsed(q *modelQueue, got *fdbpq.Browsed, want *modelItem) {
	due := want.due
	if want.state == fdbpq.Ready {
		due = time.Time{}
	}
	if got.Err != nil || got.ID != want.ID || string(got.Value) != string(want.Value) || !reflect.DeepEqual(got.Headers, want.Headers) ||
		got.MsgID != want.MsgID || got.Unique != want.Unique || !got.Expires.Equal(want.Expires) || !got.PushedAt.Equal(want.PushedAt) ||
		!reflect.DeepEqual(got.DeadLetter, want.DeadLetter) || got.State != want.state || !got.Due.Equal(due) ||
		got.Deliveries != want.deliveries || got.Reason != want.reason {
		r.f.Fatalf("%s: %.200q at %v, %v, due %v, %d deliveries, %q, %v: want %.200q at %v, %v, due %v, %d deliveries, %q",
			q.name, got.Value, got.ID, got.State, got.Due, got.Deliveries, got.Reason, got.Err,
			want.Value, want.ID, want.state, want.due, want.deliveries, want.reason)
	}
}
