package kvtest

import (
	"encoding/binary"
	"math"
	"strings"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// number returns n as Add stores it.
func number(n int64) string {
	return string(binary.LittleEndian.AppendUint64(nil, uint64(n)))
}

// wantAdd checks what an Add to a value makes of it, in the transaction that
// adds and after its commit, and when the value is the transaction's own.
func (f *fixture) wantAdd(old string, delta int64, want string) {
	f.Helper()
	f.write(func(tx kv.Transaction) {
		tx.ClearRange(f.all())
		if old != absent {
			tx.Set(f.key("stored"), []byte(old))
		}
	})

	f.write(func(tx kv.Transaction) {
		if old != absent {
			tx.Set(f.key("own"), []byte(old))
		} else {
			tx.Clear(f.key("own"))
		}
		tx.Add(f.key("stored"), delta)
		tx.Add(f.key("own"), delta)
		tx.Add(f.key("unread"), 0)
		f.wantGet(tx, "stored", want)
		f.wantGet(tx, "own", want)
	})

	f.wantStored("stored", want)
	f.wantStored("own", want)
}

var atomicTests = []test{
	{"AddToAbsent", func(f *fixture) {
		f.wantAdd(absent, 1, number(1))
		f.wantAdd(absent, -1, number(-1))
		f.wantAdd(absent, 0, number(0))
	}},
	{"AddToNumber", func(f *fixture) {
		f.wantAdd(number(40), 2, number(42))
		f.wantAdd(number(1), -2, number(-1))
		f.wantAdd(number(-1), 1, number(0))
		f.wantAdd(number(255), 1, number(256))
	}},
	{"AddWraps", func(f *fixture) {
		f.wantAdd(number(math.MaxInt64), 1, number(math.MinInt64))
		f.wantAdd(number(math.MinInt64), -1, number(math.MaxInt64))
		f.wantAdd(number(math.MinInt64), math.MinInt64, number(0))
	}},
	{"AddToOddLengths", func(f *fixture) {
		f.wantAdd("", 7, number(7))
		f.wantAdd("\x05", 2, number(7))
		f.wantAdd("\xff", 1, number(256))
		f.wantAdd("\xff\xff\xff\xff\xff\xff\xff", 1, number(1<<56))
		f.wantAdd(number(5)+"more", 2, number(7))
		f.wantAdd(strings.Repeat("\xff", 9), 1, number(0))
	}},
	{"AddUnreadIsStored", func(f *fixture) {
		// The value is worked out when it is committed, not when it is read.
		f.put(number(5), "a")
		f.write(func(tx kv.Transaction) { tx.Add(f.key("a"), 3) })
		f.wantStored("a", number(8))
	}},
	{"AddsAddUp", func(f *fixture) {
		f.put(number(100), "a")
		f.write(func(tx kv.Transaction) {
			for i := range int64(10) {
				tx.Add(f.key("a"), i)
			}
			tx.Clear(f.key("b"))
			tx.Add(f.key("b"), 1)
			tx.Add(f.key("b"), 1)
			tx.Add(f.key("c"), 5)
			tx.Set(f.key("c"), []byte(number(1)))
			tx.Add(f.key("c"), 1)
			tx.Add(f.key("d"), 5)
			tx.ClearRange(f.span("d", "e"))
			f.wantAllLimits(tx, "a="+number(145), "b="+number(2), "c="+number(2))
		})
		f.wantAllLimits(f.beginRead(), "a="+number(145), "b="+number(2), "c="+number(2))
	}},
	{"CompareAndClear", func(f *fixture) {
		f.put("1", "equal", "different", "longer", "emptied")
		f.put("", "empty", "empty but not compared as such")
		f.write(func(tx kv.Transaction) {
			tx.CompareAndClear(f.key("equal"), []byte("1"))
			tx.CompareAndClear(f.key("different"), []byte("2"))
			tx.CompareAndClear(f.key("longer"), []byte("11"))
			tx.CompareAndClear(f.key("empty"), nil)
			tx.CompareAndClear(f.key("empty but not compared as such"), []byte("1"))
			tx.CompareAndClear(f.key("absent"), nil)
			tx.Set(f.key("own"), []byte("own"))
			tx.CompareAndClear(f.key("own"), []byte("own"))
			tx.Set(f.key("emptied"), nil)
			tx.CompareAndClear(f.key("emptied"), []byte("1"))
		})
		f.wantRange(f.beginRead(), f.all(), kv.RangeOptions{},
			"different=1", "emptied=", "empty but not compared as such=", "longer=1")
	}},
	{"CompareAndClearReadsOwnWrites", func(f *fixture) {
		f.put("1", "a", "b")
		tx := f.begin()
		tx.CompareAndClear(f.key("a"), []byte("1"))
		tx.CompareAndClear(f.key("b"), []byte("2"))
		f.wantGet(tx, "a", absent)
		f.wantGet(tx, "b", "1")
		tx.Add(f.key("n"), 1)
		tx.CompareAndClear(f.key("n"), []byte(number(1)))
		f.wantGet(tx, "n", absent)
		await(f, tx.Commit())
		f.wantAllLimits(f.beginRead(), "b=1")
	}},
	{"CountAndRemoveAtZero", func(f *fixture) {
		// How counters leave no zeros behind.
		for _, delta := range []int64{2, -1, -1} {
			f.write(func(tx kv.Transaction) {
				tx.Add(f.key("n"), delta)
				tx.CompareAndClear(f.key("n"), []byte(number(0)))
			})
		}
		f.wantStored("n", absent)
	}},
}
