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
		if r.Err != nil {
			f.Fatal(r.Err)
		}
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
		results, err := do(f, func(tx kv.Transaction) ([]fdbpq.Result, error) {
			return fdbpq.Apply(tx, append(acks(q, held[0], held[1]), acks(q, held[2])...), time.Now())
		})
		if err != nil {
			f.Fatal(err)
		}
		for i, r := range results[:2] {
			if !errors.Is(r.Err, fdbpq.ErrCorrupt) || !strings.Contains(r.Err.Error(), "lease 1") {
				f.Errorf("result %d: %v", i, r.Err)
			}
		}
		wantError(f.T, results[2].Err, nil)
	})
}
