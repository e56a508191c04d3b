package fdbpq_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// leaseOver leases the first item and lets the lease run out.
func (f *fixture) leaseOver(q fdbpq.Target, now func() time.Time) fdbpq.Token {
	f.Helper()
	r := f.applyAt(now(), fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Second})[0]
	f.applyAt(now().Add(time.Minute), op(opPeekMin, q))
	return r.Lease.Token
}

// applyAt runs operations at a time, in a transaction of their own.
func (f *fixture) applyAt(now time.Time, ops ...fdbpq.Op) []fdbpq.Result {
	f.Helper()
	results, err := do(f, func(tx kv.Transaction) ([]fdbpq.Result, error) { return fdbpq.Apply(tx, ops, now) })
	if err != nil {
		f.Fatal(err)
	}
	return results
}

// A batch of unknown outcome puts a popped item back with its history.
func TestSettleKeepsFences(t *testing.T) {
	f := newUnsure(t, faultkv.Options{})
	q := f.queue("jobs")
	f.push(q, 1, "a")
	old := f.leaseOver(q, time.Now)
	f.abandon(faultkv.UnknownMade, op(opPopMin, q))
	f.calm()
	if err := f.batcher.Settle(context.Background()); err != nil {
		t.Fatal(err)
	}
	r := f.applyAt(time.Now(), fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})[0]
	if r.Err != nil || r.Lease.Token.Fence <= old.Fence {
		t.Errorf("leased %+v, %v, after %+v", r.Lease, r.Err, old)
	}
	wantError(t, f.applyAt(time.Now(), fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: old})[0].Err, fdbpq.ErrLeaseLost)
}

// Tokens that nobody was given hold nothing.
func TestMadeUpTokens(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q, fifo := f.queue("jobs"), f.fifoQueue("jobs")
		id := f.push(q, 1, "never leased")
		f.apply(opPush(fifo, 0, "leased"), opPush(fifo, 0, "other"))
		token := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: fifo})[0].Lease.Token
		other := token
		other.ID.Priority = 7
		for _, kind := range []fdbpq.OpKind{fdbpq.OpAck, fdbpq.OpNak, fdbpq.OpExtend} {
			for fence := int64(-1); fence < 2; fence++ {
				r := f.apply(fdbpq.Op{Kind: kind, Queue: q, Token: fdbpq.Token{ID: id, Fence: fence}})[0]
				wantError(f.T, r.Err, fdbpq.ErrLeaseLost)
			}
			r := f.apply(fdbpq.Op{Kind: kind, Queue: fifo, Token: other}, fdbpq.Op{Kind: fdbpq.OpExtend, Queue: fifo, Token: token})
			wantError(f.T, r[0].Err, fdbpq.ErrLeaseLost)
			if r[1].Err != nil {
				f.Error(r[1].Err)
			}
		}
	})
}

// A program with the bare recipe that pops an item leaves its history behind, which does not
// keep the queue in the list.
func TestRetireRemovesHistories(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		f.push(q, 1, "v")
		f.leaseOver(q, time.Now)
		write(f, func(tx kv.Transaction) { tx.ClearRange(itemRange(f.priority, "jobs")) })
		mark := fdbpq.NewMark()
		f.retire("first look", []fdbpq.Target{q}, mark, "", fdbpq.Marked)
		f.retire("second look", []fdbpq.Target{q}, fdbpq.NewMark(), mark, fdbpq.NotListed)
		if left := f.stored(f.priority); len(left) > 0 {
			f.Errorf("left behind: %q", left)
		}
	})
}

// A queue whose items are all held is in use. Clear removes them, and their tokens with them.
func TestRetireAndClearHeldItems(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		f.push(q, 1, "leased")
		f.push(q, 2, "delayed")
		leases := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q}, fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})
		nak := fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: leases[1].Lease.Token, Delay: time.Hour}
		if r := f.apply(nak)[0]; r.Err != nil {
			f.Fatal(r.Err)
		}
		mark := fdbpq.NewMark()
		f.retire("first look", []fdbpq.Target{q}, mark, "", fdbpq.InUse)
		write(f, func(tx kv.Transaction) { q.Clear(tx) })
		for _, lease := range leases {
			r := f.apply(fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: lease.Lease.Token})[0]
			wantError(f.T, r.Err, fdbpq.ErrLeaseLost)
		}
		if left := f.stored(f.priority); len(left) > 0 {
			f.Errorf("left behind: %q", left)
		}
	})
}

// Items of the bare recipe are leased, given back and redelivered at their places, as they were
// stored, and never counted.
func TestLeasesOfRecipeItems(t *testing.T) {
	onEngines(t, func(f *fixture) {
		for _, fifo := range []bool{false, true} {
			root, q := f.priority, fdbpq.Target(f.queue("jobs"))
			if fifo {
				root, q = f.fifo, f.fifoQueue("jobs")
			}
			list := f.recipePuts(root, fifo)
			now := time.Now()
			before := f.stored(root)
			for range 3 {
				var leases []fdbpq.Op
				for range list {
					leases = append(leases, fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})
				}
				var naks []fdbpq.Op
				for i, r := range f.applyAt(now, leases...) {
					wantForeign(f.T, r.Item, r.Err, list[i])
					if i%2 == 0 {
						naks = append(naks, fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: r.Lease.Token})
					}
				}
				f.check()
				for _, r := range f.applyAt(now, naks...) {
					if r.Err != nil {
						f.Fatal(r.Err)
					}
				}
				now = now.Add(time.Hour)
				wantEqual(f.T, "length", f.applyAt(now, op(opLen, q))[0].Len, int64(0))
				var items []kv.KeyValue
				for _, pair := range f.stored(root) {
					if bytes.Contains(pair.Key, []byte("\x02i\x00")) {
						items = append(items, pair)
					}
				}
				wantEqual(f.T, "items", items, before)
			}
			for range list {
				r := f.applyAt(now, fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})[0]
				if r = f.applyAt(now, fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: r.Lease.Token})[0]; r.Err != nil {
					f.Fatal(r.Err)
				}
			}
			if left := f.stored(root); len(left) > 0 {
				f.Errorf("left: %q", left)
			}
		}
	})
}

// Items with headers and long values come back as they were.
func TestLeasesOfLongItems(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("long")
		m := fdbpq.Message{Value: bytes.Repeat([]byte("\x00long"), 60_000), Headers: map[string][]string{"A": {"1", "2"}, "B": {""}}}
		f.apply(fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Message: m})
		before := f.stored(f.priority)
		now := time.Now()
		for n := range 4 {
			r := f.applyAt(now, fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})[0]
			if r.Err != nil || !bytes.Equal(r.Item.Value, m.Value) || fmt.Sprint(r.Item.Headers) != fmt.Sprint(m.Headers) {
				f.Fatalf("%d bytes with %v, %v", len(r.Item.Value), r.Item.Headers, r.Err)
			}
			f.check()
			end := fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: r.Lease.Token, Delay: time.Duration(n%2) * time.Second}
			if n == 3 {
				end.Kind = fdbpq.OpAck
			}
			if n > 0 {
				f.applyAt(now, end)
			}
			now = now.Add(time.Hour)
			f.applyAt(now, op(opPeekMin, q))
			f.check()
			if n < 3 {
				after := slices.DeleteFunc(f.stored(f.priority), func(p kv.KeyValue) bool { return bytes.Contains(p.Key, []byte("\x02a\x00")) })
				wantEqual(f.T, "keys", after, before)
			}
		}
		if left := f.stored(f.priority); len(left) > 0 {
			f.Errorf("left: %q", left)
		}
	})
}

// Records and histories that cannot be read stay as they are. Only what needs them fails.
func TestCorruptLeases(t *testing.T) {
	onEngines(t, func(f *fixture) {
		f.corrupt = true
		q := f.queue("jobs")
		key := func(kind string) (found []byte) {
			for _, pair := range f.stored(f.priority) {
				if bytes.HasPrefix(pair.Key, tuple.Tuple{f.priority, "jobs", kind}.Pack()) {
					found = pair.Key
				}
			}
			return found
		}
		now := time.Now()
		lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Second}
		for _, bad := range [][]byte{nil, {0xff}, {1, 2, 3}, append([]byte{1}, tuple.Tuple{int64(1)}.Pack()...), tuple.Tuple{int64(-1), int64(1), int64(1)}.Pack(), tuple.Tuple{int64(1), int64(0), int64(1)}.Pack(), tuple.Tuple{int64(1), int64(1), int64(-1)}.Pack()} {
			if bad == nil {
				bad = []byte{}
			}
			write(f, func(tx kv.Transaction) { q.Clear(tx) })
			f.push(q, 1, "a")
			f.push(q, 2, "b")
			token := f.applyAt(now, lease)[0].Lease.Token
			held := key("h")
			good := f.value(held)
			write(f, func(tx kv.Transaction) { tx.Set(held, bad) })
			for _, kind := range []fdbpq.OpKind{fdbpq.OpAck, fdbpq.OpNak, fdbpq.OpExtend} {
				wantError(f.T, f.applyAt(now, fdbpq.Op{Kind: kind, Queue: q, Token: token})[0].Err, fdbpq.ErrCorrupt)
			}
			// "b" is there, but nobody can say whether "a" is.
			results := f.applyAt(now.Add(time.Hour), opPush(q, 1, "c"), op(opPeekMin, q), op(opPopMin, q), op(opPopMin, q), op(opPopMin, q))
			wantEqual(f.T, "peeked, popped and popped", []string{string(results[2].Item.Value), string(results[3].Item.Value)}, []string{"c", "b"})
			wantError(f.T, results[4].Err, fdbpq.ErrCorrupt)
			f.wantStored(held, bad)

			write(f, func(tx kv.Transaction) { tx.Set(held, good) })
			f.applyAt(now.Add(time.Hour), op(opPeekMin, q))
			past := key("a")
			write(f, func(tx kv.Transaction) { tx.Set(past, bad) })
			f.push(q, 2, "d")
			results = f.applyAt(now.Add(time.Hour), lease, lease, fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: token}, op(opPeekMin, q), op(opPopMax, q))
			for i, r := range results {
				if want := i < 3; want != errors.Is(r.Err, fdbpq.ErrCorrupt) || !want && r.Err != nil {
					f.Errorf("history %x: operation %d: %v", bad, i, r.Err)
				}
			}
			f.wantStored(past, bad)
			// A plain pop needs none.
			r := f.applyAt(now.Add(time.Hour), op(opPopMin, q))[0]
			if r.Err != nil || string(r.Item.Value) != "a" {
				f.Errorf("popped %q, %v", r.Item.Value, r.Err)
			}
			if key("a") != nil {
				f.Error("the history is left")
			}
		}
	})
}

// value returns what is stored at a key.
func (f *fixture) value(key []byte) []byte {
	f.Helper()
	value, err := do(f, func(tx kv.Transaction) ([]byte, error) { return tx.Get(key).Get() })
	if err != nil {
		f.Fatal(err)
	}
	return value
}

// Pops beyond what is there fail if something due cannot be read, those before do not; and
// such an entry keeps nothing else from coming back.
func TestUnreadableEntryBesideOthers(t *testing.T) {
	f := onMem(t)
	f.corrupt = true
	q := f.queue("jobs")
	f.push(q, 1, "a")
	f.push(q, 2, "b")
	now := time.Now()
	f.applyAt(now, fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})
	write(f, func(tx kv.Transaction) { tx.Set(tuple.Tuple{f.priority, "jobs", "t", 7, "later", 1}.Pack(), []byte{}) })
	results := f.applyAt(now.Add(time.Hour), op(opPopMin, q), op(opPopMin, q), op(opPopMin, q))
	wantEqual(t, "popped", []string{string(results[0].Item.Value), string(results[1].Item.Value)}, []string{"a", "b"})
	wantError(t, results[2].Err, fdbpq.ErrCorrupt)
}

// A batch that only reads goes on, and ends, while something that is due cannot be read.
func TestManyUnreadableEntries(t *testing.T) {
	f := onMem(t)
	f.corrupt = true
	q := f.queue("jobs")
	f.push(q, 1, "a")
	write(f, func(tx kv.Transaction) {
		for i := range 2 * duePage {
			tx.Set(tuple.Tuple{f.priority, "jobs", "t", 7, "later", i}.Pack(), []byte{})
		}
	})
	results := f.apply(op(opPeekMin, q), op(opLen, q))
	wantEqual(t, "peeked", string(results[0].Item.Value), "a")
	wantEqual(t, "length", results[1].Len, int64(1))
	wantError(t, f.apply(op(opPopMin, q), op(opPopMin, q))[1].Err, fdbpq.ErrCorrupt)
}

// A batch whose earlier attempt turns out to have committed waits until that is durable.
func TestFoundReceiptIsDurable(t *testing.T) {
	f := newUnsure(t, faultkv.Options{})
	commits := 0
	b := fdbpq.NewBatcher(&hooked{Database: f.faults, beforeCommit: func() { commits++ }}, f.Keyspace)
	f.faults.Next(faultkv.UnknownMade)
	if _, err := b.Apply(f.ctx, []fdbpq.Op{opPush(f.queue("jobs"), 1, "a")}); err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "transactions committed", commits, 2)
	f.calm()
}
