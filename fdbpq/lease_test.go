package fdbpq_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Pops that follow each other share a bound on bytes; an item that exceeds it stays.
func TestMaxBytes(t *testing.T) {
	f := onMem(t)
	q := f.queue("bytes")
	f.fill(q, "aaaa", "bbbb", "cccc")
	pops := func(n, most int) (got []string, last error) {
		ops := many(n, func(i int) fdbpq.Op { return fdbpq.Op{Kind: fdbpq.OpPop, Queue: q, MaxBytes: most, Follows: i > 0} })
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
	if got, err := pops(3, 0); len(got) != 1 || got[0] != "cccc" || !errors.Is(err, fdbpq.ErrEmpty) {
		t.Errorf("without a bound: %q, %v", got, err)
	}
}

// acks returns acknowledgements of the leases, each of which follows the one before.
func acks(q fdbpq.Target, tokens ...fdbpq.Token) (ops []fdbpq.Op) {
	for i, token := range tokens {
		ops = append(ops, fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: token, Follows: i > 0})
	}
	return ops
}

// leaseSome leases so many items and returns the tokens.
func (f *fixture) leaseSome(q fdbpq.Target, n int, wait time.Duration) (tokens []fdbpq.Token) {
	f.Helper()
	for _, r := range f.apply(slices.Repeat([]fdbpq.Op{{Kind: fdbpq.OpLease, Queue: q, Lease: wait}}, n)...) {
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
			return fdbpq.Apply(tx, append(acks(q, held[0], held[1]), acks(q, held[2])...), time.Now())
		}))
		for i, r := range results[:2] {
			if !errors.Is(r.Err, fdbpq.ErrCorrupt) || !strings.Contains(r.Err.Error(), "lease 1") {
				f.Errorf("result %d: %v", i, r.Err)
			}
		}
		wantError(f.T, results[2].Err, nil)
	})
}

// Operations that a queue does not support, or that ask for what cannot be, are refused with what would be right: alone,
// in a group, and beside others, which are done. Nothing is stored.
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
			{Delay: -1}, {Delay: fdbpq.Backoff}, {Delay: fdbpq.MaxDelay + 1}, {Delay: 1, At: time.Now()}, {At: far},
			{TTL: time.Second - 1}, {TTL: -time.Second}, {TTL: fdbpq.MaxTTL + 1},
			{Message: fdbpq.Message{Expires: far}}, {Message: fdbpq.Message{Expires: time.Unix(1, 0)}},
		} {
			o.Kind = fdbpq.OpPush
			add(q, o)
			for i, r := range f.apply(grouped(opPush(q, 1, "a"), op(o, q), opPush(q, 1, "b"))...) {
				if !errors.Is(r.Err, fdbpq.ErrOp) || !strings.Contains(r.Err.Error(), ": want ") {
					f.Errorf("push %d of the group with %+v: %v", i, o, r.Err)
				}
			}
		}
		for _, lease := range []time.Duration{time.Millisecond, 13 * time.Hour, -time.Second} {
			add(q, fdbpq.Op{Kind: fdbpq.OpLease, Lease: lease}, fdbpq.Op{Kind: fdbpq.OpExtend, Lease: lease})
		}
		add(q, fdbpq.Op{Kind: fdbpq.OpNak, Delay: -1}, fdbpq.Op{Kind: fdbpq.OpNak, Delay: fdbpq.MaxDelay + 1})
		for _, kind := range []fdbpq.OpKind{fdbpq.OpPop, fdbpq.OpLease, fdbpq.OpPeek, fdbpq.OpRank} {
			add(q, fdbpq.Op{Kind: kind, End: end})
			add(fifo, fdbpq.Op{Kind: kind, End: fdbpq.Back})
		}
		other := fdbpq.Item{ID: fdbpq.ID{Priority: 3}}
		add(q, fdbpq.Op{Kind: 77}, fdbpq.Op{Kind: fdbpq.OpRedrive, Limit: -1}, fdbpq.Op{Kind: fdbpq.OpConfigure})
		add(fifo, fdbpq.Op{}, fdbpq.Op{Kind: fdbpq.OpMove}, fdbpq.Op{Kind: fdbpq.OpPurge, State: state},
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

// Ids and tokens that nobody was given name nothing: with a priority in a FIFO queue, of items that were never leased, and
// such as would hold if fences could be computed.
func TestMadeUpTokens(t *testing.T) {
	onEngines(t, func(f *fixture) {
		clock := f.setClock()
		q, fifo := f.queue("jobs"), f.fifoQueue("jobs")
		lost := func(what string, q fdbpq.Target, id fdbpq.ID, from int64) {
			f.Helper()
			for fence := from; fence < from+4; fence++ {
				for _, kind := range []fdbpq.OpKind{fdbpq.OpAck, fdbpq.OpNak, fdbpq.OpExtend, fdbpq.OpTerm} {
					if r := f.apply(fdbpq.Op{Kind: kind, Queue: q, Token: fdbpq.Token{ID: id, Fence: fence}})[0]; !errors.Is(r.Err, fdbpq.ErrLeaseLost) {
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

		f.apply(opPush(fifo, 0, "leased"))
		token := f.leaseSome(fifo, 1, time.Minute)[0]
		other := token.ID
		other.Priority = 7
		lost("with a priority", fifo, other, token.Fence)
		for _, kind := range []fdbpq.OpKind{fdbpq.OpGet, fdbpq.OpRank, fdbpq.OpRemove} {
			wantError(f.T, f.apply(fdbpq.Op{Kind: kind, Queue: fifo, ID: other})[0].Err, fdbpq.ErrNotFound)
		}
		wantError(f.T, f.apply(fdbpq.Op{Kind: fdbpq.OpExtend, Queue: fifo, Token: token})[0].Err, nil)
	})
	for _, text := range []string{"", "x", "AA", "====", "\n", (fdbpq.Token{}).String(), (fdbpq.Token{Fence: 1, End: 2}).String()} {
		if _, err := fdbpq.ParseToken(text); !errors.Is(err, fdbpq.ErrToken) {
			t.Errorf("token %q: %v", text, err)
		}
	}
}
