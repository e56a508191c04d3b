package fdbpq_test

import (
	"bytes"
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
	return must(do(f, func(tx kv.Transaction) ([]fdbpq.Result, error) { return fdbpq.Apply(tx, ops, now) }))
}

// A queue whose items are all held is in use. Clear removes them, and their tokens with them.
func TestRetireAndClearHeldItems(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		f.push(q, 1, "leased")
		f.push(q, 2, "delayed")
		leases := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q}, fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})
		nak := fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: leases[1].Lease.Token, Delay: time.Hour}
		wantError(f.T, f.apply(nak)[0].Err, nil)
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
				leases := slices.Repeat([]fdbpq.Op{{Kind: fdbpq.OpLease, Queue: q}}, len(list))
				var naks []fdbpq.Op
				for i, r := range f.applyAt(now, leases...) {
					wantForeign(f.T, r.Item, r.Err, list[i])
					if i%2 == 0 {
						naks = append(naks, fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: r.Lease.Token})
					}
				}
				f.check()
				for _, r := range f.applyAt(now, naks...) {
					wantError(f.T, r.Err, nil)
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
	return must(do(f, func(tx kv.Transaction) ([]byte, error) { return tx.Get(key).Get() }))
}

// Entries of the time index that this version does not know stay, and fail pops of their queue beyond what is there, and
// nothing else: other items come back, and a batch that only reads ends.
func TestUnreadableEntries(t *testing.T) {
	late := many(2*duePage, func(i int) tuple.Tuple { return tuple.Tuple{"later", i} })
	for what, entries := range map[string][]tuple.Tuple{
		"another kind": late[:1],
		"another part": {{"f", 1, make([]byte, 20)}},
		"no part":      {{"f"}},
		"no kind":      {{}},
		"no text":      {{5}},
		"very many":    late,
	} {
		t.Run(what, func(t *testing.T) {
			f := onMem(t)
			f.corrupt = true
			q := f.queue("jobs")
			f.fill(q, "a", "b")
			now := time.Now()
			if len(entries) == 1 {
				f.applyAt(now, fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})
			}
			key := func(entry tuple.Tuple) []byte {
				return append(tuple.Tuple{f.priority, "jobs", "t", 7}, entry...).Pack()
			}
			write(f, func(tx kv.Transaction) {
				for _, entry := range entries {
					tx.Set(key(entry), []byte{})
				}
			})
			f.batcher.SetNow(func() time.Time { return now.Add(time.Hour) })
			r := f.apply(op(opPeekMin, q), op(opLen, q))
			wantEqual(t, "peeked", fmt.Sprint(string(r[0].Item.Value), r[1].Len), "a2")
			pop := op(opPopMin, q)
			r = f.apply(pop, pop, pop, op(opPopMin, f.queue("other")))
			wantEqual(t, "popped", string(r[0].Item.Value)+string(r[1].Item.Value), "ab")
			wantErrors(t, r, nil, nil, fdbpq.ErrCorrupt, fdbpq.ErrEmpty)
			f.wantStored(key(entries[0]), []byte{})
		})
	}
}

// A batch whose earlier attempt turns out to have committed waits until that is durable.
func TestFoundReceiptIsDurable(t *testing.T) {
	f := newUnsure(t, faultkv.Options{})
	commits := 0
	b := fdbpq.NewBatcher(&hooked{Database: f.faults, beforeCommit: func() { commits++ }}, f.Keyspace)
	f.faults.Next(faultkv.UnknownMade)
	must(b.Apply(f.ctx, []fdbpq.Op{opPush(f.queue("jobs"), 1, "a")}))
	wantEqual(t, "transactions committed", commits, 2)
	f.calm()
}
