package kvtest

import (
	"context"
	"errors"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

var traitTests = []test{
	// Traits never change, not even when the store is closed or opened again.
	{"AlwaysTheSame", func(f *fixture) {
		want := f.db.Traits()
		f.write(set("a", "1"))
		for _, change := range []func(){f.close, func() { f.db = f.open() }} {
			change()
			if got := f.db.Traits(); got != want {
				f.Errorf("closed, or opened again, Traits returned %+v, before %+v", got, want)
			}
		}
	}},
	// A second writer waits for the first exactly if the engine is serial.
	{"Serial", func(f *fixture) {
		first := f.begin()
		f.run(first, model{}, set("a", "1"))
		if !f.db.Traits().Serial {
			second := f.begin()
			f.run(second, model{}, set("b", "1"))
			await(f, second.Commit())
			await(f, first.Commit())
			return
		}

		ctx, cancel := context.WithTimeout(f.ctx, 20*time.Millisecond)
		defer cancel()
		second, err := f.db.Begin(ctx, kv.BeginOptions{})
		if !errors.Is(err, context.DeadlineExceeded) {
			f.Errorf("Begin while another transaction is open returned %v, %v, want it to wait",
				second, err)
		}

		await(f, first.Commit())
		f.begin().Cancel()
	}},
	// Turns grow by one exactly if the next transaction can rely on what the last one has left.
	{"Turn", func(f *fixture) {
		first := f.begin()
		turn := first.Turn()
		first.Cancel()

		// Turns count transactions only where one writer runs at a time and nobody else can write.
		if t := f.db.Traits(); !t.Serial || t.Shared {
			if turn != 0 {
				f.Errorf("Turn returned %d, want 0", turn)
			}
			return
		}
		if turn < 1 {
			f.Errorf("Turn returned %d, want at least 1", turn)
		}

		for _, ending := range endings {
			for _, writes := range []bool{false, true} {
				f.wantTurn(f.ctx, ending.name, ending.wrote, func(tx kv.Transaction) {
					if writes {
						tx.Set(f.key("a"), nil)
					}
					ending.end(f, tx)
				})
			}
		}
		ctx, cancel := context.WithCancel(f.ctx)
		f.wantTurn(ctx, "the end of its context", false, func(tx kv.Transaction) {
			cancel()
			tx.Set(f.key("a"), nil)
			tx.Cancel()
		})
	}},
	// What one Database of a shared store commits, another one sees.
	{"Shared", onlyIf(persistent, func(f *fixture) {
		if !f.db.Traits().Shared {
			return
		}

		other := f.open()
		defer func() {
			if err := other.Close(); err != nil {
				f.Errorf("Close of the other Database: %v", err)
			}
		}()
		f.write(set("a", "1"))
		first := f.db
		f.db = other
		f.wantPairs(f.beginRead(), model{"a": "1"})
		f.write(set("a", "2"))
		f.db = first
		f.wantPairs(f.beginRead(), model{"a": "2"})
	})},
}

// wantTurn checks the turn of a transaction that begins after another one was ended. It follows if
// it can rely on what the other one has left.
func (f *fixture) wantTurn(
	ctx context.Context, name string, follows bool, end func(tx kv.Transaction),
) {
	f.Helper()
	tx := f.beginWith(ctx, kv.BeginOptions{})
	turn := tx.Turn()
	end(tx)

	next := f.begin()
	if got := next.Turn(); (got == turn+1) != follows || got <= turn {
		f.Errorf("after %s Turn returned %d after %d", name, got, turn)
	}
	await(f, next.Commit())
}
