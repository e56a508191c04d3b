package kvtest

import (
	"slices"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// schedule is two transactions over the keys b, d, f, h and j, each "0": the
// outer one runs its part, then the whole inner one runs and commits, then the
// outer one commits. Each also writes a key of its own.
//
// In a serial engine the inner one waits for the outer one and must then see what it wrote.
type schedule struct {
	name     string
	outer    []op
	inner    []op
	conflict bool // the outer one must fail with ErrConflict
}

// Behind all the others, so that no range of a schedule meets them.
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
	// The first read fixes the state it sees, even if the store does so no earlier.
	outerOps := slices.Concat([]op{get(innerKey).inSnapshot()}, s.outer, puts("1", outerKey))
	innerOps := slices.Concat(s.inner, puts("1", innerKey))

	outer := f.begin()
	f.run(outer, modelOf(before...), outerOps...)
	if f.db.Traits().Serial {
		begun := f.beginLater(f.ctx)
		await(f, outer.Commit())
		waited := <-begun
		if waited.err != nil {
			f.Fatalf("the transaction that waited: %v", waited.err)
		}
		m := modelOf(slices.Concat(before, outerOps)...)
		f.run(waited.tx, m, append([]op{get(outerKey)}, innerOps...)...)
		await(f, waited.tx.Commit())
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
var snapshot = []op{get("b").inSnapshot(), getRange("", "\xff", everything).inSnapshot(),
	getRange("", "\xff", lastTwo).inSnapshot()}

var schedules = []schedule{
	{"GetThenSet", []op{get("b")}, []op{set("b", "1")}, true},
	{"GetThenSetOfAnother", []op{get("b")}, []op{set("d", "1")}, false},
	{"GetThenSetOfNext", []op{get("b")}, []op{set("b\x00", "1")}, false},
	{"GetThenClear", []op{get("b")}, []op{clearKey("b")}, true},
	{"GetThenClearRange", []op{get("d")}, []op{clearRange("c", "e")}, true},
	{"GetThenClearRangeUpToIt", []op{get("d")}, []op{clearRange("a", "d")}, false},
	{"GetThenClearRangeAfterIt", []op{get("d")}, []op{clearRange("d\x00", "z")}, false},
	{"GetThenAdd", []op{get("b")}, []op{add("b", 1)}, true},
	{"GetThenCompareAndClear", []op{get("b")}, []op{compareAndClear("b", "0")}, true},
	{"GetOfAbsentThenSet", []op{get("a")}, []op{set("a", "1")}, true},

	{"RangeThenChange", []op{getRange("a", "e", everything)}, []op{set("b", "1")}, true},
	{"RangeThenClear", []op{getRange("a", "e", everything)}, []op{clearKey("d")}, true},
	{"Phantom", []op{getRange("a", "e", everything)}, []op{set("c", "1")}, true},
	{"PhantomAtBegin", []op{getRange("a", "e", everything)}, []op{set("a", "1")}, true},
	{"PhantomAtEnd", []op{getRange("a", "e", everything)}, []op{set("e", "1")}, false},
	{"PhantomInEmptyRange", []op{getRange("k", "z", everything)}, []op{set("m", "1")}, true},
	{"PhantomInReverse", []op{getRange("a", "e", kv.RangeOptions{Reverse: true})}, []op{set("c", "1")}, true},
	{"RangeThenWriteOutside", []op{getRange("c", "e", everything)}, []op{set("b", "1"), set("f", "1")}, false},

	{"LimitedThenPhantom", []op{getRange("a", "z", firstTwo)}, []op{set("c", "1")}, true},
	{"LimitedThenPhantomBefore", []op{getRange("a", "z", firstTwo)}, []op{set("a", "1")}, true},
	{"LimitedThenChangeOfLast", []op{getRange("a", "z", firstTwo)}, []op{set("d", "1")}, true},
	{"LimitedThenPhantomAfterLast", []op{getRange("a", "z", firstTwo)}, []op{set("d\x00", "1")}, false},
	{"LimitedThenChangeOfRest", []op{getRange("a", "z", firstTwo)}, []op{clearRange("e", "z")}, false},
	{"BytesThenPhantom", []op{getRange("a", "z", firstBytes)}, []op{set("c", "1")}, true},
	{"BytesThenChangeOfLast", []op{getRange("a", "z", firstBytes)}, []op{set("d", "1")}, true},
	{"BytesThenPhantomAfterLast", []op{getRange("a", "z", firstBytes)}, []op{set("d\x00", "1")}, false},
	{"BytesNotReached", []op{getRange("a", "e", kv.RangeOptions{Bytes: 3})}, []op{set("dd", "1")}, true},
	{"LimitBeforeBytes", []op{getRange("a", "z", kv.RangeOptions{Limit: 1, Bytes: 2})}, []op{set("d", "1")}, false},
	{"ReverseBytesThenPhantom", []op{getRange("a", "z", lastBytes)}, []op{set("i", "1")}, true},
	{"ReverseBytesThenPhantomBeforeLast", []op{getRange("a", "z", lastBytes)}, []op{set("gg", "1")}, false},
	{"BytesOverOwnWrites", []op{set("a", "1"), getRange("", "z", firstBytes)}, []op{set("aa", "1")}, true},
	{"BytesOverOwnWritesThenRest", []op{set("a", "1"), getRange("", "z", firstBytes)}, []op{set("d", "1")}, false},
	{"LimitNotReached", []op{getRange("a", "e", kv.RangeOptions{Limit: 3})}, []op{set("dd", "1")}, true},
	{"ReverseLimitedThenPhantom", []op{getRange("a", "z", lastTwo)}, []op{set("i", "1")}, true},
	{"ReverseLimitedThenPhantomAtEnd", []op{getRange("a", "z", lastTwo)}, []op{set("y", "1")}, true},
	{"ReverseLimitedThenChangeOfLast", []op{getRange("a", "z", lastTwo)}, []op{set("h", "1")}, true},
	{"ReverseLimitedThenPhantomBeforeLast", []op{getRange("a", "z", lastTwo)}, []op{set("gg", "1")}, false},
	{"ReverseLimitedThenChangeOfRest", []op{getRange("a", "z", lastTwo)}, []op{clearRange("a", "h")}, false},
	{"ReverseLimitNotReached", []op{getRange("g", "z", kv.RangeOptions{Limit: 3, Reverse: true})}, []op{set("g", "1")}, true},
	{"LimitedOverOwnWrites", []op{set("a", "1"), getRange("", "z", firstTwo)}, []op{set("aa", "1")}, true},
	{"LimitedOverOwnWritesThenRest", []op{set("a", "1"), getRange("", "z", firstTwo)}, []op{set("d", "1")}, false},
	{"LimitedOverOwnClears", []op{clearKey("b"), getRange("a", "z", firstTwo)}, []op{set("e", "1")}, true},
	{"LimitedOverOwnClearsThenRest", []op{clearKey("b"), getRange("a", "z", firstTwo)}, []op{set("h", "1")}, false},

	{"SnapshotReads", snapshot, []op{clearRange("", "y")}, false},
	{"SnapshotThenReadConflict", append(snapshot, readConflict("f", "g")), []op{set("f", "1")}, true},
	{"ReadConflict", []op{readConflict("c", "e")}, []op{set("c", "1")}, true},
	{"ReadConflictEndIsOutside", []op{readConflict("c", "e")}, []op{set("e", "1")}, false},
	{"ReadConflictEmpty", []op{readConflict("e", "c")}, []op{clearRange("a", "z")}, false},
	{"WriteConflictWithGet", []op{get("b")}, []op{writeConflict("a", "c")}, true},
	{"WriteConflictWithRange", []op{getRange("a", "z", everything)}, []op{writeConflict("x", "y")}, true},
	{"WriteConflictEndIsOutside", []op{get("d")}, []op{writeConflict("a", "d")}, false},
	{"WriteConflictEmpty", []op{getRange("a", "z", everything)}, []op{writeConflict("e", "c")}, false},
	{"WriteConflictWithReadConflict", []op{readConflict("c", "e")}, []op{writeConflict("d", "f")}, true},

	{"BlindSets", []op{set("b", "1")}, []op{set("b", "1")}, false},
	{"BlindClears", []op{clearRange("a", "z")}, []op{set("c", "1"), clearKey("d")}, false},
	{"BlindWriteConflicts", []op{writeConflict("a", "z")}, []op{writeConflict("a", "z")}, false},
	{"Adds", []op{add("n", 1)}, []op{add("n", 1)}, false},
	{"AddThenSet", []op{add("b", 1)}, []op{set("b", "1")}, false},
	{"CompareAndClears", []op{compareAndClear("b", "0")}, []op{compareAndClear("b", "0")}, false},
	{"CompareAndClearThenSet", []op{compareAndClear("b", "0")}, []op{set("b", "1")}, false},

	{"WriteSkew", []op{get("b"), get("d"), set("b", "1")}, []op{get("b"), get("d"), set("d", "1")}, true},
	{"LostUpdate", []op{get("b"), set("b", "1")}, []op{get("b"), set("b", "1")}, true},
	{"PhantomSkew", []op{getRange("k", "z", everything), set("l", "1")}, []op{getRange("k", "z", everything), set("m", "1")}, true},
}
