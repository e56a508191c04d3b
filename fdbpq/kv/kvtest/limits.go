package kvtest

import (
	"bytes"
	"fmt"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// longKey returns a key of size bytes.
func (f *fixture) longKey(size int) []byte {
	return append(f.key(""), bytes.Repeat([]byte{'k'}, size-len(f.prefix))...)
}

// wantTooLarge checks that a transaction that runs fn fails with ErrTooLarge and
// writes nothing, neither in fn nor before or after it.
func (f *fixture) wantTooLarge(fn func(tx kv.Transaction)) {
	f.Helper()
	tx := f.begin()
	tx.Set(f.key("before"), []byte("1"))
	fn(tx)
	tx.Set(f.key("after"), []byte("1"))
	f.wantCommitFails(tx, kv.ErrTooLarge)
	f.wantRange(f.beginRead(), f.all(), kv.RangeOptions{Limit: 1})
}

var limitTests = []test{
	{"KeyAtLimit", func(f *fixture) {
		key := f.longKey(kv.MaxKeySize)
		f.write(func(tx kv.Transaction) {
			tx.Set(key, []byte("1"))
			f.wantRange(tx, kv.SingleKey(key), kv.RangeOptions{}, string(key[len(f.prefix):])+"=1")
		})
		if got := text(await(f, f.beginRead().Get(key))); got != "1" {
			f.Errorf("Get returned %q, want 1", got)
		}
		f.write(func(tx kv.Transaction) { tx.Add(key, 1) })
		f.write(func(tx kv.Transaction) { tx.CompareAndClear(key, []byte("2\x00\x00\x00\x00\x00\x00\x00")) })
		f.wantRange(f.beginRead(), f.all(), kv.RangeOptions{})
	}},
	{"KeyOverLimit", func(f *fixture) {
		key := f.longKey(kv.MaxKeySize + 1)
		f.wantTooLarge(func(tx kv.Transaction) { tx.Set(key, []byte("1")) })
		f.wantTooLarge(func(tx kv.Transaction) { tx.Add(key, 1) })
		f.wantTooLarge(func(tx kv.Transaction) { tx.CompareAndClear(key, []byte("1")) })
	}},
	{"ValueAtLimit", func(f *fixture) {
		value := bytes.Repeat([]byte{'v'}, kv.MaxValueSize)
		f.write(func(tx kv.Transaction) {
			tx.Set(f.key("a"), value)
			f.wantGet(tx, "a", string(value))
		})
		f.wantStored("a", string(value))
		f.write(func(tx kv.Transaction) { tx.CompareAndClear(f.key("a"), value) })
		f.wantStored("a", absent)
	}},
	{"ValueOverLimit", func(f *fixture) {
		value := bytes.Repeat([]byte{'v'}, kv.MaxValueSize+1)
		f.wantTooLarge(func(tx kv.Transaction) { tx.Set(f.key("a"), value) })
		f.wantTooLarge(func(tx kv.Transaction) { tx.CompareAndClear(f.key("a"), value) })
	}},
	// Engines differ in how they count overhead, so these stay one percent away from
	// the limit.
	{"TransactionUnderLimit", func(f *fixture) {
		value := bytes.Repeat([]byte{'v'}, kv.MaxValueSize)
		f.write(func(tx kv.Transaction) {
			for i := range kv.MaxTransactionSize/kv.MaxValueSize - 1 {
				tx.Set(f.key(fmt.Sprintf("%04d", i)), value)
			}
		})
		f.wantStored("0000", string(value))
		f.wantStored("0098", string(value))
	}},
	{"TransactionOverLimit", func(f *fixture) {
		value := bytes.Repeat([]byte{'v'}, kv.MaxValueSize)
		f.wantTooLarge(func(tx kv.Transaction) {
			for i := range kv.MaxTransactionSize/kv.MaxValueSize + 1 {
				tx.Set(f.key(fmt.Sprintf("%04d", i)), value)
			}
		})
	}},
	{"ConflictRangesCount", func(f *fixture) {
		ranges := make([]kv.Range, kv.MaxTransactionSize/(2*kv.MaxKeySize)+10)
		for i := range ranges {
			key := append(f.key(fmt.Sprintf("%04d", i)), f.longKey(kv.MaxKeySize-len(f.prefix)-4)...)
			ranges[i] = kv.SingleKey(key)
		}
		f.wantTooLarge(func(tx kv.Transaction) {
			for _, r := range ranges {
				tx.AddReadConflict(r)
			}
		})
		f.wantTooLarge(func(tx kv.Transaction) {
			for _, r := range ranges {
				tx.AddWriteConflict(r)
			}
		})
	}},
}
