package fdbpq_test

import (
	"errors"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// A Batcher brings back what is due, also for batches that only read, and a lease in a batch
// whose outcome was unknown is simply over some time.
func TestLeasesInBatches(t *testing.T) {
	onEngines(t, func(f *fixture) {
		keyspace, err := fdbpq.NewKeyspace("pq", "q", fdbpq.RawValues)
		if err != nil {
			f.Fatal(err)
		}
		q, err := keyspace.PriorityQueue("jobs")
		if err != nil {
			f.Fatal(err)
		}
		b := fdbpq.NewBatcher(f.db, keyspace)
		now := time.Now()
		b.SetNow(func() time.Time { return now })
		apply := func(ops ...fdbpq.Op) []fdbpq.Result {
			f.Helper()
			results, err := b.Apply(f.ctx, ops)
			if err != nil {
				f.Fatal(err)
			}
			return results
		}
		push := func(priority int64, value string) fdbpq.Op {
			return fdbpq.Op{Kind: fdbpq.OpPush, Queue: q, Priority: priority, Message: fdbpq.Message{Value: []byte(value)}}
		}
		peek, length := fdbpq.Op{Kind: fdbpq.OpPeek, Queue: q}, fdbpq.Op{Kind: fdbpq.OpLen, Queue: q}
		lease := fdbpq.Op{Kind: fdbpq.OpLease, Queue: q, Lease: time.Second}

		apply(push(1, "a"), push(1, "b"), push(2, "c"))
		first := apply(lease)[0]
		if string(first.Item.Value) != "a" || first.Err != nil {
			f.Fatalf("leased %q, %v", first.Item.Value, first.Err)
		}
		apply(push(1, "d"))
		if r := apply(peek, length); string(r[0].Item.Value) != "b" || r[1].Len != 3 {
			f.Errorf("while a is leased: first is %q, %d ready", r[0].Item.Value, r[1].Len)
		}
		now = now.Add(time.Second)
		if r := apply(peek, length); string(r[0].Item.Value) != "a" || r[1].Len != 4 {
			f.Errorf("when the lease is over: first is %q, %d ready", r[0].Item.Value, r[1].Len)
		}
		second := apply(lease)[0]
		if string(second.Item.Value) != "a" || second.Lease.Deliveries != 2 {
			f.Errorf("delivered again: %q, delivery %d", second.Item.Value, second.Lease.Deliveries)
		}
		late := apply(fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: first.Lease.Token})[0]
		if !errors.Is(late.Err, fdbpq.ErrLeaseLost) {
			f.Errorf("a late acknowledgement: %v", late.Err)
		}
		// Acknowledge and take the next, in one transaction.
		next := lease
		next.Follows = true
		r := apply(fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: second.Lease.Token}, next)
		if r[0].Err != nil || string(r[1].Item.Value) != "b" {
			f.Errorf("next: %v, %q, %v", r[0].Err, r[1].Item.Value, r[1].Err)
		}
		r = apply(fdbpq.Op{Kind: fdbpq.OpAck, Queue: q, Token: second.Lease.Token}, next)
		if !errors.Is(r[0].Err, fdbpq.ErrLeaseLost) || !errors.Is(r[1].Err, fdbpq.ErrLeaseLost) {
			f.Errorf("next, with a token that is lost: %v, %v", r[0].Err, r[1].Err)
		}
		if _, err := fdbpqtest.CheckInvariants(f.ctx, f.db, "pq", "q"); err != nil {
			f.Error(err)
		}
	})
}

// Pops that follow each other share a bound on bytes; an item that exceeds it stays.
func TestMaxBytes(t *testing.T) {
	f := onMem(t)
	q := f.queue("bytes")
	f.fill(q, "aaaa", "bbbb", "cccc")
	pops := func(n, most int) (got []string, last error) {
		var ops []fdbpq.Op
		for i := range n {
			ops = append(ops, fdbpq.Op{Kind: fdbpq.OpPop, Queue: q, MaxBytes: most, Follows: i > 0})
		}
		results, err := kv.Transact(f.ctx, f.db, func(tx kv.Transaction) ([]fdbpq.Result, error) {
			return fdbpq.Apply(tx, ops, time.Now())
		})
		if err != nil {
			t.Fatal(err)
		}
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

// Bad durations and tokens are refused, with what would be right.
func TestBadLeases(t *testing.T) {
	f := onMem(t)
	q := f.queue("bad")
	f.fill(q, "x")
	for name, op := range map[string]fdbpq.Op{
		"short":    {Kind: fdbpq.OpLease, Lease: time.Millisecond},
		"long":     {Kind: fdbpq.OpLease, Lease: 13 * time.Hour},
		"negative": {Kind: fdbpq.OpLease, Lease: -time.Second},
		"delay":    {Kind: fdbpq.OpNak, Delay: -1},
		"years":    {Kind: fdbpq.OpNak, Delay: fdbpq.MaxDelay + 1},
		"end":      {Kind: fdbpq.OpLease, End: 2},
	} {
		op.Queue = q
		results, err := kv.Transact(f.ctx, f.db, func(tx kv.Transaction) ([]fdbpq.Result, error) {
			return fdbpq.Apply(tx, []fdbpq.Op{op}, time.Now())
		})
		if err != nil || !errors.Is(results[0].Err, fdbpq.ErrOp) {
			t.Errorf("%s: %v, %v", name, results, err)
		}
	}
	for _, text := range []string{"", "x", "AA", "====", "\n", (fdbpq.Token{}).String(), (fdbpq.Token{Fence: 1, End: 2}).String()} {
		if _, err := fdbpq.ParseToken(text); !errors.Is(err, fdbpq.ErrToken) {
			t.Errorf("token %q: %v", text, err)
		}
	}
}
