package fdbpq_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// applyUntilUnknown runs a batch whose context ends when a commit fails with fault.
func (f *unsure) applyUntilUnknown(fault faultkv.Fault, ops ...fdbpq.Op) ([]fdbpq.Result, error) {
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	f.watched.unknown = cancel
	defer func() { f.watched.unknown = nil }()
	f.faults.Next(fault)
	return f.batcher.Apply(ctx, ops)
}

// abandon is applyUntilUnknown for a batch that must end like that.
func (f *unsure) abandon(fault faultkv.Fault, ops ...fdbpq.Op) {
	f.Helper()
	results, err := f.applyUntilUnknown(fault, ops...)
	wantError(f.T, err, kv.ErrCommitUnknown)
	wantError(f.T, err, context.Canceled)
	if results != nil {
		f.Errorf("a batch of unknown outcome has results: %+v", results)
	}
}

// An attempt of unknown outcome can no longer commit once the batch has its results, not even
// after its receipt was removed.
func TestFirstAttemptLandsAfterTheAnswer(t *testing.T) {
	for _, later := range []int{0, 1, 2, 5} {
		for _, settled := range []bool{false, true} {
			f := newUnsure(t, faultkv.Options{})
			q, fifo := f.queue("a"), f.fifoQueue("a")
			f.apply(opPush(q, 1, "a"), opPush(q, 2, "b"), opPush(fifo, 0, "c"))
			held := &holding{Database: f.inner}
			b := fdbpq.NewBatcher(held, f.Keyspace)
			ctx, cancel := context.WithCancel(f.ctx)
			if settled {
				held.unknown = cancel
			}
			ops := []fdbpq.Op{opPush(f.queue("other"), 3, "new"), opPush(fifo, 0, "new")}
			_, err := b.Apply(ctx, ops)
			cancel()
			if settled != kv.MaybeCommitted(err) {
				t.Errorf("Apply: %v", err)
			}
			wantError(t, b.Settle(f.ctx), nil)
			for range later {
				must(b.Apply(f.ctx, []fdbpq.Op{opPush(q, 9, "later")}))
			}
			_, err = held.first.Commit().Get()
			wantError(t, err, kv.ErrConflict)
			want := int64(2)
			if settled {
				want = 1 // that of the start
			}
			wantEqual(t, "items", f.length(fifo), want)
		}
	}
}

// holding keeps the first transaction that should commit, returns an unknown outcome, and
// calls unknown.
type holding struct {
	kv.Database
	unknown func()
	first   kv.Transaction
}

func (h *holding) Begin(_ context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	// Not with the caller's context: a commit in flight outlives it.
	tx, err := h.Database.Begin(context.Background(), o)
	return heldTransaction{tx, h}, err
}

type heldTransaction struct {
	kv.Transaction
	holding *holding
}

func (tx heldTransaction) Commit() kv.Future[struct{}] {
	if tx.holding.first != nil {
		return tx.Transaction.Commit()
	}
	tx.holding.first = tx.Transaction
	if tx.holding.unknown != nil {
		tx.holding.unknown()
	}
	return kv.Ready(struct{}{}, kv.ErrCommitUnknown)
}

func (tx heldTransaction) Cancel() {
	if tx.Transaction != tx.holding.first {
		tx.Transaction.Cancel()
	}
}

// An item that expires while its batch is settled leaves its queue once, whichever attempt to settle
// commits.
func TestSettleCountsExpiredOnce(t *testing.T) {
	for _, fault := range []faultkv.Fault{faultkv.UnknownMade, faultkv.UnknownBeforeNext, faultkv.UnknownDuringNext} {
		for ttl := time.Second; ttl < 4*time.Second; ttl += 100 * time.Millisecond {
			f := newUnsure(t, faultkv.Options{})
			begin := time.Now()
			var calls atomic.Int64
			f.batcher.SetNow(func() time.Time { return begin.Add(time.Duration(calls.Add(1)) * 200 * time.Millisecond) })
			q := f.queue("a")
			f.apply(withTTL(opPush(q, 1, "v"), ttl))
			if _, err := f.applyUntilUnknown(faultkv.UnknownMade, op(opPopMin, q)); !kv.MaybeCommitted(err) {
				continue // it has expired already
			}
			f.faults.Next(fault)
			wantError(t, f.batcher.Settle(f.ctx), nil)
			f.calm()
			all := f.sweepDue(begin.Add(time.Hour), q).expired + f.batcher.Removed().Expired
			wantEqual(t, fmt.Sprint(fault, ttl), all, 1)
		}
	}
}

// Popped items that do not fit into one transaction return in parts. They may take much more of it than the length of
// their values: zero bytes count twice in tuples, and long keys several times.
func TestSettleOfMuchData(t *testing.T) {
	large := fdbpq.Message{Value: pattern(fdbpq.MaxMessageSize/2+1, 1)}
	for name, c := range map[string]struct {
		format   fdbpq.ValueFormat
		queue    string
		n        int
		priority int64
		message  fdbpq.Message
		script   []faultkv.Fault
	}{
		"values": {queue: "a", n: 5, message: large},
		"faults": {queue: "a", n: 5, message: large, script: append([]faultkv.Fault{faultkv.UnknownMade}, unanswered...)},
		"zeros":  {format: fdbpq.TupleValues, queue: "a", n: 300, message: fdbpq.Message{Value: make([]byte, 45_000)}},
		"keys": {
			queue: strings.Repeat("x", 128), n: 6500, priority: 1 << 60,
			message: fdbpq.Message{Value: make([]byte, 800), Headers: map[string][]string{"A": {"b"}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newUnsureWith(t, faultkv.Options{}, c.format)
			q := f.queue(c.queue)
			push := fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Priority: c.priority, Message: c.message}
			for some := range slices.Chunk(slices.Repeat([]fdbpq.Op{push}, c.n), min(c.n/5, 100)) {
				f.apply(some...)
			}
			before := f.stored(f.priority)
			f.abandon(faultkv.UnknownMade, slices.Repeat([]fdbpq.Op{op(opPopMin, q)}, c.n)...)
			f.faults.Next(c.script...)
			wantError(t, f.batcher.Settle(f.ctx), nil)
			f.calm()
			if !slices.EqualFunc(f.stored(f.priority), before, func(a, b kv.KeyValue) bool {
				return bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Value, b.Value)
			}) {
				t.Error("the queue is not as it was")
			}
		})
	}
}

// If a batch cannot start because an earlier one cannot be settled, its error says that
// nothing happened.
func TestUnsettledBatchBlocksTheNext(t *testing.T) {
	f := newUnsure(t, faultkv.Options{})
	q := f.queue("a")
	f.apply(opPush(q, 1, "v"))
	f.abandon(faultkv.UnknownMade, op(opPopMin, q))
	f.faults.SetOutage(true)
	_, err := f.batcher.Apply(f.ctx, []fdbpq.Op{opPush(q, 2, "w")})
	wantError(t, err, kv.ErrUnavailable)
	if kv.MaybeCommitted(err) {
		t.Errorf("the push was not tried, and the error is %v", err)
	}
	f.faults.SetOutage(false)
	_, err = f.applyUntilUnknown(faultkv.UnknownLost, opPush(q, 2, "w"))
	wantError(t, err, context.Canceled)
	if kv.MaybeCommitted(err) {
		t.Errorf("the push was not tried, and the error is %v", err)
	}
	wantList(t, "values", summary(make([]fdbpq.Op, 1), f.apply(op(opPopMin, q))), "v")
}

// Old receipts of dead Batchers are swept.
func TestSweepReceipts(t *testing.T) {
	onEngines(t, func(f *fixture) {
		f.corrupt = true // half of the receipts are of no Batcher
		now := time.Now()
		space := tuple.NewSubspace(tuple.Tuple{f.priority + "-x"})
		for page := range 5 {
			write(f, func(tx kv.Transaction) {
				for i := range 500 {
					age := time.Hour * time.Duration(i%2) * 3
					tx.Set(space.Pack(tuple.Tuple{fmt.Append(nil, page), i}), tuple.Tuple{now.Add(-age).UnixMicro(), 1, 0}.Pack())
				}
			})
		}
		wantError(f.T, fdbpq.SweepReceipts(f.ctx, f.db, f.Keyspace, 2*time.Hour), nil)
		wantEqual(f.T, "receipts", len(f.stored(f.priority+"-x")), 1250)
		wantError(f.T, fdbpq.SweepReceipts(f.ctx, f.db, f.Keyspace, 4*time.Hour), nil)
		wantEqual(f.T, "receipts", len(f.stored(f.priority+"-x")), 1250)
		ended, cancel := context.WithCancel(f.ctx)
		cancel()
		if err := fdbpq.SweepReceipts(ended, f.db, f.Keyspace, 0); !errors.Is(err, context.Canceled) {
			f.Errorf("sweeping with an ended context: %v", err)
		}
	})
}

// An item that another program stored in the other format is restored, and returned, as it was stored.
func TestSettleKeepsTheStoredBytes(t *testing.T) {
	f := newUnsureWith(t, faultkv.Options{}, fdbpq.TupleValues)
	q := f.queue("a")
	key := items(f.priority, "a").Pack(tuple.Tuple{int64(1), int64(0), make([]byte, 20)})
	write(f.fixture, func(tx kv.Transaction) { tx.Set(key, []byte("no tuple")) })
	f.abandon(faultkv.UnknownMade, op(opPopMin, q))
	wantError(t, f.batcher.Settle(f.ctx), nil)
	f.wantStored(key, []byte("no tuple"))
	wantList(t, "value", f.values(q.PopMin), "no tuple")
}
