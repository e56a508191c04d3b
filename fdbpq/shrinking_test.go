package fdbpq_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/pebblekv"
	"github.com/pqbridge/pqbridge/fdbpq/staged"
)

// When a process starts on a nearly full disk, its first pop succeeds, however short the
// keys of the item are, and so do later ones. Pushes do not, not even those that remove the
// receipt of a pop.
func TestPopsOnNearlyFullDisk(t *testing.T) {
	const keep = 1 << 20 // MinFreeSpace
	for _, name := range []string{"a", "a-queue-with-a-longer-name"} {
		for _, popper := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/staged=%t", name, popper), func(t *testing.T) {
				disk := vfs.NewMem()
				open := func(free uint64) kv.Database {
					disk.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: free})
					return must(pebblekv.Open("db", pebblekv.Options{FS: disk, MinFreeSpace: keep, Logger: slog.New(slog.DiscardHandler)}))
				}
				roomy := open(1 << 40)
				k := must(fdbpq.NewKeyspace("p", "f", fdbpq.RawValues))
				q, fifo := must(k.PriorityQueue(name)), must(k.Queue(name))
				b := fdbpq.NewBatcher(roomy, k)
				for _, value := range []string{"1", "2", "3"} {
					if _, err := b.Apply(t.Context(), []fdbpq.Op{opPush(q, 0, value), opPush(fifo, 0, value)}); err != nil {
						t.Fatal(err)
					}
				}
				if err := roomy.Close(); err != nil {
					t.Fatal(err)
				}

				f := newFixtureIn(t, open(keep/2), "p", "f", fdbpq.RawValues)
				if popper {
					wantPop(f, staged.New(f.db, f.queue(name)).PopMin, "1")
					wantPop(f, staged.New(f.db, f.queue(name)).PopMax, "3")
					return
				}
				for _, want := range []string{"1", "2"} {
					for _, target := range []fdbpq.Target{f.queue(name), f.fifoQueue(name)} {
						results, err := f.batcher.Apply(f.ctx, []fdbpq.Op{op(opPopMin, target)})
						if err != nil || string(results[0].Item.Value) != want {
							t.Errorf("a pop of %q: %+v, error %v", want, results, err)
						}
					}
					_, err := f.batcher.Apply(f.ctx, []fdbpq.Op{opPush(f.queue(name), 0, "")})
					wantError(t, err, kv.ErrUnavailable)
				}
			})
		}
	}
}

// wantPop pops with a Popper.
func wantPop(f *fixture, pop func(context.Context) (fdbpq.Item, error), want string) {
	f.Helper()
	item, err := pop(f.ctx)
	if err != nil || string(item.Value) != want {
		f.Errorf("popped %q (error %v), want %q", item.Value, err, want)
	}
}

// full is a store that begins only transactions that shrink it.
type full struct{ kv.Database }

func (f full) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	if !o.Shrinks {
		return nil, kv.ErrUnavailable
	}
	return f.Database.Begin(ctx, o)
}

// Everything that removes items or puts them back says so, and nothing that pushes does.
func TestShrinks(t *testing.T) {
	f := newUnsure(t, faultkv.Options{})
	q, fifo := f.queue("a"), f.fifoQueue("a")
	f.apply(opPush(q, 1, "1"), opPush(q, 2, "2"), opPush(q, 3, "3"), opPush(fifo, 0, "f"))
	nearlyFull := full{f.watched}
	f.batcher = fdbpq.NewBatcher(nearlyFull, f.Keyspace)

	// Items that come back may be larger than anything that is removed with them.
	f.abandon(faultkv.UnknownMade, op(opPopMin, q), op(opPopMin, fifo))
	wantEqual(t, "items before Settle", f.length(q), 2)
	if err := f.batcher.Settle(f.ctx); err != nil {
		t.Errorf("Settle: %v", err)
	}
	ops := []fdbpq.Op{op(opPopMin, q), op(opPopMin, fifo), op(opPeekMax, q), op(opLen, q)}
	wantList(t, "a batch with pops", summary(ops, f.apply(ops...)), "1", "f", "3", "3")

	for _, ops := range [][]fdbpq.Op{
		{opPush(q, 0, "")},
		{opPush(q, 0, ""), op(opPopMin, q)},
		{op(opPopMin, q), op(opPopMax, q), opPush(fifo, 0, "")},
	} {
		_, err := f.batcher.Apply(f.ctx, ops)
		wantError(t, err, kv.ErrUnavailable)
	}
	if err := fdbpq.SweepReceipts(f.ctx, nearlyFull, f.Keyspace, 0); err != nil {
		t.Errorf("SweepReceipts: %v", err)
	}
	wantEqual(t, "receipts", len(f.stored(f.priority+"-x")), 0)

	p := staged.New(nearlyFull, q)
	wantPop(f.fixture, p.PopMax, "3")
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	f.watched.unknown = cancel
	f.faults.Next(faultkv.UnknownMade)
	_, err := p.PopMin(ctx)
	wantError(t, err, context.Canceled)
	if kv.MaybeCommitted(err) {
		t.Errorf("the pop was not withdrawn: %v", err)
	}
	wantPop(f.fixture, p.PopMin, "2")
}
