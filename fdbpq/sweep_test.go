package fdbpq_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
	"github.com/pqbridge/pqbridge/subjects/schedule"
)

// A purge removes all items with few reads, however many there are: their leases end, and their
// unique keys are free. Schedules, message ids and items of staged pops stay.
func TestPurgeOfMany(t *testing.T) {
	onEngines(t, func(f *fixture) {
		const n, fewReads = 3000, 100
		now := time.Now()
		q := f.queue("q")
		f.configure(q, func(s *fdbpq.Settings) {
			s.MaxBytes, s.RatePerGroup, s.MaxLeasedPerGroup = 1<<30, "50/1h", 50
		})

		f.setSchedule(q, schedule.Schedule{
			ID:    "s",
			Every: schedule.Duration(time.Hour),
			Value: []byte("fired"),
		}, now)

		// Items of 10 groups at 20 priorities; a third of them is delayed.
		pushes := many(n, func(i int) fdbpq.Op {
			o := inGroup(opPushOnce(q, "", fmt.Sprint("unique", i)), fmt.Sprint("group", i%10))
			o.Priority, o.TTL, o.Delay = int64(i%20), time.Hour, time.Duration(i%3/2)*time.Minute
			return o
		})
		for some := range slices.Chunk(pushes, 500) {
			f.applyAt(now, some...)
		}

		// One more with a message id, some leases, and two items that staged pops have taken.
		f.one(now, opPushOnce(q, "id", ""))
		lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Minute}
		leases := f.applyAt(now, slices.Repeat([]fdbpq.Op{lease}, 20)...)
		f.one(now, fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: leases[0].Lease.Token})
		f.leave(q, now, fdbpq.Front, fdbpq.Back)

		read := 0
		b := fdbpq.NewBatcher(&spy{
			Database: f.db,
			found:    func(pairs ...kv.KeyValue) { read += len(pairs) },
		}, f.Keyspace)

		b.SetNow(func() time.Time { return now })
		ops := []fdbpq.Op{opPush(q, 1, "before"), {Kind: fdbpq.OpPurge, Queue: q}}
		r := must(b.Apply(f.ctx, ops))
		wantErrors(f.T, r)
		wantEqual(f.T, "purged", r[1].Len, n) // with the two pushed, without the two taken

		if read > fewReads {
			f.Errorf("%d keys were read, want at most %d", read, fewReads)
		}
		wantEqual(f.T, "ended a lease that counts", r[1].Freed, true)

		ack := fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: leases[1].Lease.Token}
		wantError(f.T, f.one(now, ack).Err, fdbpq.ErrLeaseLost)

		info := f.infoOf(q, 10)
		if info.Ready+info.Leased+info.Delayed != 0 || info.GroupCount > 0 {
			f.Errorf("%+v", info)
		}
		f.check()

		wantEqual(f.T, "pushed again", f.one(now, opPushOnce(q, "id", "")).Duplicate, true)
		wantEqual(f.T, "unique again", f.one(now, opPushOnce(q, "", "unique1")).Duplicate, false)

		wantEqual(f.T, "pushed", f.one(now.Add(answerLife), op(opLen, q)).Len, 1)
		wantEqual(f.T, "fired, too", f.one(now.Add(time.Hour), op(opLen, q)).Len, 2)
	})
}

// A purge keeps the rates of groups, and with too many of them it fails and says what to do.
func TestPurgeBesideManyRates(t *testing.T) {
	f := onMem(t)
	q := f.queue("q")
	f.apply(opPush(q, 1, "x"))
	rates := tuple.Tuple{f.priority, "q", "q"}

	write(f, func(tx kv.Transaction) {
		for i := range 20_000 { // more than a purge reads
			tx.Set(append(rates, i).Pack(), nil)
		}
	})
	wantError(t, f.apply(fdbpq.Op{Kind: fdbpq.OpPurge, Queue: q})[0].Err, fdbpq.ErrManyRates)
	wantEqual(t, "left", f.apply(op(opLen, q))[0].Len, 1)

	write(f, func(tx kv.Transaction) {
		tx.ClearRange(kv.Range{Begin: rates.Pack(), End: append(rates.Pack(), 0xff)})
	})
}

// bury makes dead letters of new items, with the values given, of a queue.
func (f *fixture) bury(at time.Time, q fdbpq.Target, values ...string) {
	f.Helper()
	for _, value := range values {
		m := fdbpq.Message{
			Value:   []byte(value),
			Headers: map[string][]string{"Name": {value[:1]}, "Drop": {"x"}},
		}

		f.one(at, fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Priority: 3, Message: m})
		lease := f.one(at, fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})

		term := fdbpq.Op{Kind: fdbpq.OpTerm, Queue: q, Token: lease.Lease.Token}
		wantError(f.T, f.one(at, term).Err, nil)
	}
}

// Dead letters go back to their queue without the headers that are dropped, whatever their size,
// and with the ttl of that queue. Other items stay.
func TestRedrive(t *testing.T) {
	onEngines(t, func(f *fixture) {
		large, now := strings.Repeat("x", 300_000), time.Now()
		outside := tuple.NewSubspace(tuple.Tuple{f.priority + "-outside"})
		alone := fdbpq.NewPriorityQueue(outside, f.format)

		for _, target := range [][2]fdbpq.Target{
			{f.queue("q"), f.queue("q-dead")},
			{f.fifoQueue("q"), f.fifoQueue("q-dead")},
			{alone, alone.DeadLetters()},
		} {
			q, dead := target[0], target[1]
			f.bury(now, q, "a", "b"+large)
			f.one(now, opPush(dead, 3, "no dead letter"))

			redrive := fdbpq.Op{
				Kind:       fdbpq.OpRedriveItem,
				Queue:      dead,
				DropHeader: func(name string) bool { return name == "Drop" },
			}

			for _, want := range []error{nil, nil, fdbpq.ErrNotDeadLetter} {
				redrive.ID = f.one(now, op(opPeekMin, dead)).Item.ID
				wantError(f.T, f.one(now, redrive).Err, want)
			}

			for _, want := range []string{"a", "b" + large} {
				i := f.one(now, op(opPopMin, q)).Item
				wantMessage(f.T, "redriven", i, nil, fdbpq.Message{
					Value:   []byte(want),
					Headers: map[string][]string{"Name": {want[:1]}},
				})
				wantEqual(f.T, "dead letter", i.DeadLetter, nil)
			}
			wantEqual(f.T, "stayed", string(f.one(now, op(opPopMin, dead)).Item.Value),
				"no dead letter")

			f.bury(now, q, "c")
			f.configure(q, func(s *fdbpq.Settings) { s.TTL = time.Hour })
			redrive.ID = f.one(now, op(opPeekMin, dead)).Item.ID
			wantError(f.T, f.one(now, redrive).Err, nil)

			i := f.one(now, op(opPopMin, q)).Item
			want := fdbpq.Message{Value: []byte("c"), Headers: map[string][]string{"Name": {"c"}}}
			wantMessage(f.T, "redriven alone", i, nil, want)
			expires := now.Add(time.Hour).Truncate(time.Microsecond)
			wantEqual(f.T, "it expires", i.Expires.Equal(expires), true)
		}

		write(f, func(tx kv.Transaction) { tx.ClearRange(everything(f.priority + "-outside")) })
	})
}

// No edit happens twice and counts stay exact, whatever is unknown of the outcome of commits.
func TestUnknownEdits(t *testing.T) {
	onScripts(t, func(f *unsure, q *fdbpq.PriorityQueue, fifo *fdbpq.Queue, ready func()) {
		ids := f.order(q)
		f.bury(time.Now(), f.queue("b"), "x", "y", "z")
		f.setSource(f.queue("s"), `{"stream":"S"}`)
		again := opSetConsumer(q, "a", "")
		again.Change = func(old []byte, _ time.Time) ([]byte, error) {
			return append(slices.Clone(old), '+'), nil
		}
		configure := fdbpq.Op{Kind: fdbpq.OpConfigure, Queue: q}
		configure.Configure = func(s *fdbpq.Settings) { s.MaxDeliver++ }
		letters := f.applyAt(time.Now(), op(opPeekMin, f.queue("b-dead")))
		ready()

		edits := []fdbpq.Op{
			{Kind: fdbpq.OpRemove, Queue: q, ID: ids[1]},
			{Kind: fdbpq.OpMove, Queue: q, ID: ids[0], Priority: 9},
			{Kind: fdbpq.OpPurge, Queue: fifo},
			opPush(fifo, 0, "new"),
			{Kind: fdbpq.OpRedriveItem, Queue: f.queue("b-dead"), ID: letters[0].Item.ID},
			configure,
			again,
		}
		r := f.apply(append(draws(f.queue("s"), 0, "drawn"), edits...)...)
		wantErrors(f.T, r)
		wantEqual(f.T, "purged", r[4].Len, 6)

		f.calm()
		wantList(f.T, "left", f.values(q.PopMin), "2", "3", "4", "0")
		wantEqual(f.T, "purged", f.length(fifo), 0)
		wantList(f.T, "home", f.values(f.queue("b").PopMin), "x")
		wantList(f.T, "dead", f.values(f.queue("b-dead").PopMin), "y", "z")
		wantEqual(f.T, "max_deliver",
			f.apply(fdbpq.Op{Kind: fdbpq.OpSettings, Queue: q})[0].Settings.MaxDeliver, 1)
		f.wantConsumers("changed", q, "a=+")
		f.wantSource("drawn", f.queue("s"), 1, "drawn")
	})
}

// A purge removes the history that a release before it in the same transaction has written.
func TestPurgeAfterRelease(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q, now := f.queue("jobs"), time.Now()
		id := f.push(q, 1, "a")
		f.applyAt(now, fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})
		f.applyAt(now, fdbpq.Op{Kind: fdbpq.OpRelease, Queue: q, ID: id},
			fdbpq.Op{Kind: fdbpq.OpPurge, Queue: q})

		wantEqual(f.T, "histories", len(f.stored(f.priority)), 0)
	})
}

// Edits of items by id work one after the other in a caller's transaction.
func TestEditsInCallersTransaction(t *testing.T) {
	f := onMem(t)
	q := f.queue("jobs")
	f.bury(time.Now(), q, "dead")
	dead := q.DeadLetters()
	f.fill(q, "a", "b", "c")

	write(f, func(tx kv.Transaction) {
		edit := func(kind fdbpq.OpKind, id fdbpq.ID) fdbpq.Result {
			return applyIn(tx, fdbpq.Op{Kind: kind, Queue: q, ID: id, Priority: 7})
		}
		wantError(t, edit(fdbpq.OpRemove, must(q.PeekMin(tx)).ID).Err, nil)
		wantError(t, edit(fdbpq.OpMove, must(q.PeekMin(tx)).ID).Err, nil)
		wantError(t, edit(fdbpq.OpRelease, must(q.PeekMin(tx)).ID).Err, fdbpq.ErrNotLeased)

		redrive := fdbpq.Op{Kind: fdbpq.OpRedriveItem, Queue: dead, ID: must(dead.PeekMin(tx)).ID}
		wantError(t, applyIn(tx, redrive).Err, nil)
		wantError(t, applyIn(tx, redrive).Err, fdbpq.ErrNotFound)
	})
	wantList(t, "left", f.values(q.PopMin), "c", "dead", "b")

	f.push(q, 1, "purged")
	write(f, func(tx kv.Transaction) {
		wantEqual(t, "purged", applyIn(tx, fdbpq.Op{Kind: fdbpq.OpPurge, Queue: q}).Len, 1)
	})
}

// A walk over few items of one state does not read the many of another.
func TestBrowseReadsLittle(t *testing.T) {
	const few, much = 100, 3000
	f := onMem(t)
	now := time.Now()

	for _, state := range []fdbpq.ItemState{fdbpq.Ready, fdbpq.Delayed} {
		q := f.queue(state.String())
		var ops []fdbpq.Op

		for i := range few + much {
			o := opPush(q, 1, "v")
			o.Message.Headers = map[string][]string{"A": {"b"}}

			if (i%(1+much/few) == 0) == (state == fdbpq.Delayed) {
				o.Delay = time.Hour
			}

			ops = append(ops, o)
		}

		f.applyAt(now, ops...)

		for _, end := range []fdbpq.End{fdbpq.Front, fdbpq.Back} {
			n, keys := 0, 0
			count := func(*fdbpq.Browsed) bool {
				n++
				return true
			}
			counted := &spy{
				Database: f.db,
				found:    func(pairs ...kv.KeyValue) { keys += len(pairs) },
			}

			one := &fdbpq.Browse{State: state, End: end}
			_, err := one.Walk(f.ctx, counted, q, now, count)
			wantError(t, err, nil)
			if n != few || keys > 8*few { // several keys of each, none of the many others
				t.Errorf("%v from %d: %d items, and %d keys read", state, end, n, keys)
			}

			keys, n = 0, 0
			all := &fdbpq.Browse{End: end}
			_, err = all.Walk(f.ctx, counted, q, now, count)
			wantError(t, err, nil)
			if n != few+much || keys > 3*n { // two keys each
				t.Errorf("all from %d: %d items, and %d keys read", end, n, keys)
			}
		}
	}
}
