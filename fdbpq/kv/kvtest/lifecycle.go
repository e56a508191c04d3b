package kvtest

import (
	"context"
	"errors"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// wantReadsFail checks that every way to read fails with want.
func (f *fixture) wantReadsFail(r kv.Reader, want error) {
	f.Helper()
	if value, err := r.Get(f.key("a")).Get(); !errors.Is(err, want) || value != nil {
		f.Errorf("Get returned %q, %v, want %v", value, err, want)
	}
	if pairs, err := r.GetRange(f.all(), kv.RangeOptions{}).Get(); !errors.Is(err, want) || pairs != nil {
		f.Errorf("GetRange returned %v, %v, want %v", pairs, err, want)
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

// wantEnded checks that a transaction cannot be used any more, and that trying to
// does no harm.
func (f *fixture) wantEnded(tx kv.Transaction) {
	f.Helper()
	before := tx.Snapshot()
	tx.Set(f.key("late"), []byte("1"))
	tx.Clear(f.key("a"))
	tx.ClearRange(f.all())
	tx.Add(f.key("late"), 1)
	tx.CompareAndClear(f.key("a"), []byte("1"))
	tx.AddReadConflict(f.all())
	tx.AddWriteConflict(f.all())

	f.wantReadsFail(tx, kv.ErrUsed)
	f.wantReadsFail(before, kv.ErrUsed)
	f.wantCommitFails(tx, kv.ErrUsed)
	tx.Cancel()
	tx.Cancel()
	f.wantCommitFails(tx, kv.ErrUsed)
}

var lifecycleTests = []test{
	{"UseAfterCommit", func(f *fixture) {
		tx := f.begin()
		snapshot := tx.Snapshot()
		tx.Set(f.key("a"), []byte("1"))
		await(f, tx.Commit())
		f.wantEnded(tx)
		f.wantReadsFail(snapshot, kv.ErrUsed)
		f.wantAllLimits(f.beginRead(), "a=1")
	}},
	{"UseAfterReadOnlyCommit", func(f *fixture) {
		tx := f.begin()
		f.wantGet(tx, "a", absent)
		await(f, tx.Commit())
		f.wantEnded(tx)
		f.wantAllLimits(f.beginRead())
	}},
	{"UseAfterCancel", func(f *fixture) {
		f.put("1", "a")
		tx := f.begin()
		tx.Set(f.key("b"), []byte("1"))
		tx.Cancel()
		f.wantEnded(tx)
		f.wantAllLimits(f.beginRead(), "a=1")
	}},
	{"UseAfterFailedCommit", func(f *fixture) {
		f.put("1", "a")
		tx := f.begin()
		tx.Set(f.longKey(kv.MaxKeySize+1), nil)
		f.wantCommitFails(tx, kv.ErrTooLarge)
		f.wantEnded(tx)
		f.wantAllLimits(f.beginRead(), "a=1")
	}},
	{"ReadAfterCancel", func(f *fixture) {
		tx := f.beginRead()
		f.wantGet(tx, "a", absent)
		tx.Cancel()
		tx.Cancel()
		f.wantReadsFail(tx, kv.ErrUsed)
	}},
	{"CancelAfterCommitKeepsTheWrites", func(f *fixture) {
		tx := f.begin()
		tx.Set(f.key("a"), []byte("1"))
		commit := tx.Commit()
		tx.Cancel()
		await(f, commit)
		f.wantStored("a", "1")
	}},
	{"BeginWithEndedContext", func(f *fixture) {
		cancelled, cancel := context.WithCancel(f.ctx)
		cancel()
		expired, cancel := context.WithDeadline(f.ctx, time.Now().Add(-time.Second))
		defer cancel()
		for ctx, want := range map[context.Context]error{cancelled: context.Canceled, expired: context.DeadlineExceeded} {
			f.wantBeginFails(ctx, want)
		}
	}},
	{"ContextEndsDuringTransaction", func(f *fixture) {
		ctx, cancel := context.WithCancel(f.ctx)
		defer cancel()
		tx := f.beginWith(ctx, kv.BeginOptions{})
		f.wantGet(tx, "a", absent)
		tx.Set(f.key("a"), []byte("1"))
		cancel()
		f.wantReadsFail(tx, context.Canceled)
		f.wantReadsFail(tx.Snapshot(), context.Canceled)
		f.wantCommitFails(tx, context.Canceled)
		tx.Cancel()
		f.wantStored("a", absent)
		f.put("2", "a") // another one can begin
	}},
	{"ContextEndsDuringReadTransaction", func(f *fixture) {
		ctx, cancel := context.WithCancel(f.ctx)
		defer cancel()
		tx, err := f.db.BeginRead(ctx)
		if err != nil {
			f.Fatalf("BeginRead: %v", err)
		}
		defer tx.Cancel()
		f.wantGet(tx, "a", absent)
		cancel()
		f.wantReadsFail(tx, context.Canceled)
	}},
	{"ContextEndsAfterCommit", func(f *fixture) {
		ctx, cancel := context.WithCancel(f.ctx)
		defer cancel()
		tx := f.beginWith(ctx, kv.BeginOptions{})
		tx.Set(f.key("a"), []byte("1"))
		await(f, tx.Commit())
		cancel()
		f.wantStored("a", "1")
	}},
	{"ContextEndsWhileBeginWaits", func(f *fixture) {
		if !f.db.Traits().Serial {
			return // Begin never waits
		}
		tx := f.begin()
		ctx, cancel := context.WithCancel(f.ctx)
		begun := f.beginLater(ctx)
		cancel()
		if err := <-begun; !errors.Is(err, context.Canceled) {
			f.Errorf("Begin returned %v, want context.Canceled", err)
		}
		// The writer before it is not disturbed, nor is the one after it.
		tx.Set(f.key("a"), []byte("1"))
		await(f, tx.Commit())
		f.put("2", "a")
		f.wantStored("a", "2")
	}},
	{"Closed", func(f *fixture) {
		f.put("1", "a")
		reader, tx := f.beginRead(), f.begin()
		f.wantGet(reader, "a", "1")
		tx.Set(f.key("a"), []byte("2"))
		for range 2 {
			f.close()
		}
		f.wantReadsFail(reader, kv.ErrClosed)
		f.wantReadsFail(tx, kv.ErrClosed)
		f.wantReadsFail(tx.Snapshot(), kv.ErrClosed)
		f.wantCommitFails(tx, kv.ErrClosed)
		reader.Cancel()
		tx.Cancel()
		f.wantBeginFails(f.ctx, kv.ErrClosed)
		if f.engine.Persistent {
			f.db = f.open()
			f.wantStored("a", "1")
		}
	}},
	{"CloseEndsReadOnly", func(f *fixture) {
		tx := f.begin()
		f.wantGet(tx, "a", absent)
		f.close()
		f.wantCommitFails(tx, kv.ErrClosed)
	}},
	{"CloseEndsWaitingBegin", func(f *fixture) {
		if !f.db.Traits().Serial {
			return
		}
		tx := f.begin()
		begun := f.beginLater(f.ctx)
		f.close()
		if err := <-begun; !errors.Is(err, kv.ErrClosed) {
			f.Errorf("Begin returned %v, want ErrClosed", err)
		}
		f.wantCommitFails(tx, kv.ErrClosed)
	}},
	{"Reopen", func(f *fixture) {
		if !f.engine.Persistent {
			return
		}
		f.put("0", "a", "b", "c", "d", "n")
		f.reopen()
		f.write(func(tx kv.Transaction) {
			tx.Set(f.key("a"), []byte("1"))
			tx.Set(f.key("empty"), nil)
			tx.ClearRange(f.span("b", "d"))
			tx.CompareAndClear(f.key("d"), []byte("0"))
			tx.Set(f.key("n"), []byte(number(1)))
			tx.Add(f.key("n"), 1)
		})
		uncommitted := f.begin()
		uncommitted.Set(f.key("a"), []byte("2"))
		for range 2 {
			f.reopen()
			f.wantAllLimits(f.beginRead(), "a=1", "empty=", "n="+number(2))
		}
		f.put("3", "a")
		f.wantAllLimits(f.beginRead(), "a=3", "empty=", "n="+number(2))
	}},
}
