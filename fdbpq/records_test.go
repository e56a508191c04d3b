package fdbpq_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// opSetConsumer replaces the record of a consumer; "" removes it.
func opSetConsumer(q fdbpq.Target, name, value string) fdbpq.Op {
	return fdbpq.Op{
		Kind:   fdbpq.OpSetConsumer,
		Queue:  q,
		Record: name,
		Change: func([]byte, time.Time) ([]byte, error) { return []byte(value), nil },
	}
}

// setConsumer is opSetConsumer, which must succeed.
func (f *fixture) setConsumer(q fdbpq.Target, name, value string) {
	f.Helper()
	wantError(f.T, f.apply(opSetConsumer(q, name, value))[0].Err, nil)
}

// wantConsumers checks the records of a queue, given as "name=value".
func (f *fixture) wantConsumers(what string, q fdbpq.Target, want ...string) {
	f.Helper()
	r := f.apply(fdbpq.Op{Kind: fdbpq.OpConsumers, Queue: q})[0]
	wantError(f.T, r.Err, nil)

	var got []string
	for _, c := range r.Records {
		got = append(got, c.Name+"="+string(c.Value))
	}
	wantList(f.T, what, got, want...)
}

// Each record has a key of its own, lists are in the order of names, and the last removal leaves
// nothing.
func TestConsumers(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q, fifo := f.queue("jobs"), f.fifoQueue("jobs")
		f.setConsumer(q, "b", "1")
		f.setConsumer(q, "ä", "2")
		f.setConsumer(q, "a", "3")
		f.setConsumer(fifo, "a", "other")

		f.wantStored(tuple.Tuple{f.priority, "jobs", "p", "b"}.Pack(), []byte("1"))
		f.wantConsumers("set", q, "a=3", "b=1", "ä=2")
		f.wantListed("with consumers", "jobs")
		f.check()

		f.setConsumer(q, "a", "")
		f.setConsumer(q, "b", "")
		f.setConsumer(q, "ä", "")
		f.setConsumer(q, "ä", "") // there is none

		if left := f.stored(f.priority); len(left) > 0 {
			f.Errorf("left: %q", left)
		}
	})
}

// Names, values and numbers of records out of bounds are refused, and nothing changes.
func TestConsumerBounds(t *testing.T) {
	f := onMem(t)
	q := f.queue("jobs")
	long := strings.Repeat("n", fdbpq.MaxRecordName)
	most := strings.Repeat("v", fdbpq.MaxConsumerValue)

	for _, name := range []string{
		"", "a.b", "a b", "*", "a>", "a\tb", "a\x00", "\u00a0", "\x85", "\xff", long + "n",
	} {
		wantError(t, f.apply(opSetConsumer(q, name, "x"))[0].Err, fdbpq.ErrOp)
	}
	wantError(t, f.apply(opSetConsumer(q, "a", most+"v"))[0].Err, fdbpq.ErrOp)
	noChange := fdbpq.Op{Kind: fdbpq.OpSetConsumer, Queue: q, Record: "a"}
	wantError(t, f.apply(noChange)[0].Err, fdbpq.ErrOp)
	wantEqual(t, "keys", len(f.stored(f.priority)), 0)

	f.setConsumer(q, long, most)
	for i := range fdbpq.MaxConsumers - 1 {
		f.setConsumer(q, fmt.Sprint(i), most)
	}
	wantError(t, f.apply(opSetConsumer(q, "more", "x"))[0].Err, fdbpq.ErrMaxRecords)

	f.setConsumer(q, "7", "x")
	f.check()

	f.setConsumer(q, "7", "")
	f.setConsumer(q, "more", "x")
}

// A consumer that has expired is gone, even if nobody has removed it yet, and a change in time
// puts that off.
func TestConsumersExpire(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q, now := f.queue("jobs"), time.Now()
		record := func(at time.Time) string {
			return string(must(json.Marshal(map[string]any{"expires": at, "x": 1})))
		}

		old := opSetConsumer(q, "old", record(now.Add(-time.Minute)))
		wantErrors(f.T, f.applyAt(now.Add(-time.Hour), old))
		read := f.read(fdbpq.Op{Kind: fdbpq.OpConsumers, Queue: q})[0]
		wantEqual(f.T, "only read", len(read.Records), 0)

		var sets []fdbpq.Op
		for i := range fdbpq.MaxConsumers {
			sets = append(sets, opSetConsumer(q, fmt.Sprint(i), record(now.Add(time.Minute))))
		}

		sets = append(sets, opSetConsumer(q, "5", record(now.Add(time.Hour))))
		wantErrors(f.T, f.applyAt(now, sets...))
		f.check()
		wantErrors(f.T, f.applyAt(now, opSetConsumer(q, "more", "x")), fdbpq.ErrMaxRecords)

		now = now.Add(2 * time.Minute)
		page := must(f.ListPriorityQueues(f.ctx, f.db, "", 10, now))
		wantEqual(f.T, "due", len(page.Due), 1)

		r := f.applyAt(now, fdbpq.Op{Kind: fdbpq.OpConsumers, Queue: q})[0]
		if len(r.Records) != 1 || r.Records[0].Name != "5" {
			f.Errorf("consumers: %+v", r.Records)
		}
		wantErrors(f.T, f.applyAt(now, opSetConsumer(q, "more", record(now.Add(time.Hour)))))
		wantErrors(f.T, f.applyAt(now, fdbpq.Op{Kind: fdbpq.OpPurge, Queue: q}))
		f.check()

		wantErrors(f.T, f.applyAt(now.Add(time.Hour), fdbpq.Op{Kind: fdbpq.OpSweep, Queue: q}))

		if left := f.stored(f.priority); len(left) > 0 {
			f.Errorf("left: %q", left)
		}
	})
}

// A batch returns the records of many queues as far as they fit, and the next one returns the
// rest.
func TestConsumersOfManyQueues(t *testing.T) {
	f := onMem(t)
	most := strings.Repeat("v", fdbpq.MaxConsumerValue)
	var sets, lists []fdbpq.Op

	for i := range 20 {
		q := f.queue(fmt.Sprint("queue-", i))
		for n := range 10 {
			sets = append(sets, opSetConsumer(q, fmt.Sprint(n), most))
		}

		lists = append(lists, fdbpq.Op{Kind: fdbpq.OpConsumers, Queue: q})
	}
	wantErrors(t, f.apply(sets...))

	// There is room for the records of so many queues, with their names.
	const fit = 8
	f.batcher.LimitReturned(fit * 10 * (len(most) + 1))

	for len(lists) > 0 {
		results := f.apply(lists...)
		done := slices.IndexFunc(results, func(r fdbpq.Result) bool { return r.Err != nil })

		if done < 0 {
			done = len(results)
		}
		wantEqual(t, "done", done, min(fit, len(lists)))
		for _, r := range results[done:] {
			wantError(t, r.Err, fdbpq.ErrNoRoom)
		}

		lists = lists[done:]
	}
}

// A record whose name cannot be read fails lists of consumers, and nothing else.
func TestCorruptConsumers(t *testing.T) {
	f := onMem(t)
	f.corrupt = true
	q := f.queue("jobs")
	write(f, func(tx kv.Transaction) {
		tx.Set(tuple.Tuple{f.priority, "jobs", "p", int64(5)}.Pack(), []byte("x"))
	})

	results := f.apply(opSetConsumer(q, "a", "1"), fdbpq.Op{Kind: fdbpq.OpConsumers, Queue: q},
		opPush(q, 1, "a"))
	wantErrors(t, results, nil, fdbpq.ErrCorrupt, nil)
}

// Pops and leases report how many items are ready after them, without expired items and items of
// other programs.
func TestReady(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q, clock := f.queue("jobs"), newClock(time.Now())
		f.batcher.SetNow(clock.now)

		write(f, func(tx kv.Transaction) {
			id := tuple.Tuple{int64(9), int64(0), make([]byte, 20)}
			tx.Set(items(f.priority, "jobs").Pack(id), []byte("other"))
		})

		f.apply(withTTL(opPush(q, 1, "short"), time.Second), opPush(q, 2, "d"), opPush(q, 3, "e"))
		clock.advance(10 * time.Second)
		for i, r := range f.apply(slices.Repeat([]fdbpq.Op{op(counting(opPopMin), q)}, 3)...) {
			wantEqual(f.T, "ready", r.Ready, []int64{1, 0, 0}[i])
		}
	})
}

// A queue with settings, consumers or a source keeps them and its place in the list. Without them
// it leaves.
func TestRetireLeavesRecords(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		for name, set := range map[string]func(on string){
			"settings": func(on string) {
				f.configure(q, func(s *fdbpq.Settings) { s.MaxDeliver = int64(len(on)) })
			},
			"consumer": func(on string) { f.setConsumer(q, "c", on) },
			"source": func(on string) {
				f.setSource(q, strings.Repeat(`{"stream":"S"}`, len(on)))
			},
		} {
			f.push(q, 1, "a")
			f.values(q.PopMin)
			mark := fdbpq.NewMark()
			f.retire(name+": empty", []fdbpq.Target{q}, mark, "", fdbpq.Marked)
			set("1")
			f.retire(name, []fdbpq.Target{q}, fdbpq.NewMark(), mark, fdbpq.InUse)
			f.push(q, 1, "b")

			wantError(f.T, f.apply(fdbpq.Op{Kind: fdbpq.OpPurge, Queue: q})[0].Err, nil)

			f.retire(name+", purged", []fdbpq.Target{q}, fdbpq.NewMark(), mark, fdbpq.InUse)
			page := must(f.ListPriorityQueues(f.ctx, f.db, "", 10, time.Now()))

			if len(page.Queues) != 1 || page.Queues[0].Name != "jobs" {
				f.Errorf("%s: listed: %+v", name, page)
			}
			f.check()

			set("")
			f.retire(name+" without", []fdbpq.Target{q}, mark, "", fdbpq.Marked)
			f.retire(name+" again", []fdbpq.Target{q}, fdbpq.NewMark(), mark, fdbpq.NotListed)
			set("1")
			write(f, func(tx kv.Transaction) { q.Clear(tx) })

			wantEqual(f.T, name+": keys", len(f.stored(f.priority)), 0)
		}
	})
}

// configure changes settings, which must succeed.
func (f *fixture) configure(q fdbpq.Target, change func(*fdbpq.Settings)) fdbpq.Settings {
	f.Helper()
	r := f.apply(fdbpq.Op{Kind: fdbpq.OpConfigure, Queue: q, Configure: change})[0]

	if r.Err != nil {
		f.Fatalf("Configure: %v", r.Err)
	}

	return *r.Settings
}

// Settings are stored under one key, which goes when all are reset. What a newer version has set
// stays.
func TestSettings(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		key := tuple.Tuple{f.priority, "jobs", "c"}.Pack()

		want := fdbpq.Settings{
			AckWait:         time.Minute,
			Backoff:         []time.Duration{time.Second, 0},
			MaxDeliver:      3,
			DeadLetter:      "failed",
			TTL:             time.Hour,
			PauseUntil:      time.UnixMicro(5).UTC(),
			MaxLeased:       6,
			MaxItems:        7,
			MaxBytes:        8,
			Discard:         "old",
			DuplicateWindow: fdbpq.NoDuplicateWindow,
			PausedGroups:    []string{"b", "a"},
		}

		got := must(do(f, func(tx kv.Transaction) (fdbpq.Settings, error) {
			return q.Configure(tx, func(s *fdbpq.Settings) { *s = want })
		}))
		wantEqual(f.T, "configured", got, want)

		golden := tuple.Tuple{
			int64(1), "ack_wait", int64(60e9), "backoff", tuple.Tuple{int64(1e9), int64(0)},
			"max_deliver", int64(3), "dead_letter", "failed", "ttl", int64(3600e9),
			"pause_until", int64(5), "max_leased", int64(6), "max_items", int64(7),
			"max_bytes", int64(8), "discard", "old", "duplicate_window", int64(-1),
			"paused_groups", tuple.Tuple{"b", "a"},
		}
		f.wantStored(key, golden.Pack())
		f.wantListed("with settings", "jobs")

		got = *f.apply(fdbpq.Op{Kind: fdbpq.OpSettings, Queue: q})[0].Settings
		wantEqual(f.T, "read", got, want)

		write(f, func(tx kv.Transaction) {
			golden[2] = int64(1) // a newer version may have other bounds
			newer := append(golden, "later", tuple.Tuple{int64(7), "x"}, "max_later", int64(9))
			tx.Set(key, newer.Pack())
		})

		changed := f.configure(q, func(s *fdbpq.Settings) { s.Backoff = nil })
		wantEqual(f.T, "ack_wait", changed.AckWait, time.Nanosecond)

		f.configure(q, func(s *fdbpq.Settings) { *s = fdbpq.Settings{} })
		unknown := tuple.Tuple{int64(1), "later", tuple.Tuple{int64(7), "x"}, "max_later", int64(9)}
		f.wantStored(key, unknown.Pack())

		write(f, func(tx kv.Transaction) { tx.Set(key, golden.Pack()) })
		f.configure(q, func(s *fdbpq.Settings) { *s = fdbpq.Settings{} })

		if left := f.stored(f.priority); len(left) > 0 {
			f.Errorf("left: %q", left)
		}
	})
}

// A setting out of bounds is refused by name, and nothing changes.
func TestBadSettings(t *testing.T) {
	f := onMem(t)
	q := f.queue("jobs")
	space := tuple.NewSubspace(tuple.Tuple{f.priority, "own"})
	own := fdbpq.NewPriorityQueue(space, fdbpq.RawValues)
	f.configure(q, func(s *fdbpq.Settings) { s.MaxDeliver = 5 })

	for text, test := range map[string]struct { // by what the error says
		q      fdbpq.Target
		change func(*fdbpq.Settings)
	}{
		"ack_wait: 99ms: want 100ms": {
			q,
			func(s *fdbpq.Settings) { s.AckWait = 99 * time.Millisecond },
		},
		"dead_letter: \"jobs\" is the": {q, func(s *fdbpq.Settings) {
			s.MaxDeliver = 1
			s.DeadLetter = "jobs"
		}},
		"dead_letter: a name of 129": {
			q,
			func(s *fdbpq.Settings) { s.DeadLetter = strings.Repeat("x", 129) },
		},
		"dead_letter: \"x\": a queue": {own, func(s *fdbpq.Settings) { s.DeadLetter = "x" }},
	} {
		r := f.apply(fdbpq.Op{Kind: fdbpq.OpConfigure, Queue: test.q, Configure: test.change})[0]
		if !errors.Is(r.Err, fdbpq.ErrSettings) || !strings.Contains(r.Err.Error(), text) {
			t.Errorf("%v: want %q", r.Err, text)
		}
	}
	wantError(t, f.apply(fdbpq.Op{Kind: fdbpq.OpConfigure, Queue: q})[0].Err, fdbpq.ErrOp)

	left := *f.apply(fdbpq.Op{Kind: fdbpq.OpSettings, Queue: q})[0].Settings
	wantEqual(t, "settings", left, fdbpq.Settings{MaxDeliver: 5})
}

// Settings that cannot be read stay, and only what depends on them fails.
func TestCorruptSettings(t *testing.T) {
	onEngines(t, func(f *fixture) {
		f.corrupt = true
		q := f.queue("jobs")
		key := tuple.Tuple{f.priority, "jobs", "c"}.Pack()
		now := time.Now()

		for _, bad := range [][]byte{
			{},
			{0xff},
			tuple.Tuple{int64(2)}.Pack(),             // another version
			tuple.Tuple{int64(1), "ack_wait"}.Pack(), // a name without a value
			tuple.Tuple{int64(1), "backoff", int64(5)}.Pack(), // no list
		} {
			write(f, func(tx kv.Transaction) { q.Clear(tx) })
			f.push(q, 1, "a")
			f.push(q, 2, "b")
			lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Second}
			token := f.applyAt(now, lease)[0].Lease.Token
			write(f, func(tx kv.Transaction) { tx.Set(key, bad) })

			for _, what := range []fdbpq.Op{
				{Kind: fdbpq.OpNak},
				{Kind: fdbpq.OpTerm},
				{Kind: fdbpq.OpLease},
				{Kind: fdbpq.OpSettings},
				{Kind: fdbpq.OpConfigure, Configure: func(*fdbpq.Settings) {}},
			} {
				what.Queue, what.Token = q, token
				wantError(f.T, f.applyAt(now, what)[0].Err, fdbpq.ErrCorrupt)
			}

			f.push(q, 3, "c")
			long := fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Hour, End: fdbpq.Back}
			wantEqual(f.T, "leased with a length", string(f.applyAt(now, long)[0].Item.Value), "c")

			results := f.applyAt(now.Add(time.Minute), op(opPopMin, q), op(opPopMin, q))
			wantEqual(f.T, "popped", string(results[0].Item.Value), "b")
			wantError(f.T, results[1].Err, fdbpq.ErrCorrupt)

			ack := fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: token}
			wantError(f.T, f.applyAt(now, ack)[0].Err, nil)
			f.wantStored(key, bad)
		}
	})
}
