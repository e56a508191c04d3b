package fdbpq_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/faultkv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// Pops that follow each other share a bound on bytes, and an item that exceeds it stays.
func TestMaxBytes(t *testing.T) {
	f := onMem(t)
	q := f.queue("bytes")
	f.fill(q, "aaaa", "bbbb", "cccc")

	pops := func(n, most int) (got []string, last error) {
		ops := many(n, func(i int) fdbpq.Op {
			return fdbpq.Op{Kind: fdbpq.OpPop, Queue: q, MaxBytes: most, Follows: i > 0}
		})
		results := must(kv.Transact(f.ctx, f.db, func(tx kv.Transaction) ([]fdbpq.Result, error) {
			return fdbpq.Apply(tx, ops, time.Now())
		}))

		for _, r := range results {
			if r.Err != nil {
				return got, r.Err
			}
			got = append(got, string(r.Item.Value))
		}

		return got, nil
	}
	if got, err := pops(2, 3); len(got) != 0 || !errors.Is(err, fdbpq.ErrMaxBytes) {
		t.Errorf("with 3 bytes: %q, %v", got, err)
	}

	if got, err := pops(3, 9); len(got) != 2 || !errors.Is(err, fdbpq.ErrMaxBytes) {
		t.Errorf("with 9 bytes: %q, %v", got, err)
	}
	if got, err := pops(3, 0); len(got) != 1 || got[0] != "cccc" ||
		!errors.Is(err, fdbpq.ErrEmpty) {
		t.Errorf("without a bound: %q, %v", got, err)
	}
}

// acks returns acknowledgements of the leases, each tied to the one before.
func acks(q fdbpq.Target, tokens ...fdbpq.Token) (ops []fdbpq.Op) {
	for i, token := range tokens {
		ops = append(ops, fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: token, Follows: i > 0})
	}
	return ops
}

// leaseSome leases n items and returns the tokens.
func (f *fixture) leaseSome(q fdbpq.Target, n int, wait time.Duration) (tokens []fdbpq.Token) {
	f.Helper()
	leases := slices.Repeat([]fdbpq.Op{{Kind: fdbpq.OpLease, Queue: q, Lease: wait}}, n)
	for _, r := range f.apply(leases...) {
		wantError(f.T, r.Err, nil)
		tokens = append(tokens, r.Lease.Token)
	}

	return tokens
}

// A damaged record fails the acknowledgements that are tied to it, and no others.
func TestAckGroupOfDamaged(t *testing.T) {
	onEngines(t, func(f *fixture) {
		f.corrupt = true
		q := f.queue("jobs")
		f.fill(q, "a", "b", "c")
		held := f.leaseSome(q, 3, time.Minute)
		write(f, func(tx kv.Transaction) {
			tx.Set(fdbpq.HeldKey(q, &held[1].ID), []byte("damaged"))
		})

		results := must(do(f, func(tx kv.Transaction) ([]fdbpq.Result, error) {
			ops := append(acks(q, held[0], held[1]), acks(q, held[2])...)
			return fdbpq.Apply(tx, ops, time.Now())
		}))

		for i, r := range results[:2] {
			if !errors.Is(r.Err, fdbpq.ErrCorrupt) || !strings.Contains(r.Err.Error(), "lease 1") {
				f.Errorf("result %d: %v", i, r.Err)
			}
		}
		wantError(f.T, results[2].Err, nil)
	})
}

// Operations that a queue does not support, or with values out of bounds, are refused with what
// would be right, and store nothing.
func TestBadOps(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q, fifo := f.queue("a"), f.fifoQueue("a")
		far := time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
		const end, state = fdbpq.End(2), fdbpq.ItemState(9)
		var bad []fdbpq.Op

		add := func(target fdbpq.Target, ops ...fdbpq.Op) {
			for _, o := range ops {
				bad = append(bad, op(o, target))
			}
		}

		for _, o := range []fdbpq.Op{
			{Delay: -1},
			{Delay: fdbpq.Backoff},
			{Delay: fdbpq.MaxDelay + 1},
			{Delay: 1, At: time.Now()},
			{At: far},
			{TTL: time.Second - 1},
			{TTL: -time.Second},
			{TTL: fdbpq.MaxTTL + 1},
			{Message: fdbpq.Message{Expires: far}},
			{Message: fdbpq.Message{Expires: time.Unix(1, 0)}},
		} {
			o.Kind = fdbpq.OpPush
			add(q, o)

			for i, r := range f.apply(grouped(opPush(q, 1, "a"), op(o, q), opPush(q, 1, "b"))...) {
				if !errors.Is(r.Err, fdbpq.ErrOp) || !strings.Contains(r.Err.Error(), ": want ") {
					f.Errorf("push %d of the group with %+v: %v", i, o, r.Err)
				}
			}
		}

		for _, lease := range []time.Duration{
			fdbpq.MinLease - 1, fdbpq.MaxLease + 1, -time.Second,
		} {
			add(q, fdbpq.Op{Kind: fdbpq.OpLease, Lease: lease})
			add(q, fdbpq.Op{Kind: fdbpq.OpExtend, Lease: lease})
		}

		for _, o := range []fdbpq.Op{
			{Delay: -1},
			{Delay: fdbpq.MaxDelay + 1},
			{Delay: fdbpq.Backoff, RetryDelay: -1},
			{Delay: fdbpq.Backoff, RetryDelay: fdbpq.MaxDelay + 1},
			{Delay: fdbpq.Backoff, RetryDelay: 1, Uncounted: true},
			{RetryDelay: 1},
		} {
			o.Kind = fdbpq.OpNak
			add(q, o)
		}

		for _, kind := range []fdbpq.OpKind{
			fdbpq.OpPop, fdbpq.OpLease, fdbpq.OpPeek, fdbpq.OpRank,
		} {
			add(q, fdbpq.Op{Kind: kind, End: end})
			add(fifo, fdbpq.Op{Kind: kind, End: fdbpq.Back})
		}

		other := fdbpq.Item{ID: fdbpq.ID{Priority: 3}}
		add(q, fdbpq.Op{Kind: 77}, fdbpq.Op{Kind: fdbpq.OpConfigure})
		add(fifo, fdbpq.Op{}, fdbpq.Op{Kind: fdbpq.OpMove},
			fdbpq.Op{Kind: fdbpq.OpRemove, State: state},
			fdbpq.Op{Kind: fdbpq.OpRestore}, fdbpq.Op{Kind: fdbpq.OpRestore, Item: &other})

		results := f.apply(append(bad, opPush(fifo, 0, "v"), op(opPopMin, fifo))...)
		for i := range bad {
			if !errors.Is(results[i].Err, fdbpq.ErrOp) {
				f.Errorf("operation %+v: %v", bad[i], results[i].Err)
			}
			if !bad[i].Kind.Writes() { // in a transaction that only reads
				wantError(f.T, f.apply(bad[i])[0].Err, fdbpq.ErrOp)
			}
		}
		wantEqual(f.T, "popped beside them", string(results[len(bad)+1].Item.Value), "v")
		wantEqual(f.T, "results of no ops", len(f.apply()), 0)
		wantEqual(f.T, "stored", len(f.stored(f.priority))+len(f.stored(f.fifo)), 0)
	})
}

// Ids and tokens that nobody was given name no item.
func TestMadeUpTokens(t *testing.T) {
	onEngines(t, func(f *fixture) {
		clock := f.setClock()
		q, fifo := f.queue("jobs"), f.fifoQueue("jobs")

		// lost checks that no token with one of four fences holds the item.
		lost := func(what string, q fdbpq.Target, id fdbpq.ID, from int64) {
			f.Helper()
			for fence := from; fence < from+4; fence++ {
				for _, kind := range []fdbpq.OpKind{
					fdbpq.OpAck, fdbpq.OpNak, fdbpq.OpExtend, fdbpq.OpTerm,
				} {
					token := fdbpq.Token{ID: id, Fence: fence}
					r := f.apply(fdbpq.Op{Kind: kind, Queue: q, Token: token})[0]
					if !errors.Is(r.Err, fdbpq.ErrLeaseLost) {
						f.Errorf("%s, fence %d, operation %d: %v", what, fence, kind, r.Err)
					}
				}
			}
		}

		id := f.apply(withDelay(opPush(q, 1, "x"), time.Second))[0].Item.ID
		lost("delayed", q, id, -1)
		clock.advance(time.Second)

		wantEqual(f.T, "ready", f.apply(op(opLen, q))[0].Len, 1)

		lost("never leased", q, id, -1)

		first := f.leaseSome(q, 1, time.Minute)[0]
		lost("leased", q, id, 1)
		wantError(f.T, f.apply(fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: first})[0].Err, nil)

		lost("given back", q, id, first.Fence+1)
		f.leaseSome(q, 1, time.Minute)
		lost("leased again", q, id, first.Fence+1)

		// Items of FIFO queues have no priority, so an id with one is of no item.
		f.apply(opPush(fifo, 0, "leased"))
		token := f.leaseSome(fifo, 1, time.Minute)[0]
		other := token.ID
		other.Priority = 7
		lost("with a priority", fifo, other, token.Fence)

		for _, kind := range []fdbpq.OpKind{fdbpq.OpGet, fdbpq.OpRank, fdbpq.OpRemove} {
			wantError(f.T, f.apply(fdbpq.Op{Kind: kind, Queue: fifo, ID: other})[0].Err,
				fdbpq.ErrNotFound)
		}
		extend := fdbpq.Op{Kind: fdbpq.OpExtend, Queue: fifo, Token: token}
		wantError(f.T, f.apply(extend)[0].Err, nil)
	})
	for _, text := range []string{
		"", "x", "AA", "====", "\n", (fdbpq.Token{}).String(),
		(fdbpq.Token{Fence: 1, End: 2}).String(),
	} {
		if _, err := fdbpq.ParseToken(text); !errors.Is(err, fdbpq.ErrToken) {
			t.Errorf("token %q: %v", text, err)
		}
	}
}

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
	return must(do(f, func(tx kv.Transaction) ([]fdbpq.Result, error) {
		return fdbpq.Apply(tx, ops, now)
	}))
}

// A queue whose items are all held is in use. Clear removes the items, and their tokens no longer
// hold.
func TestRetireAndClearHeldItems(t *testing.T) {
	onEngines(t, func(f *fixture) {
		q := f.queue("jobs")
		f.push(q, 1, "leased")
		f.push(q, 2, "delayed")
		leases := f.apply(fdbpq.Op{Kind: fdbpq.OpLease, Queue: q},
			fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})

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
			root := f.priority
			q := fdbpq.Target(f.queue("jobs"))
			dead := fdbpq.Target(f.queue("jobs-dead"))

			if fifo {
				root, q, dead = f.fifo, f.fifoQueue("jobs"), f.fifoQueue("jobs-dead")
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
						naks = append(naks,
							fdbpq.Op{Kind: fdbpq.OpNak, Queue: q, Token: r.Lease.Token})
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

			for i, want := range list {
				lease := f.applyAt(now, fdbpq.Op{Kind: fdbpq.OpLease, Queue: q})[0].Lease
				end := fdbpq.Op{Queue: q, Token: lease.Token}

				if end.Kind = fdbpq.OpAck; i%2 == 0 {
					end.Kind = fdbpq.OpTerm
				}
				wantError(f.T, f.applyAt(now, end)[0].Err, nil)

				if f.check(); i%2 == 0 { // it gets what it lacks
					item := f.apply(op(opPopMin, dead))[0].Item
					if string(item.Value) != string(want.Value) ||
						item.ID.Priority != want.Priority ||
						item.DeadLetter == nil || item.PushedAt.UnixMicro() != now.UnixMicro() {
						f.Errorf("dead letter %+v: want %+v", item, want)
					}
				}
			}

			if left := f.stored(root); len(left) > 0 {
				f.Errorf("left: %q", left)
			}
		}
	})
}

// Records and histories that cannot be read stay as they are, and only what needs them fails.
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

		for _, bad := range [][]byte{
			{},
			{0xff},
			{1, 2, 3},
			append([]byte{1}, tuple.Tuple{int64(1)}.Pack()...), // shorter than it says

			// Deliveries, a fence and a wait out of bounds, if they are read as a history.
			tuple.Tuple{int64(-1), int64(1), int64(1)}.Pack(),
			tuple.Tuple{int64(1), int64(0), int64(1)}.Pack(),
			tuple.Tuple{int64(1), int64(1), int64(-1)}.Pack(),
		} {
			write(f, func(tx kv.Transaction) { q.Clear(tx) })
			f.push(q, 1, "a")
			f.push(q, 2, "b")
			token := f.applyAt(now, lease)[0].Lease.Token
			held := key("h")
			good := f.value(held)
			write(f, func(tx kv.Transaction) { tx.Set(held, bad) })

			for _, kind := range []fdbpq.OpKind{fdbpq.OpAck, fdbpq.OpNak, fdbpq.OpExtend} {
				wantError(f.T, f.applyAt(now, fdbpq.Op{Kind: kind, Queue: q, Token: token})[0].Err,
					fdbpq.ErrCorrupt)
			}

			// "b" is there, but nobody can say whether "a" is.
			results := f.applyAt(now.Add(time.Hour), opPush(q, 1, "c"), op(opPeekMin, q),
				op(opPopMin, q), op(opPopMin, q), op(opPopMin, q))
			popped := []string{string(results[2].Item.Value), string(results[3].Item.Value)}
			wantList(f.T, "popped", popped, "c", "b")
			wantError(f.T, results[4].Err, fdbpq.ErrCorrupt)
			f.wantStored(held, bad)

			// Now the record is whole again, and the history of the item that came back is bad.
			write(f, func(tx kv.Transaction) { tx.Set(held, good) })
			f.applyAt(now.Add(time.Hour), op(opPeekMin, q))
			past := key("a")
			write(f, func(tx kv.Transaction) { tx.Set(past, bad) })
			f.push(q, 2, "d")

			ack := fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: token}
			results = f.applyAt(now.Add(time.Hour), lease, lease, ack, op(opPeekMin, q),
				op(opPopMax, q))

			for i, r := range results {
				want := i < 3 // leases and acknowledgements need histories
				if want != errors.Is(r.Err, fdbpq.ErrCorrupt) || !want && r.Err != nil {
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

// value returns the value of a key.
func (f *fixture) value(key []byte) []byte {
	f.Helper()
	return must(do(f, func(tx kv.Transaction) ([]byte, error) { return tx.Get(key).Get() }))
}

// Entries of the time index that cannot be read stay, and fail only pops of their queue that find
// nothing else.
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
	counted := &hooked{Database: f.faults, beforeCommit: func() { commits++ }}
	b := fdbpq.NewBatcher(counted, f.Keyspace)
	f.faults.Next(faultkv.UnknownMade)
	must(b.Apply(f.ctx, []fdbpq.Op{opPush(f.queue("jobs"), 1, "a")}))

	wantEqual(t, "transactions committed", commits, 2)

	f.calm()
}
