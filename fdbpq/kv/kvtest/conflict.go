package kvtest

import (
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// schedule is two transactions over the keys b, d, f, h and j, each "0". The outer one runs its
// operations, then the whole inner one runs and commits, then the outer one commits. Each also
// writes a key of its own.
//
// In a serial engine the inner one waits for the outer one, and must then see what it wrote.
type schedule struct {
	name     string
	outer    []op
	inner    []op
	conflict bool // the outer one must fail with ErrConflict
}

// These sort behind all others, so that no range of a schedule meets them.
const (
	outerKey = "~outer"
	innerKey = "~inner"
)

func conflictTests() []test {
	var tests []test
	for _, s := range schedules {
		tests = append(tests, test{s.name, s.run})
	}
	return tests
}

func (s schedule) run(f *fixture) {
	before := puts("0", "b", "d", "f", "h", "j")
	f.write(before...)

	// The first read fixes the state that outer sees, in case Begin has not.
	outerOps := slices.Concat([]op{get(innerKey).inSnapshot()}, s.outer, puts("1", outerKey))
	innerOps := slices.Concat(s.inner, puts("1", innerKey))

	outer := f.begin()
	f.run(outer, modelOf(before...), outerOps...)

	if f.db.Traits().Serial {
		begun := f.beginLater(f.ctx)
		await(f, outer.Commit())
		waited, err := begun()
		if err != nil {
			f.Fatalf("the transaction that waited: %v", err)
		}

		m := modelOf(slices.Concat(before, outerOps)...)
		f.run(waited, m, append([]op{get(outerKey)}, innerOps...)...)
		await(f, waited.Commit())
		f.wantPairs(f.beginRead(), m)
		return
	}

	inner := f.begin()
	f.run(inner, modelOf(before...), innerOps...)
	await(f, inner.Commit())

	after := slices.Concat(before, innerOps)
	if s.conflict {
		f.wantCommitFails(outer, kv.ErrConflict)
	} else {
		await(f, outer.Commit())
		after = append(after, outerOps...)
	}

	f.wantPairs(f.beginRead(), modelOf(after...))
}

// snapshot reads everything without a read conflict range.
var snapshot = []op{get("b").inSnapshot(), scan("", "\xff", everything).inSnapshot(),
	scan("", "\xff", lastTwo).inSnapshot()}

var schedules = []schedule{
	{"GetThenSet", []op{get("b")}, puts("1", "b"), true},
	{"GetThenSetOfAnother", []op{get("b")}, puts("1", "d"), false},
	{"GetThenSetOfNext", []op{get("b")}, puts("1", "b\x00"), false},
	{"GetThenClear", []op{get("b")}, []op{clearKey("b")}, true},
	{"GetThenClearRange", []op{get("d")}, []op{clearRange("c", "e")}, true},
	{"GetThenClearRangeUpToIt", []op{get("d")}, []op{clearRange("a", "d")}, false},
	{"GetThenClearRangeAfterIt", []op{get("d")}, []op{clearRange("d\x00", "z")}, false},
	{"GetThenAdd", []op{get("b")}, []op{add("b", 1)}, true},
	{"GetThenCompareAndClear", []op{get("b")}, []op{compareAndClear("b", "0")}, true},
	{"GetOfAbsentThenSet", []op{get("a")}, puts("1", "a"), true},

	{"RangeThenChange", []op{scan("a", "e", everything)}, puts("1", "b"), true},
	{"RangeThenClear", []op{scan("a", "e", everything)}, []op{clearKey("d")}, true},
	{"Phantom", []op{scan("a", "e", everything)}, puts("1", "c"), true},
	{"PhantomAtBegin", []op{scan("a", "e", everything)}, puts("1", "a"), true},
	{"PhantomAtEnd", []op{scan("a", "e", everything)}, puts("1", "e"), false},
	{"PhantomInEmptyRange", []op{scan("k", "z", everything)}, puts("1", "m"), true},
	{"PhantomInReverse", []op{scan("a", "e", backwards)}, puts("1", "c"), true},
	{"RangeThenWriteOutside", []op{scan("c", "e", everything)}, puts("1", "b", "f"), false},

	{"LimitedThenPhantom", []op{scan("a", "z", firstTwo)}, puts("1", "c"), true},
	{"LimitedThenPhantomBefore", []op{scan("a", "z", firstTwo)}, puts("1", "a"), true},
	{"LimitedThenChangeOfLast", []op{scan("a", "z", firstTwo)}, puts("1", "d"), true},
	{"LimitedThenPhantomAfterLast", []op{scan("a", "z", firstTwo)}, puts("1", "d\x00"), false},
	{"LimitedThenChangeOfRest", []op{scan("a", "z", firstTwo)}, []op{clearRange("e", "z")}, false},
	{"BytesThenPhantom", []op{scan("a", "z", firstBytes)}, puts("1", "c"), true},
	{"BytesThenChangeOfLast", []op{scan("a", "z", firstBytes)}, puts("1", "d"), true},
	{"BytesThenPhantomAfterLast", []op{scan("a", "z", firstBytes)}, puts("1", "d\x00"), false},
	{"BytesNotReached", []op{scan("a", "e", threeBytes)}, puts("1", "dd"), true},
	{"LimitBeforeBytes", []op{scan("a", "z", firstOrTwoBytes)}, puts("1", "d"), false},
	{"ReverseBytesThenPhantom", []op{scan("a", "z", lastBytes)}, puts("1", "i"), true},
	{"ReverseBytesThenPhantomBeforeLast", []op{scan("a", "z", lastBytes)}, puts("1", "gg"), false},
	{"BytesOverOwnWrites", []op{set("a", "1"), scan("", "z", firstBytes)}, puts("1", "aa"), true},
	{"BytesOverOwnWritesThenRest", []op{set("a", "1"), scan("", "z", firstBytes)},
		puts("1", "d"), false},
	{"LimitNotReached", []op{scan("a", "e", firstThree)}, puts("1", "dd"), true},
	{"ReverseLimitedThenPhantom", []op{scan("a", "z", lastTwo)}, puts("1", "i"), true},
	{"ReverseLimitedThenPhantomAtEnd", []op{scan("a", "z", lastTwo)}, puts("1", "y"), true},
	{"ReverseLimitedThenChangeOfLast", []op{scan("a", "z", lastTwo)}, puts("1", "h"), true},
	{"ReverseLimitedThenPhantomBeforeLast", []op{scan("a", "z", lastTwo)}, puts("1", "gg"), false},
	{"ReverseLimitedThenChangeOfRest", []op{scan("a", "z", lastTwo)},
		[]op{clearRange("a", "h")}, false},
	{"ReverseLimitNotReached", []op{scan("g", "z", lastThree)}, puts("1", "g"), true},
	{"LimitedOverOwnWrites", []op{set("a", "1"), scan("", "z", firstTwo)}, puts("1", "aa"), true},
	{"LimitedOverOwnWritesThenRest", []op{set("a", "1"), scan("", "z", firstTwo)},
		puts("1", "d"), false},
	{"LimitedOverOwnClears", []op{clearKey("b"), scan("a", "z", firstTwo)}, puts("1", "e"), true},
	{"LimitedOverOwnClearsThenRest", []op{clearKey("b"), scan("a", "z", firstTwo)},
		puts("1", "h"), false},

	{"SnapshotReads", snapshot, []op{clearRange("", "y")}, false},
	{"SnapshotThenReadConflict", append(snapshot, readConflict("f", "g")), puts("1", "f"), true},
	{"ReadConflict", []op{readConflict("c", "e")}, puts("1", "c"), true},
	{"ReadConflictEndIsOutside", []op{readConflict("c", "e")}, puts("1", "e"), false},
	{"ReadConflictEmpty", []op{readConflict("e", "c")}, []op{clearRange("a", "z")}, false},
	{"WriteConflictWithGet", []op{get("b")}, []op{writeConflict("a", "c")}, true},
	{"WriteConflictWithRange", []op{scan("a", "z", everything)},
		[]op{writeConflict("x", "y")}, true},
	{"WriteConflictEndIsOutside", []op{get("d")}, []op{writeConflict("a", "d")}, false},
	{"WriteConflictEmpty", []op{scan("a", "z", everything)}, []op{writeConflict("e", "c")}, false},
	{"WriteConflictWithReadConflict", []op{readConflict("c", "e")},
		[]op{writeConflict("d", "f")}, true},

	{"BlindSets", puts("1", "b"), puts("1", "b"), false},
	{"BlindClears", []op{clearRange("a", "z")}, []op{set("c", "1"), clearKey("d")}, false},
	{"BlindWriteConflicts", []op{writeConflict("a", "z")}, []op{writeConflict("a", "z")}, false},
	{"Adds", []op{add("n", 1)}, []op{add("n", 1)}, false},
	{"AddThenSet", []op{add("b", 1)}, puts("1", "b"), false},
	{"CompareAndClears", []op{compareAndClear("b", "0")}, []op{compareAndClear("b", "0")}, false},
	{"CompareAndClearThenSet", []op{compareAndClear("b", "0")}, puts("1", "b"), false},

	{"WriteSkew", []op{get("b"), get("d"), set("b", "1")},
		[]op{get("b"), get("d"), set("d", "1")}, true},
	{"LostUpdate", []op{get("b"), set("b", "1")}, []op{get("b"), set("b", "1")}, true},
	{"PhantomSkew", []op{scan("k", "z", everything), set("l", "1")},
		[]op{scan("k", "z", everything), set("m", "1")}, true},
}
