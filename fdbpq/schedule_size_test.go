package fdbpq_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv/countkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/subjects/schedule"
)

const (
	largeSchedules = 95     // which a queue can have
	largeContent   = 30_000 // bytes of the value of each
)

// onCounted returns a fixture whose store counts reads.
func onCounted(t *testing.T) (*fixture, *countkv.DB) {
	store := countkv.New(memkv.New(memkv.Options{}))
	return newFixture(t, store, fdbpq.RawValues), store
}

// setLarge sets nearly as many bytes of schedules as a queue can have. Their ids are numbers.
func (f *fixture) setLarge(q fdbpq.Target, overlap string, now time.Time) {
	f.Helper()
	sets := many(largeSchedules, func(i int) fdbpq.Op {
		value := make([]byte, largeContent)
		s := schedule.Schedule{ID: fmt.Sprint(i), Every: minutely, Overlap: overlap, Value: value}
		return opSchedule(q, s)
	})
	for _, r := range f.applyAt(now, sets...) {
		wantError(f.T, r.Err, nil)
	}
}

// A change of a schedule reads that schedule and not the others, which can have 4 MiB.
func TestChangeReadsWhatItChanges(t *testing.T) {
	f, store := onCounted(t)
	begin := time.Now().Truncate(time.Second)
	q := f.queue("jobs")
	f.setLarge(q, schedule.Allow, begin)

	for name, change := range map[string]fdbpq.Op{
		"pause":  opPause(q, "7", true),
		"set":    opSchedule(q, schedule.Schedule{ID: "8", Every: minutely}),
		"new":    opSchedule(q, schedule.Schedule{ID: "new", Every: minutely}),
		"remove": opUnschedule(q, "9"),
	} {
		store.TakeBytes()
		wantError(t, f.one(begin, change).Err, nil)

		if n := store.TakeBytes(); n > 2*largeContent {
			t.Errorf("%s: read %d bytes, and the schedule has about %d", name, n, largeContent/3*4)
		}
	}

	left := f.schedules(q, begin)
	wantEqual(t, "schedules", len(left), largeSchedules)
}

// A purge reads no schedule, and all of them fire afterwards.
func TestPurgeReadsNoSchedules(t *testing.T) {
	f, store := onCounted(t)
	begin := time.Now().Truncate(time.Second)
	q := f.queue("jobs")
	f.setLarge(q, schedule.Allow, begin)
	f.push(q, 1, "item")

	store.TakeBytes()
	purged := f.one(begin, fdbpq.Op{Kind: fdbpq.OpPurge, Queue: q})

	wantEqual(t, "purged", fmt.Sprint(purged.Len, purged.Err), "1 <nil>")
	if n := store.TakeBytes(); n > largeContent {
		t.Errorf("a purge read %d bytes", n)
	}
	f.check()

	f.sweepDue(begin.Add(time.Minute), q)
	fired := f.one(begin.Add(time.Minute), fdbpq.Op{Kind: fdbpq.OpLen, Queue: q}).Len
	wantEqual(t, "fired", fired, largeSchedules)
}

// A batch returns as many changed schedules as it has room for, and the rest can be tried again.
func TestChangesReturnWhatFits(t *testing.T) {
	f, store := onCounted(t)
	begin := time.Now().Truncate(time.Second)
	q := f.queue("jobs")
	f.setLarge(q, schedule.Allow, begin)
	const most = 400_000 // bytes to return
	f.batcher.LimitReturned(most)
	f.batcher.SetNow(func() time.Time { return begin })

	var changes []fdbpq.Op
	for i := range 500 {
		changes = append(changes, opPause(q, fmt.Sprint(i%largeSchedules), true))
	}

	store.TakeBytes()
	results := f.apply(changes...)

	done, returned := 0, 0
	for _, r := range results {
		if r.Err == nil {
			done++
			returned += len(r.Records[0].Value)
		} else if !errors.Is(r.Err, fdbpq.ErrNoRoom) {
			t.Fatal(r.Err)
		}
	}
	if done == 0 || returned > most {
		t.Errorf("%d changes returned %d bytes", done, returned)
	}

	if n := store.TakeBytes(); n > 5*most {
		t.Errorf("%d changes read %d bytes", done, n)
	}
}

// A list of schedules can be read in pages, each of about as many bytes as was asked for.
func TestPagesOfSchedules(t *testing.T) {
	f, store := onCounted(t)
	begin := time.Now().Truncate(time.Second)
	q := f.queue("jobs")
	f.setLarge(q, schedule.Allow, begin)

	const most = 200_000 // bytes of a page, and one schedule more
	seen, after := 0, ""
	for {
		store.TakeBytes()
		page := fdbpq.Op{Kind: fdbpq.OpSchedules, Queue: q, Record: after, MaxBytes: most}
		records := f.one(begin, page).Records

		if len(records) == 0 {
			break
		}
		if n := store.TakeBytes(); n > most+fdbpq.MaxScheduleValue {
			t.Errorf("a page read %d bytes", n)
		}
		if records[0].Name <= after {
			t.Fatalf("%q is on the page after %q", records[0].Name, after)
		}

		seen, after = seen+len(records), records[len(records)-1].Name
	}
	wantEqual(t, "schedules", seen, largeSchedules)
}

// Large schedules of several queues that are due at once take several transactions, and none of
// these reads more than one queue can have.
func TestManyLargeSchedulesDue(t *testing.T) {
	f, store := onCounted(t)
	begin := time.Now().Truncate(time.Second)
	var queues []fdbpq.Target

	for n := range 3 {
		q := f.queue(fmt.Sprint("jobs-", n))
		f.setLarge(q, schedule.Skip, begin)
		f.sweepDue(begin.Add(time.Minute), q)
		queues = append(queues, q)
	}

	var sweeps []fdbpq.Op
	for _, q := range queues {
		sweeps = append(sweeps, fdbpq.Op{Kind: fdbpq.OpSweep, Queue: q})
	}

	now := begin.Add(2 * time.Minute)
	for more, n := true, 0; more; n++ {
		if n == 100 {
			t.Fatal("the schedules are still due after 100 transactions")
		}

		more = false
		store.TakeBytes()

		for _, r := range f.applyAt(now, sweeps...) {
			wantError(t, r.Err, nil)
			more = more || r.Swept.More
		}
		if n := store.TakeBytes(); n > 4<<20 {
			t.Errorf("a transaction read %d bytes", n)
		}
	}

	for _, q := range queues {
		for _, s := range f.schedules(q, now) {
			wantEqual(t, "outcome", s.Outcome, schedule.Overlapped)
		}
	}
}
