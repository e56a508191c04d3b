package kvtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

var readTests = []test{
	{"AbsentIsNil", func(f *fixture) {
		if value := await(f, f.beginRead().Get(f.key("a"))); value != nil {
			f.Errorf("an absent key has the value %q", value)
		}
	}},
	{"EmptyIsNotNil", func(f *fixture) {
		f.write(func(tx kv.Transaction) {
			tx.Set(f.key("empty"), []byte{})
			tx.Set(f.key("nil"), nil)
			f.wantGet(tx, "empty", "")
			f.wantGet(tx, "nil", "")
		})
		tx := f.beginRead()
		f.wantGet(tx, "empty", "")
		f.wantGet(tx, "nil", "")
		f.wantRange(tx, f.all(), kv.RangeOptions{}, "empty=", "nil=")
	}},
	{"KeyOrderIsByteOrder", func(f *fixture) {
		f.put("1", "", "\x00", "\x00\x00", "a", "a\x00", "a\x00\xff", "a\xff", "b", "\x7f", "\x80", "\xfe\xff")
		f.wantRange(f.beginRead(), f.all(), kv.RangeOptions{}, "=1", "\x00=1", "\x00\x00=1", "a=1",
			"a\x00=1", "a\x00\xff=1", "a\xff=1", "b=1", "\x7f=1", "\x80=1", "\xfe\xff=1")
	}},
	{"RangeBounds", func(f *fixture) {
		f.put("1", "a", "b", "c", "d")
		tx := f.beginRead()
		f.wantRange(tx, f.span("b", "d"), kv.RangeOptions{}, "b=1", "c=1")
		f.wantRange(tx, f.span("b", "d"), kv.RangeOptions{Reverse: true}, "c=1", "b=1")
		f.wantRange(tx, f.span("aa", "cc"), kv.RangeOptions{}, "b=1", "c=1")
		f.wantRange(tx, f.span("aa", "cc"), kv.RangeOptions{Reverse: true}, "c=1", "b=1")
		f.wantRange(tx, kv.SingleKey(f.key("b")), kv.RangeOptions{}, "b=1")
		f.wantRange(tx, f.span("bb", "c"), kv.RangeOptions{})
	}},
	{"EmptyRange", func(f *fixture) {
		f.put("1", "a", "b", "c")
		for _, empty := range []kv.Range{f.span("b", "b"), f.span("c", "a")} {
			f.write(func(tx kv.Transaction) {
				f.wantRange(tx, empty, kv.RangeOptions{})
				f.wantRange(tx, empty, kv.RangeOptions{Limit: 1, Reverse: true})
				f.wantRange(tx.Snapshot(), empty, kv.RangeOptions{})
				tx.ClearRange(empty)
				tx.AddReadConflict(empty)
				tx.AddWriteConflict(empty)
			})
		}
		f.wantRange(f.beginRead(), f.all(), kv.RangeOptions{}, "a=1", "b=1", "c=1")
	}},
	{"Limits", func(f *fixture) {
		f.put("1", "a", "b", "c", "d")
		f.wantAllLimits(f.beginRead(), "a=1", "b=1", "c=1", "d=1")
	}},
	{"Bytes", func(f *fixture) {
		f.put("", "a", "d")
		f.put("22", "b", "c")
		f.put("4444", "e", "f")
		all := []string{"a=", "b=22", "c=22", "d=", "e=4444", "f=4444"}
		f.wantBytes(f.beginRead(), all...)
		tx := f.begin()
		f.wantBytes(tx, all...)
		f.wantBytes(tx.Snapshot(), all...)
		tx.Set(f.key("b"), []byte("333"))
		tx.Set(f.key("cc"), []byte("1"))
		tx.Clear(f.key("d"))
		f.wantBytes(tx, "a=", "b=333", "c=22", "cc=1", "e=4444", "f=4444")
	}},
	{"BytesOfLongValues", func(f *fixture) {
		// Each is more than a store returns in one piece.
		value := strings.Repeat("v", kv.MaxValueSize)
		f.put(value, "a", "b", "c", "d")
		tx := f.beginRead()
		first, second := "a="+value, "b="+value
		f.wantRange(tx, f.all(), kv.RangeOptions{Bytes: 1}, first)
		f.wantRange(tx, f.all(), kv.RangeOptions{Bytes: kv.MaxValueSize}, first)
		f.wantRange(tx, f.all(), kv.RangeOptions{Bytes: kv.MaxValueSize + 1}, first, second)
		f.wantRange(tx, f.all(), kv.RangeOptions{Bytes: kv.MaxValueSize + 1, Reverse: true}, "d="+value, "c="+value)
	}},
	{"ManyPairs", func(f *fixture) {
		// More than a store returns in one piece.
		const count = 3000
		names, want := make([]string, count), make([]string, count)
		for i := range count {
			names[i] = fmt.Sprintf("%04d", i)
			want[i] = names[i] + "=some value"
		}
		f.put("some value", names...)
		tx := f.beginRead()
		f.wantRange(tx, f.all(), kv.RangeOptions{}, want...)
		f.wantRange(tx, f.all(), kv.RangeOptions{Limit: count - 1}, want[:count-1]...)
		slices.Reverse(want)
		f.wantRange(tx, f.all(), kv.RangeOptions{Reverse: true}, want...)
		f.wantRange(tx, f.all(), kv.RangeOptions{Reverse: true, Limit: count - 1}, want[:count-1]...)
	}},
	{"FutureAnswersTwice", func(f *fixture) {
		f.put("1", "a")
		tx := f.begin()
		get, getRange := tx.Get(f.key("a")), tx.GetRange(f.all(), kv.RangeOptions{})
		check := func() {
			if got := text(await(f, get)); got != "1" {
				f.Errorf("Get returned %q, want 1", got)
			}
			if got := f.pairs(await(f, getRange)); !slices.Equal(got, []string{"a=1"}) {
				f.Errorf("GetRange returned %q, want a=1", got)
			}
		}
		check()
		tx.Set(f.key("a"), []byte("2"))
		check()
		commit := tx.Commit()
		await(f, commit)
		await(f, commit)
		check()
	}},
	{"ReadIgnoresLaterWrites", func(f *fixture) {
		f.put("1", "a")
		tx := f.begin()
		get := tx.Get(f.key("a"))
		tx.Set(f.key("a"), []byte("2"))
		if got := text(await(f, get)); got != "1" {
			f.Errorf("a Get made before the write returned %q, want 1", got)
		}
	}},
}

// wantAllLimits checks both directions and every limit over the keys of the
// test; want is all of them in key order.
func (f *fixture) wantAllLimits(r kv.Reader, want ...string) {
	f.Helper()
	for _, reverse := range []bool{false, true} {
		for limit := range len(want) + 2 {
			expect := want
			if limit > 0 {
				expect = want[:min(limit, len(want))]
			}
			f.wantRange(r, f.all(), kv.RangeOptions{Limit: limit, Reverse: reverse}, expect...)
		}
		want = slices.Clone(want)
		slices.Reverse(want)
	}
}

// wantBytes checks both directions and every bound in bytes, alone and with a limit, over the
// keys of the test; want is all of them in key order.
func (f *fixture) wantBytes(r kv.Reader, want ...string) {
	f.Helper()
	for _, reverse := range []bool{false, true} {
		for bytes := range 20 {
			expect, size := want, 0
			for i, pair := range want {
				_, value, _ := strings.Cut(pair, "=")
				if size += len(value); bytes > 0 && size >= bytes {
					expect = want[:i+1]
					break
				}
			}
			options := kv.RangeOptions{Bytes: bytes, Reverse: reverse}
			f.wantRange(r, f.all(), options, expect...)
			if full := options.Full(await(f, r.GetRange(f.all(), options))); full != (bytes > 0 && size >= bytes) {
				f.Errorf("Full with %+v returned %t", options, full)
			}
			options.Limit = 3
			f.wantRange(r, f.all(), options, expect[:min(3, len(expect))]...)
		}
		want = slices.Clone(want)
		slices.Reverse(want)
	}
}

var readYourWritesTests = []test{
	{"Get", func(f *fixture) {
		f.put("old", "changed", "cleared", "in range", "back")
		tx := f.begin()
		tx.Set(f.key("changed"), []byte("new"))
		tx.Set(f.key("added"), []byte("new"))
		tx.Clear(f.key("cleared"))
		tx.ClearRange(f.span("in", "io"))
		tx.Clear(f.key("back"))
		tx.Set(f.key("back"), []byte("again"))
		for _, r := range []kv.Reader{tx, tx.Snapshot()} {
			f.wantGet(r, "changed", "new")
			f.wantGet(r, "added", "new")
			f.wantGet(r, "cleared", absent)
			f.wantGet(r, "in range", absent)
			f.wantGet(r, "back", "again")
		}
	}},
	{"LastWriteWins", func(f *fixture) {
		f.write(func(tx kv.Transaction) {
			tx.Set(f.key("a"), []byte("1"))
			tx.Set(f.key("a"), []byte("2"))
			tx.Set(f.key("b"), []byte("1"))
			tx.Clear(f.key("b"))
			tx.Set(f.key("c"), []byte("1"))
			tx.ClearRange(f.span("b", "d"))
			tx.Set(f.key("d"), []byte("1"))
			tx.ClearRange(f.span("d", "e"))
			tx.Set(f.key("d"), []byte("2"))
			f.wantAllLimits(tx, "a=2", "d=2")
		})
		f.wantAllLimits(f.beginRead(), "a=2", "d=2")
	}},
	{"RangesOverSets", func(f *fixture) {
		f.put("0", "b", "d", "f")
		tx := f.begin()
		for _, name := range []string{"g", "a", "d", "e"} {
			tx.Set(f.key(name), []byte("1"))
		}
		f.wantAllLimits(tx, "a=1", "b=0", "d=1", "e=1", "f=0", "g=1")
		f.wantAllLimits(tx.Snapshot(), "a=1", "b=0", "d=1", "e=1", "f=0", "g=1")
		f.wantRange(tx, f.span("c", "f"), kv.RangeOptions{}, "d=1", "e=1")
		f.wantRange(tx, f.span("c", "f"), kv.RangeOptions{Reverse: true}, "e=1", "d=1")
	}},
	{"RangesOverClears", func(f *fixture) {
		f.put("0", "a", "b", "c", "d", "e", "f", "g", "h")
		tx := f.begin()
		tx.Clear(f.key("a"))
		tx.Clear(f.key("d"))
		tx.Clear(f.key("h"))
		tx.Clear(f.key("was never there"))
		f.wantAllLimits(tx, "b=0", "c=0", "e=0", "f=0", "g=0")
		f.wantAllLimits(tx.Snapshot(), "b=0", "c=0", "e=0", "f=0", "g=0")
	}},
	{"RangesOverClearRanges", func(f *fixture) {
		f.put("0", "a", "b", "c", "d", "e", "f", "g", "h")
		tx := f.begin()
		tx.ClearRange(f.span("", "b"))
		tx.ClearRange(f.span("c", "e"))
		tx.ClearRange(f.span("d", "f")) // overlaps the one before
		tx.Set(f.key("d"), []byte("1"))
		tx.Set(f.key("dd"), []byte("1"))
		tx.ClearRange(f.span("gg", "z"))
		f.wantAllLimits(tx, "b=0", "d=1", "dd=1", "f=0", "g=0")
		f.wantAllLimits(tx.Snapshot(), "b=0", "d=1", "dd=1", "f=0", "g=0")
		await(f, tx.Commit())
		f.wantAllLimits(f.beginRead(), "b=0", "d=1", "dd=1", "f=0", "g=0")
	}},
	{"RangesOverEverythingCleared", func(f *fixture) {
		f.put("0", "a", "b", "c")
		tx := f.begin()
		tx.ClearRange(f.all())
		f.wantAllLimits(tx)
		tx.Set(f.key("b"), []byte("1"))
		f.wantAllLimits(tx, "b=1")
	}},
	{"RangesOverAtomics", func(f *fixture) {
		f.put(number(5), "b", "c", "d")
		tx := f.begin()
		tx.Add(f.key("a"), 1)
		tx.Add(f.key("b"), 2)
		tx.CompareAndClear(f.key("c"), []byte(number(5)))
		tx.CompareAndClear(f.key("d"), []byte(number(6)))
		f.wantAllLimits(tx, "a="+number(1), "b="+number(7), "d="+number(5))
		f.wantAllLimits(tx.Snapshot(), "a="+number(1), "b="+number(7), "d="+number(5))
		await(f, tx.Commit())
		f.wantAllLimits(f.beginRead(), "a="+number(1), "b="+number(7), "d="+number(5))
	}},
	{"NothingSeenByOthersBeforeCommit", func(f *fixture) {
		f.put("0", "a")
		tx := f.begin()
		tx.Set(f.key("a"), []byte("1"))
		tx.Set(f.key("b"), []byte("1"))
		f.wantRange(f.beginRead(), f.all(), kv.RangeOptions{}, "a=0")
		await(f, tx.Commit())
		f.wantRange(f.beginRead(), f.all(), kv.RangeOptions{}, "a=1", "b=1")
	}},
	{"CancelWritesNothing", func(f *fixture) {
		tx := f.begin()
		tx.Set(f.key("a"), []byte("1"))
		tx.Cancel()
		f.wantStored("a", absent)
	}},
}
