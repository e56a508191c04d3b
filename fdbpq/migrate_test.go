package fdbpq_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/migrate"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// opened returns a fixture whose store was opened.
func opened(t *testing.T, db kv.Database) *fixture {
	f := newFixture(t, db, fdbpq.RawValues)
	must(f.open(f.Keyspace, fdbpq.StoreOptions{}))
	return f
}

// target returns a fixture in db with the roots of f.
func (f *fixture) target(db kv.Database) *fixture {
	return newFixtureIn(f.T, db, f.priority, f.fifo, f.format)
}

func ignoreProgress(migrate.Progress) {}

// runMigration migrates to a store. It tries again while a store does not answer, as a busy
// FoundationDB. It checks that no transaction copies more than about a tenth of what FoundationDB
// takes.
func runMigration(f, to *fixture) (migrate.Result, error) {
	const atOnce = 1_200_000 // bytes, of the 10,000,000 that FoundationDB takes
	for {
		size := int64(-1)
		result, err := migrate.Run(f.ctx, f.db, to.db, f.Keyspace, func(p migrate.Progress) {
			if size >= 0 && !p.Checking && p.Bytes-size > atOnce {
				f.Errorf("%d bytes were copied in one transaction", p.Bytes-size)
			}
			size = p.Bytes
		})

		if !errors.Is(err, kv.ErrUnavailable) || f.ctx.Err() != nil {
			return result, err
		}
	}
}

// data returns everything that is stored but the records of the store.
func (f *fixture) data() (all []string) {
	for _, root := range []string{
		f.priority, f.fifo, f.priority + "-queues", f.fifo + "-queues", f.priority + "-x",
		f.priority + "-store",
	} {
		for _, pair := range f.stored(root) {
			all = append(all, fmt.Sprintf("%q=%x", pair.Key, sha256.Sum256(pair.Value)))
		}
	}
	return all
}

// populate makes queues with items in every state, some of them large, and with a finished job, and
// returns the token of a lease.
func (f *fixture) populate() fdbpq.Token {
	f.Helper()
	jobs, line := f.queue("jobs"), f.fifoQueue("line")
	var ops []fdbpq.Op

	for i := range 30 {
		ops = append(ops, opPush(jobs, int64(i%3), fmt.Sprintf("%d/%02d", i%3, i)),
			opPush(line, 0, fmt.Sprintf("%02d", i)))
	}

	f.apply(ops...)
	f.configure(jobs, func(s *fdbpq.Settings) {
		s.MaxBytes = 100 << 20
		s.DuplicateWindow = time.Hour
	})

	f.setConsumer(f.fifoQueue("read"), "reader", "record")
	once := opPush(jobs, 9, "once")
	once.Message.MsgID, once.Message.Unique = "id", "key"
	once.Message.Headers = map[string][]string{"Trace": {"1"}}
	late := opPush(jobs, 9, "late")
	late.Delay = time.Hour
	expires := opPush(jobs, 9, "expires")
	expires.TTL = time.Hour
	grouped := inGroup(opPush(jobs, 9, "of a group"), "acme") // with the secret of the store
	f.apply(once, late, expires, grouped)
	f.finish(time.Now(), kept(opPush(jobs, -1, "done")))

	empty := f.queue("empty")
	f.apply(opPush(empty, 0, "x"), op(opPopMin, empty))

	for i := range 12 {
		f.apply(opPush(f.queue("large"), int64(i), strings.Repeat(fmt.Sprintf("%08d", i), 15_000)))
	}

	// These are more than are read at once.
	ops = slices.Repeat([]fdbpq.Op{opPush(f.queue("many"), 0, "")}, 250)
	f.apply(ops...)

	return f.leaseSome(jobs, 1, time.Hour)[0]
}

// A store that moves from engine to engine keeps every key, so that items, leases and duplicates
// are known there, and the source is unchanged.
func TestMigrateBothWays(t *testing.T) {
	for _, between := range engines() {
		if between.name == "pebble" {
			continue
		}
		t.Run(between.name, func(t *testing.T) {
			first := opened(t, pebble.open(t))
			token := first.populate()
			identity := must(first.open(first.Keyspace, fdbpq.StoreOptions{})).ID
			before := first.data()

			second := first.target(between.open(t))
			result := must(runMigration(first, second))
			wantMigrated(t, first, second, before, result)

			// jobs with its special items, line, large and many; read and empty have no items, and
			// empty is no longer listed.
			if result.Digest.Queues != 5 || result.Digest.Items != 30+4+30+12+250 {
				t.Errorf("the digest is %v", result.Digest)
			}

			s, err := second.open(second.Keyspace, fdbpq.StoreOptions{Exclusive: true})
			if err != nil || s.New || s.ID != result.ID || s.ID == identity {
				t.Errorf("%+v, %v: want %s, not %s", s, err, result.ID, identity)
			}

			// The copy goes on like the original, and moves back.
			second.pushMore("second")
			second.apply(fdbpq.Op{Kind: fdbpq.OpAck, Queue: second.queue("jobs"), Token: token})

			third := second.target(pebble.open(t))
			before = second.data()

			result = must(runMigration(second, third))
			wantMigrated(t, second, third, before, result)

			third.pushMore("third")
			third.wantOrder()
		})
	}
}

// wantMigrated checks that the source is as before, and that the target has the same.
func wantMigrated(t *testing.T, from, to *fixture, before []string, result migrate.Result) {
	t.Helper()
	if !slices.Equal(from.data(), before) {
		t.Error("the source was changed")
	}
	if got := to.data(); !slices.Equal(got, before) {
		t.Errorf("the target has %d keys, the source %d, and they differ", len(got), len(before))
	}
	if result.Digest.Keys != int64(len(before)) {
		t.Errorf("%+v, want %d keys", result, len(before))
	}
	to.check()
}

// pushMore pushes items, and one that is a duplicate.
func (f *fixture) pushMore(value string) {
	f.Helper()
	jobs := f.queue("jobs")
	again := opPush(jobs, 0, "duplicate")
	again.Message.MsgID = "id"
	results := f.apply(opPush(jobs, 0, "0/"+value), opPush(jobs, 1, "1/"+value),
		opPush(f.fifoQueue("line"), 0, value), again)

	if !results[3].Duplicate {
		f.Errorf("%s: the message id is not known", value)
	}
}

// wantOrder pops everything. The first item was acknowledged.
func (f *fixture) wantOrder() {
	f.Helper()
	var jobs, line []string

	for priority := range 3 {
		for i := priority; i < 30; i += 3 {
			jobs = append(jobs, fmt.Sprintf("%d/%02d", priority, i))
		}
		if priority < 2 {
			jobs = append(jobs, fmt.Sprintf("%d/second", priority),
				fmt.Sprintf("%d/third", priority))
		}
	}

	for i := range 30 {
		line = append(line, fmt.Sprintf("%02d", i))
	}
	wantList(f.T, "jobs", f.values(f.queue("jobs").PopMin),
		append(jobs[1:], "once", "of a group", "expires")...)
	wantList(f.T, "line", f.values(f.fifoQueue("line").Dequeue), append(line, "second", "third")...)

	for i, value := range f.values(f.queue("large").PopMin) {
		if value != strings.Repeat(fmt.Sprintf("%08d", i), 15_000) {
			f.Errorf("large item %d is %.20s..., %d bytes", i, value, len(value))
		}
	}
}

// A migration that ends after any step is refused by OpenStore, and resumes where it was, whatever
// faults the store has.
func TestMigrateResumes(t *testing.T) {
	f := opened(t, mem.open(t))
	f.populate()

	// Each round stops after one step more, until a migration ends before that.
	for stop := 1; ; stop++ {
		to := f.target(mem.open(t))
		rates := maps.Clone(commitFaults)
		rates[faultkv.Outage] = 0.02
		faults := faultkv.New(to.db, faultkv.Options{Seed: uint64(stop), Rates: rates})

		ctx, cancel := context.WithCancel(f.ctx)
		steps, copied := 0, int64(0)

		progress := func(p migrate.Progress) {
			if !p.Checking {
				if p.Keys < copied {
					t.Errorf("stopped after step %d, seed %d: %d keys were copied, and then %d",
						stop, stop, copied, p.Keys)
				}
				copied = p.Keys
			}
			if steps++; steps == stop {
				cancel()
			}
		}

		result, err := migrate.Run(ctx, f.db, faults, f.Keyspace, progress)
		cancel()
		if err == nil {
			if stop < 8 { // populate has more than a few steps of data
				t.Errorf("it ended after %d steps, so few stops were tested", steps)
			}
			break
		}

		// The store has faults, so it may take several calls.
		began := steps > 0
		for n := 0; err != nil; n++ {
			if n > 100 || errors.Is(err, migrate.ErrDiffers) {
				t.Fatalf("stopped after step %d, seed %d: %v", stop, stop, err)
			}

			complete := false // if the outcome of the last commit was not known
			if steps > 0 {
				_, refused := to.open(f.Keyspace, fdbpq.StoreOptions{})
				if complete = refused == nil; !complete {
					wantError(t, refused, fdbpq.ErrUnfinished)
				}
			}

			result, err = migrate.Run(f.ctx, f.db, faults, f.Keyspace, progress)
			if complete && err == nil {
				t.Errorf("stopped after step %d, seed %d: the target could be opened before",
					stop, stop)
			}

			if errors.Is(err, migrate.ErrMigrated) {
				result.Resumed, err = true, nil
			}
		}

		faults.Land()
		if !result.Resumed && began {
			t.Errorf("stopped after step %d, seed %d: %+v", stop, stop, result)
		}

		data := f.data()
		if !slices.Equal(to.data(), data) {
			t.Errorf("stopped after step %d, seed %d: the stores differ", stop, stop)
		}
		if copied > int64(len(data)) {
			t.Errorf("stopped after step %d, seed %d: %d keys were copied of %d, so some of them "+
				"again", stop, stop, copied, len(data))
		}
	}
}

// atEachStep migrates to new stores, one for each step of copying, with something that happens at
// that step.
func atEachStep(
	t *testing.T, do func(f, to *fixture), after func(what string, f, to *fixture, err error),
) {
	for stop, steps := 1, 1; stop <= steps; stop++ {
		f := opened(t, mem.open(t))
		f.populate()
		to := f.target(mem.open(t))
		steps = 0

		_, err := migrate.Run(f.ctx, f.db, to.db, f.Keyspace, func(p migrate.Progress) {
			if p.Checking {
				return // the two are read at the same time
			}
			if steps++; steps == stop {
				do(f, to)
			}
		})

		after(fmt.Sprint("at step ", stop), f, to, err)
	}
}

// A migration notices what a bridge does to the source at any step, and starts over when it is
// called again.
func TestMigrateNoticesChanges(t *testing.T) {
	for _, change := range []func(f, to *fixture){
		func(f, _ *fixture) { f.apply(opPush(f.queue("jobs"), 0, "new")) },
		func(f, _ *fixture) { f.apply(op(opPopMin, f.queue("large"))) },
	} {
		atEachStep(t, change, func(what string, f, to *fixture, err error) {
			if !errors.Is(err, migrate.ErrDiffers) {
				t.Fatalf("changed %s: %v", what, err)
			}
			wantError(t, errOf(to.open(f.Keyspace, fdbpq.StoreOptions{})), fdbpq.ErrUnfinished)

			if result, err := runMigration(f, to); err != nil ||
				!slices.Equal(to.data(), f.data()) || !result.Resumed {
				t.Errorf("changed %s: the second call: %+v, %v", what, result, err)
			}
		})
	}
}

// The comparison notices a batch that runs after its queue was compared.
func TestMigrateNoticesChangeAtTheEnd(t *testing.T) {
	f := opened(t, mem.open(t))
	f.populate()
	queues, passes := f.stored(f.priority), 0

	source := &spy{Database: f.db, found: func(pairs ...kv.KeyValue) {
		if n := len(pairs); n > 0 && bytes.Equal(pairs[n-1].Key, queues[len(queues)-1].Key) {
			if passes++; passes == 2 { // the first is to copy them
				f.apply(opPush(f.queue("jobs"), 0, "new"))
			}
		}
	}}

	to := f.target(mem.open(t))
	wantError(t, errOf(migrate.Run(f.ctx, source, to.db, f.Keyspace, ignoreProgress)),
		migrate.ErrDiffers)

	to.corrupt = true
}

// The comparison notices whatever is wrong with the copy.
func TestMigrateNoticesDamage(t *testing.T) {
	f := opened(t, mem.open(t))
	f.populate()

	for name, damage := range map[string]func(tx kv.Transaction, pair kv.KeyValue){
		"value": func(tx kv.Transaction, pair kv.KeyValue) {
			pair.Value[len(pair.Value)-1]++
			tx.Set(pair.Key, pair.Value)
		},
		"key": func(tx kv.Transaction, pair kv.KeyValue) {
			tx.Clear(pair.Key)
			pair.Key[len(pair.Key)-1]++
			tx.Set(pair.Key, pair.Value)
		},
		"lost":  func(tx kv.Transaction, pair kv.KeyValue) { tx.Clear(pair.Key) },
		"added": func(tx kv.Transaction, pair kv.KeyValue) { tx.Set(append(pair.Key, 0), nil) },
	} {
		to := f.target(mem.open(t))
		damaged := false

		_, err := migrate.Run(f.ctx, f.db, to.db, f.Keyspace, func(migrate.Progress) {
			write(to, func(tx kv.Transaction) {
				items := must(
					tx.GetRange(everythingIn(to, "jobs", "i"), kv.RangeOptions{Limit: 1}).Get())
				if !damaged && len(items) > 0 {
					damaged = true
					damage(tx, kv.KeyValue{
						Key:   bytes.Clone(items[0].Key),
						Value: bytes.Clone(items[0].Value),
					})
				}
			})
		})
		if !errors.Is(err, migrate.ErrDiffers) {
			t.Errorf("%s: %v", name, err)
		}

		if _, err := runMigration(f, to); err != nil || !slices.Equal(to.data(), f.data()) {
			t.Errorf("%s: the second call: %v", name, err)
		}
	}
}

// A migration stops at its next step if another one to the same target was faster, because that
// target may be in service.
func TestMigrateTwice(t *testing.T) {
	overtake := func(f, to *fixture) {
		must(runMigration(f, to))
		to.values(to.queue("large").PopMin)
	}
	atEachStep(t, overtake, func(what string, _, to *fixture, err error) {
		if err == nil ||
			!strings.Contains(err.Error(), "another process migrates to the same target") {
			t.Errorf("overtaken %s: %v", what, err)
		}
		if _, err := to.open(to.Keyspace, fdbpq.StoreOptions{}); err != nil {
			t.Errorf("overtaken %s: the target: %v", what, err)
		}

		if left := to.values(to.queue("large").PopMin); len(left) > 0 {
			t.Errorf("overtaken %s: all items were popped, and there are %d again", what, len(left))
		}
	})
}

// What cannot be migrated is refused, and neither store changes.
func TestMigrateRefusals(t *testing.T) {
	set := func(key tuple.Tuple, value []byte) func(f *fixture) {
		return func(f *fixture) { write(f, func(tx kv.Transaction) { tx.Set(key.Pack(), value) }) }
	}
	for name, test := range map[string]struct {
		embedded bool // both stores are embedded ones, of one Keyspace
		source   func(f *fixture)
		target   func(from, to *fixture)
		want     error
	}{
		"source without a store": {source: func(f *fixture) {
			write(f, func(tx kv.Transaction) { tx.ClearRange(kv.Range{End: []byte{0xff}}) })
		}, want: migrate.ErrNoStore},
		"source from before the release": {
			source: (*fixture).clearRecord,
			want:   fdbpq.ErrStoreVersion,
		},
		"source of a newer version": {source: func(f *fixture) {
			newer := tuple.Tuple{storeVersion + 1}.Pack()
			write(f, func(tx kv.Transaction) { tx.Set(f.recordKeys()[1], newer) })
		}, want: fdbpq.ErrStoreVersion},
		"source that is a target": {
			source: func(f *fixture) { stopAtFirstStep(f.another(), f) },
			want:   fdbpq.ErrUnfinished,
		},
		"foreign key before": {
			embedded: true,
			source:   set(tuple.Tuple{"a"}, nil),
			want:     migrate.ErrForeignKeys,
		},
		"foreign key between": {
			embedded: true,
			source:   set(tuple.Tuple{"pq-unknown"}, nil),
			want:     migrate.ErrForeignKeys,
		},
		"foreign key behind": {
			embedded: true,
			source:   set(tuple.Tuple{"z"}, nil),
			want:     migrate.ErrForeignKeys,
		},
		"target with items": {
			target: func(_, to *fixture) { to.push(to.queue("jobs"), 0, "x") },
			want:   migrate.ErrNotEmpty,
		},
		"target with a store": {target: func(_, to *fixture) {
			must(to.open(to.Keyspace,
				fdbpq.StoreOptions{}))
		}, want: migrate.ErrNotEmpty},
		"embedded target with other keys": {
			embedded: true,
			target:   func(_, to *fixture) { set(tuple.Tuple{"z"}, nil)(to) },
			want:     migrate.ErrNotEmpty,
		},
		"target of another migration": {
			target: func(from, to *fixture) { stopAtFirstStep(from.another(), to) },
			want:   migrate.ErrNotEmpty,
		},
		"target of other settings": {target: func(from, to *fixture) {
			stopAtFirstStep(from, to)
			write(to, func(tx kv.Transaction) {
				for _, key := range to.recordKeys() {
					record := must(tuple.Unpack(must(tx.Get(key).Get())))
					record[4] = fdbpq.TupleValues.String()
					tx.Set(key, record.Pack())
				}
			})
		}, want: migrate.ErrNotEmpty},
		"target that is complete": {
			target: func(from, to *fixture) { must(runMigration(from, to)) },
			want:   migrate.ErrMigrated,
		},
	} {
		t.Run(name, func(t *testing.T) {
			open := mem.open
			if test.embedded {
				open = pebble.open
			}

			from := newFixtureIn(t, open(t), "pq-r", "q-r", fdbpq.RawValues)
			must(from.open(from.Keyspace, fdbpq.StoreOptions{}))
			from.push(from.queue("jobs"), 0, "item")
			to := from.target(open(t))

			if test.source != nil {
				test.source(from)
			}

			if test.target != nil {
				test.target(from, to)
			}

			stores := func() string { return fmt.Sprintf("%q, %q", from.pairs(), to.pairs()) }
			before := stores()
			wantError(t, errOf(runMigration(from, to)), test.want)
			wantEqual(t, "stores", stores(), before)

			to.corrupt, from.corrupt = true, true // some are half full
		})
	}
}

// another returns an empty store with the same roots.
func (f *fixture) another() *fixture {
	other := f.target(mem.open(f.T))
	must(other.open(other.Keyspace, fdbpq.StoreOptions{}))
	return other
}

// clearRecord removes the record of the store.
func (f *fixture) clearRecord() {
	write(f, func(tx kv.Transaction) {
		for _, key := range f.recordKeys() {
			tx.Clear(key)
		}
	})
}

// stopAtFirstStep begins a migration to a store, whatever it has, and does not end it.
func stopAtFirstStep(from, to *fixture) {
	write(to, func(tx kv.Transaction) {
		tx.ClearRange(kv.Range{Begin: []byte{}, End: []byte{0xff}})
	})
	ctx, cancel := context.WithCancel(from.ctx)

	_, err := migrate.Run(ctx, from.db, to.db, from.Keyspace, func(migrate.Progress) { cancel() })
	wantError(to.T, err, context.Canceled)
}

// A migration with other settings than the source has is refused.
func TestMigrateOtherSettings(t *testing.T) {
	f := opened(t, mem.open(t))
	for _, k := range []*fdbpq.Keyspace{
		must(fdbpq.NewKeyspace(f.priority, f.fifo, fdbpq.TupleValues)),
		must(fdbpq.NewKeyspace(f.priority, f.fifo+"x", fdbpq.RawValues)),
	} {
		_, err := migrate.Run(f.ctx, f.db, mem.open(t), k, ignoreProgress)
		if mismatch, ok := errors.AsType[*fdbpq.MismatchError](err); !ok {
			t.Errorf("%v, %v", err, mismatch)
		}
	}
}
