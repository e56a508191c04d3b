package kvtest

import (
	"context"
	"errors"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// wantReadsFail checks that every way to read fails with want.
func (f *fixture) wantReadsFail(want error, readers ...kv.Reader) {
	f.Helper()
	for _, r := range readers {
		if value, err := r.Get(f.key("a")).Get(); !errors.Is(err, want) || value != nil {
			f.Errorf("Get returned %q, %v, want %v", value, err, want)
		}

		pairs, err := r.GetRange(f.all(), kv.RangeOptions{}).Get()
		if !errors.Is(err, want) || pairs != nil {
			f.Errorf("GetRange returned %v, %v, want %v", pairs, err, want)
		}
	}
}

func (f *fixture) wantBeginFails(ctx context.Context, want error) {
	f.Helper()
	if tx, err := f.db.Begin(ctx, kv.BeginOptions{}); !errors.Is(err, want) || tx != nil {
		f.Errorf("Begin returned %v, %v, want nil, %v", tx, err, want)
	}
	if tx, err := f.db.BeginRead(ctx); !errors.Is(err, want) || tx != nil {
		f.Errorf("BeginRead returned %v, %v, want nil, %v", tx, err, want)
	}
}

func (f *fixture) wantCommitFails(tx kv.Transaction, want error) {
	f.Helper()
	_, err := tx.Commit().Get()
	if !errors.Is(err, want) || kv.MaybeCommitted(err) {
		f.Errorf("Commit returned %v, want %v", err, want)
	}
}

// endings are the ways to end a transaction that has set "a" to "1".
var endings = []struct {
	name  string
	end   func(f *fixture, tx kv.Transaction)
	wrote bool
}{
	{"Commit", func(f *fixture, tx kv.Transaction) { await(f, tx.Commit()) }, true},
	{"Cancel", func(_ *fixture, tx kv.Transaction) { tx.Cancel() }, false},
	{"CommitWithoutWaiting", func(f *fixture, tx kv.Transaction) {
		commit := tx.Commit()
		tx.Cancel()
		await(f, commit)
	}, true},
	{"FailedCommit", func(f *fixture, tx kv.Transaction) {
		_, _ = set(long(1), "").do(f, tx)
		f.wantCommitFails(tx, kv.ErrTooLarge)
	}, false},
}

// endTests check that a transaction that has ended cannot be used any more, and that trying does no
// harm.
func endTests() (tests []test) {
	for _, ending := range endings {
		for _, writes := range []bool{true, false} {
			if !writes && ending.name == "FailedCommit" {
				continue
			}

			name := "UseAfter" + ending.name + map[bool]string{false: "ReadOnly"}[writes]
			tests = append(tests, test{name, func(f *fixture) {
				m := model{"a": "0"}
				f.write(set("a", "0"))
				tx := f.begin()
				snapshot := tx.Snapshot()
				f.run(tx, modelOf(set("a", "0")), get("a"))
				if writes {
					f.run(tx, model{}, set("a", "1"))
				}
				if ending.end(f, tx); writes && ending.wrote {
					m.apply(set("a", "1"))
				}

				late := []op{
					set("late", "1"), clearKey("a"), clearRange("", "\xff"), add("late", 1),
					compareAndClear("a", "1"), readConflict("", "\xff"), writeConflict("", "\xff"),
				}

				for _, o := range late {
					_, _ = o.do(f, tx)
				}

				f.wantReadsFail(kv.ErrUsed, tx, snapshot, tx.Snapshot())
				for range 2 {
					f.wantCommitFails(tx, kv.ErrUsed)
					tx.Cancel()
					tx.Cancel()
				}

				f.wantPairs(f.beginRead(), m)
			}})
		}
	}

	return tests
}

var lifecycleTests = append(endTests(), []test{
	// A read-only transaction that was cancelled reads nothing more.
	{"ReadAfterCancel", func(f *fixture) {
		tx := f.beginRead()
		f.wantRead(tx, model{}, get("a"))
		tx.Cancel()
		tx.Cancel()
		f.wantReadsFail(kv.ErrUsed, tx)
	}},
	// Nothing begins with a context that has ended.
	{"BeginWithEndedContext", func(f *fixture) {
		cancelled, cancel := context.WithCancel(f.ctx)
		cancel()
		expired, cancel := context.WithDeadline(f.ctx, time.Now().Add(-time.Second))
		defer cancel()
		f.wantBeginFails(cancelled, context.Canceled)
		f.wantBeginFails(expired, context.DeadlineExceeded)
	}},
	// A transaction sees the store as it was when Begin returned.
	{"BeginFixesTheState", onlyIf(concurrent, func(f *fixture) {
		f.write(set("a", "1"))
		tx := f.begin()
		f.write(set("a", "2"))
		f.wantRead(tx, modelOf(set("a", "1")), get("a"))
	})},
	// A transaction ends with its context, and blocks no other then.
	{"ContextEndsDuringTransaction", func(f *fixture) {
		ctx, cancel := context.WithCancel(f.ctx)
		defer cancel()
		tx := f.beginWith(ctx, kv.BeginOptions{})
		f.run(tx, model{}, get("a"), set("a", "1"))
		reader, err := f.db.BeginRead(ctx)
		if err != nil {
			f.Fatalf("BeginRead: %v", err)
		}
		defer reader.Cancel()
		f.wantRead(reader, model{}, get("a"))

		cancel()
		f.write(set("b", "1")) // Another one can begin, even if this one was forgotten.
		f.wantReadsFail(context.Canceled, tx, tx.Snapshot(), reader)
		f.wantCommitFails(tx, context.Canceled)
		tx.Cancel()
		f.wantPairs(f.beginRead(), model{"b": "1"})
	}},
	// The end of the context takes back no commit.
	{"ContextEndsAfterCommit", func(f *fixture) {
		ctx, cancel := context.WithCancel(f.ctx)
		defer cancel()
		tx := f.beginWith(ctx, kv.BeginOptions{})
		f.run(tx, model{}, set("a", "1"))
		await(f, tx.Commit())
		cancel()
		f.wantPairs(f.beginRead(), model{"a": "1"})
	}},
	// A Begin that waits for another writer ends with its context.
	{"ContextEndsWhileBeginWaits", onlyIf(serial, func(f *fixture) {
		tx := f.begin()
		ctx, cancel := context.WithCancel(f.ctx)
		begun := f.beginLater(ctx)
		cancel()
		if _, err := begun(); !errors.Is(err, context.Canceled) {
			f.Errorf("Begin returned %v, want context.Canceled", err)
		}

		// Neither the writer before it nor the one after it is disturbed.
		f.run(tx, model{}, set("a", "1"))
		await(f, tx.Commit())
		f.write(set("b", "2"))
		f.wantPairs(f.beginRead(), model{"a": "1", "b": "2"})
	})},
	// Close ends open transactions without their writes, and nothing begins any more.
	{"Closed", func(f *fixture) {
		f.write(set("a", "1"))
		reader, tx := f.beginRead(), f.begin()
		f.wantRead(reader, model{"a": "1"}, get("a"))
		f.run(tx, model{}, set("a", "2"))
		for range 2 {
			f.close()
		}

		f.wantReadsFail(kv.ErrClosed, reader, tx, tx.Snapshot())
		f.wantCommitFails(tx, kv.ErrClosed)
		reader.Cancel()
		tx.Cancel()
		f.wantBeginFails(f.ctx, kv.ErrClosed)
		if err := f.db.Check(); !errors.Is(err, kv.ErrClosed) {
			f.Errorf("Check returned %v, want ErrClosed", err)
		}
		if f.engine.Persistent {
			f.db = f.open()
			f.wantPairs(f.beginRead(), model{"a": "1"})
		}
	}},
	// Close ends a transaction that has only read.
	{"CloseEndsReadOnly", func(f *fixture) {
		tx := f.begin()
		f.run(tx, model{}, get("a"))
		f.close()
		f.wantCommitFails(tx, kv.ErrClosed)
	}},
	// Close ends a Begin that waits for another writer.
	{"CloseEndsWaitingBegin", onlyIf(serial, func(f *fixture) {
		tx := f.begin()
		begun := f.beginLater(f.ctx)
		f.close()
		if _, err := begun(); !errors.Is(err, kv.ErrClosed) {
			f.Errorf("Begin returned %v, want ErrClosed", err)
		}

		f.wantCommitFails(tx, kv.ErrClosed)
	})},
	// Everything committed, and nothing else, is there after the store was closed and opened again.
	{"Reopen", onlyIf(persistent, func(f *fixture) {
		before := puts("0", "a", "b", "c", "d", "n")
		f.write(before...)
		f.reopen()

		ops := []op{set("a", "1"), set("empty", ""), clearRange("b", "d"),
			compareAndClear("d", "0"), set("n", number(1)), add("n", 1)}
		f.write(ops...)
		m := modelOf(append(before, ops...)...)
		f.run(f.begin(), model{}, set("a", "uncommitted"))
		for range 2 {
			f.reopen()
			f.wantModel(f.beginRead(), m)
		}

		f.write(set("a", "3"))
		m.apply(set("a", "3"))
		f.wantPairs(f.beginRead(), m)
	})},
	// Check finds nothing wrong with a store that works.
	{"CheckFindsNothing", func(f *fixture) {
		check := func(when string) {
			f.Helper()
			if err := f.db.Check(); err != nil {
				f.Errorf("%s Check returned %v", when, err)
			}
		}

		check("of an empty store")
		tx := f.begin()
		f.run(tx, model{}, set("a", "1"))
		check("while a transaction is open")
		await(f, tx.Commit())
		check("after a commit")

		// A transaction that fails says nothing about the store.
		tx = f.begin()
		f.run(tx, model{}, set(long(1), ""))
		f.wantCommitFails(tx, kv.ErrTooLarge)
		check("after a commit that was refused")
	}},
}...)
