package fdbpq_test

import (
	"errors"
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
