package kvtest

import (
	"context"
	"errors"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

var traitTests = []test{
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
	{"Serial", func(f *fixture) {
		// A second writer waits for the first exactly if the engine is serial.
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
	{"Turn", func(f *fixture) {
		// Turns count transactions only where one writer runs at a time and nobody else can write.
		t := f.db.Traits()
		first := f.begin()
		defer first.Cancel()
		turn := first.Turn()
		if !t.Serial || t.Shared {
			if turn != 0 {
				f.Errorf("Turn returned %d, want 0", turn)
			}
			return
		}
		if turn < 1 {
			f.Errorf("Turn returned %d, want at least 1", turn)
		}

		first.Cancel()
		for _, test := range []struct {
			name    string
			end     func(tx kv.Transaction)
			follows bool // the next transaction has the next turn
		}{
			{"commits nothing", func(tx kv.Transaction) { await(f, tx.Commit()) }, true},
			{"commits a write", func(tx kv.Transaction) {
				tx.Set([]byte("1"), []byte("a"))
				await(f, tx.Commit())
			}, true},
			{"is cancelled", kv.Transaction.Cancel, false},
			{"is cancelled after a write", func(tx kv.Transaction) {
				tx.Set([]byte("1"), nil)
				tx.Cancel()
			}, false},
			{"commits what is too large", func(tx kv.Transaction) {
				tx.Set(make([]byte, kv.MaxKeySize+1), nil)
				if _, err := tx.Commit().Get(); err == nil {
					f.Error("Commit of a key that is too large returned no error")
				}
			}, false},
			{"writes after its context", nil, false},
		} {
			ctx, cancel := context.WithCancel(f.ctx)
			tx := f.beginWith(ctx, kv.BeginOptions{})
			if test.end == nil {
				cancel()
				tx.Set([]byte("2"), nil)
				test.end = kv.Transaction.Cancel
			}

			turn := tx.Turn()
			test.end(tx)
			cancel()
			next := f.begin()
			if got := next.Turn(); (got == turn+1) != test.follows || got <= turn {
				f.Errorf("after a transaction that %s Turn returned %d after %d",
					test.name, got, turn)
			}

			await(f, next.Commit())
		}
	}},
	{"Shared", func(f *fixture) {
		// What one Database of a shared store commits, another one sees.
		if !f.db.Traits().Shared || !f.engine.Persistent {
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
	}},
}
