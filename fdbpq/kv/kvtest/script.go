package kvtest

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// script is one transaction. The model knows its result.
type script struct {
	name   string
	before []op // committed before it
	ops    []op
}

// run runs the script twice, because engines keep writes differently while nothing reads them: once
// reading only what ops read until it has committed, and once reading everything after each of ops.
func (s script) run(f *fixture) {
	for _, often := range []bool{false, true} {
		f.write(append([]op{clearRange("", "\xff")}, s.before...)...)
		tx, m := f.begin(), modelOf(s.before...)
		for _, o := range s.ops {
			f.run(tx, m, o)
			if often {
				f.wantPairs(tx, m)
			}
		}

		if often {
			f.wantModel(tx, m)
			f.wantModel(tx.Snapshot(), m)
		}

		await(f, tx.Commit())
		f.wantModel(f.beginRead(), m)
	}
}

// puts sets all of names to the same value.
func puts(value string, names ...string) (ops []op) {
	for _, name := range names {
		ops = append(ops, set(name, value))
	}
	return ops
}

// adds adds to a value that is stored, and to one that the transaction itself has set.
func adds(stored string, delta int64) script {
	return script{fmt.Sprintf("Add %d to %q", delta, stored), puts(stored, "stored"),
		[]op{set("own", stored), add("stored", delta), add("own", delta), add("unread", 0)}}
}

func scriptTests() []test {
	tests := []test{
		large("LongValues", puts(longValue, "a", "b", "c", "d"), kv.RangeOptions{Bytes: 1},
			kv.RangeOptions{Bytes: kv.MaxValueSize}, kv.RangeOptions{Bytes: kv.MaxValueSize + 1},
			kv.RangeOptions{Bytes: kv.MaxValueSize + 1, Reverse: true}),
		large("ManyPairs", manyOps(3000, func(i string) op { return set(i, "some value") }),
			everything, backwards,
			kv.RangeOptions{Limit: 2999}, kv.RangeOptions{Limit: 2999, Reverse: true}),
	}

	for _, s := range scripts {
		tests = append(tests, test{s.name, s.run})
	}

	return tests
}

// large reads more than a store returns in one piece.
func large(name string, ops []op, reads ...kv.RangeOptions) test {
	return test{name, func(f *fixture) {
		f.write(ops...)
		for _, o := range reads {
			f.wantRead(f.beginRead(), modelOf(ops...), scan("", "\xff", o))
		}
	}}
}

// firstTwo and lastTwo stop after two pairs, firstBytes and lastBytes after two bytes. That is the
// same where values have one byte each.
var (
	everything = kv.RangeOptions{}
	backwards  = kv.RangeOptions{Reverse: true}
	firstTwo   = kv.RangeOptions{Limit: 2}
	lastTwo    = kv.RangeOptions{Limit: 2, Reverse: true}
	firstThree = kv.RangeOptions{Limit: 3}
	lastThree  = kv.RangeOptions{Limit: 3, Reverse: true}
	firstBytes = kv.RangeOptions{Bytes: 2}
	lastBytes  = kv.RangeOptions{Bytes: 2, Reverse: true}
	threeBytes = kv.RangeOptions{Bytes: 3}

	firstOrTwoBytes = kv.RangeOptions{Limit: 1, Bytes: 2}
)

var scripts = []script{
	{"EmptyIsNotNil", puts("", "stored"),
		[]op{get("absent"), set("own", ""), get("own"), get("stored")}},
	{"KeyOrderIsByteOrder", nil, puts("1", "", "\x00", "\x00\x00", "a", "a\x00", "a\x00\xff",
		"a\xff", "b", "\x7f", "\x80", "\xfe\xff")},
	{"RangeBounds", puts("1", "a", "b", "c", "d"), []op{
		scan("b", "d", everything), scan("b", "d", backwards), scan("aa", "cc", everything),
		scan("aa", "cc", backwards), scan("b", "b\x00", everything), scan("bb", "c", everything)}},
	{"EmptyRange", puts("1", "a", "b", "c"), []op{
		scan("b", "b", everything), scan("b", "b", lastTwo), scan("c", "a", everything),
		scan("c", "a", lastTwo), scan("c", "a", everything).inSnapshot(), clearRange("b", "b"),
		clearRange("c", "a"), readConflict("c", "a"), writeConflict("c", "a")}},
	{"Bytes", slices.Concat(puts("22", "b", "c"), puts("4444", "e", "f"), puts("", "a", "d")),
		[]op{set("b", "333"), set("cc", "1"), clearKey("d")}},

	{"LastWriteWins", puts("old", "back"), []op{set("a", "1"), set("a", "2"), set("b", "1"),
		clearKey("b"), set("c", "1"), clearRange("b", "d"), set("d", "1"), clearRange("d", "e"),
		set("d", "2"), clearKey("back"), set("back", "again")}},
	{"SetsAmongStored", puts("0", "b", "d", "f"), puts("1", "g", "a", "d", "e")},
	{"ClearsAmongStored", puts("0", "a", "b", "c", "d", "e", "f", "g", "h"),
		[]op{clearKey("a"), clearKey("d"), clearKey("h"), clearKey("was never there")}},
	{"ClearedRangesOverlap", puts("0", "a", "b", "c", "d", "e", "f", "g", "h"),
		[]op{clearRange("", "b"), clearRange("c", "e"), clearRange("d", "f"), set("d", "1"),
			set("dd", "1"), clearRange("gg", "z")}},
	{"EverythingCleared", puts("0", "a", "b", "c"), []op{clearRange("", "\xff"), set("b", "1")}},
	{"WriteConflictChangesNothing", puts("0", "a"),
		[]op{writeConflict("", "z"), readConflict("", "z")}},

	{"AddToAbsent", []op{add("d", 5)},
		[]op{add("a", 1), add("b", -1), add("c", 0), clearKey("d"), add("d", 1)}},
	adds(number(40), 2), adds(number(1), -2), adds(number(-1), 1), adds(number(255), 1),
	adds(number(math.MaxInt64), 1), adds(number(math.MinInt64), -1),
	adds(number(math.MinInt64), math.MinInt64),
	adds("", 7), adds("\x05", 2), adds("\xff", 1), adds(strings.Repeat("\xff", 7), 1),
	adds(number(5)+"more", 2), adds(strings.Repeat("\xff", 9), 1),
	{"AddsAddUp", puts(number(100), "a"), []op{add("a", 1), add("a", 2), add("b", 1), add("b", 1),
		add("c", 5), set("c", number(1)), add("c", 1), add("d", 5), clearRange("d", "e")}},
	{"CompareAndClear",
		append(puts("1", "equal", "different", "longer", "emptied"), puts("", "empty", "kept")...),
		[]op{compareAndClear("equal", "1"), compareAndClear("different", "2"),
			compareAndClear("longer", "11"), compareAndClear("empty", ""),
			compareAndClear("kept", "1"), compareAndClear("absent", ""), set("own", "own"),
			compareAndClear("own", "own"), set("emptied", ""), compareAndClear("emptied", "1")}},
	{"AddThenCompareAndClear", puts(number(1), "stored", "other"),
		[]op{add("n", 1), compareAndClear("n", number(1)), add("again", 5),
			compareAndClear("again", number(5)), add("again", 1),
			add("stored", -1), compareAndClear("stored", number(0)),
			add("other", 1), compareAndClear("other", number(1))}},

	{"KeyAtLimit", nil, []op{set(long(0), "1"), get(long(0)),
		scan(long(0), long(0)+"\x00", everything), add(long(0), 1),
		compareAndClear(long(0), "2\x00\x00\x00\x00\x00\x00\x00")}},
	{"ValueAtLimit", puts(longValue, "stored"), []op{set("own", longValue), get("own"),
		get("stored"), compareAndClear("own", longValue), compareAndClear("stored", longValue)}},
}

// longValue is as long as a value may be.
var longValue = strings.Repeat("v", kv.MaxValueSize)

// long returns the name of a key that is longer than the longest key, by over bytes.
func long(over int) string { return strings.Repeat("k", kv.MaxKeySize-prefixSize+over) }

// tooLarge are the writes of transactions that must fail with ErrTooLarge. Nothing may be written,
// not even by other operations of the transaction. Engines differ in how they count overhead, so
// transactions of many writes stay one percent away from the limit.
var tooLarge = map[string][]op{
	"SetLongKey":               {set(long(1), "1")},
	"AddLongKey":               {add(long(1), 1)},
	"CompareAndClearLongKey":   {compareAndClear(long(1), "1")},
	"SetLongValue":             {set("a", longValue+"v")},
	"CompareAndClearLongValue": {compareAndClear("a", longValue+"v")},
	"ManyWrites":               manyOps(manyValues+1, setLong),
	"ReadConflicts":            manyOps(manyRanges, longRange(readConflict)),
	"WriteConflicts":           manyOps(manyRanges, longRange(writeConflict)),
}

const (
	manyValues = kv.MaxTransactionSize / kv.MaxValueSize
	manyRanges = kv.MaxTransactionSize/(2*kv.MaxKeySize) + 10
)

func setLong(i string) op { return set(i, longValue) }

func longRange(of func(begin, end string) op) func(i string) op {
	return func(i string) op { return of(i+long(-4), i+long(-4)+"\x00") }
}

// manyOps returns n operations, each made of a number of four digits.
func manyOps(n int, make func(i string) op) (ops []op) {
	for i := range n {
		ops = append(ops, make(fmt.Sprintf("%04d", i)))
	}
	return ops
}

func limitTests() []test {
	tests := []test{{"TransactionUnderLimit", func(f *fixture) {
		f.write(manyOps(manyValues-1, setLong)...)
		f.wantRead(f.beginRead(), model{"0000": longValue}, get("0000"))
		f.wantRead(f.beginRead(), model{"0098": longValue}, get("0098"))
	}}}

	for name, ops := range tooLarge {
		tests = append(tests, test{name, func(f *fixture) {
			tx := f.begin()
			f.run(tx, model{}, slices.Concat(puts("1", "before"), ops, puts("1", "after"))...)
			f.wantCommitFails(tx, kv.ErrTooLarge)
			f.wantPairs(f.beginRead(), model{})
		}})
	}

	return tests
}
