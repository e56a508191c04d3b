package kvtest

import (
	"errors"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// schedule is two transactions over the keys b, d, f, h and j, each "0": the
// outer one runs its part, then the whole inner one runs and commits, then the
// outer one commits. Each also writes a key of its own.
//
// In a serial engine the inner one waits for the outer one and must then see what it
// wrote.
type schedule struct {
	name     string
	outer    func(*fixture, kv.Transaction)
	inner    func(*fixture, kv.Transaction)
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
	f.put("0", "b", "d", "f", "h", "j")
	outer := f.begin()
	// Fixes the state it sees, even if the store does so with the first read.
	f.wantGet(outer.Snapshot(), innerKey, absent)
	s.outer(f, outer)
	outer.Set(f.key(outerKey), []byte("1"))
	if f.db.Traits().Serial {
		s.runSerial(f, outer)
		return
	}

	inner := f.begin()
	s.inner(f, inner)
	inner.Set(f.key(innerKey), []byte("1"))
	await(f, inner.Commit())
	_, err := outer.Commit().Get()
	switch {
	case !s.conflict:
		if err != nil {
			f.Fatalf("Commit failed with %v, want success", err)
		}
		f.wantStored(outerKey, "1")
	case !errors.Is(err, kv.ErrConflict):
		f.Fatalf("Commit returned %v, want ErrConflict", err)
	default:
		f.wantStored(outerKey, absent)
	}
	f.wantStored(innerKey, "1")
}

func (s schedule) runSerial(f *fixture, outer kv.Transaction) {
	var sawOuter string
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = kv.Update(f.ctx, f.db, func(tx kv.Transaction) error {
			value, err := tx.Get(f.key(outerKey)).Get()
			sawOuter = text(value)
			s.inner(f, tx)
			tx.Set(f.key(innerKey), []byte("1"))
			return err
		})
	}()

	await(f, outer.Commit())
	<-done

	if err != nil {
		f.Fatalf("the transaction that waited failed: %v", err)
	}
	if sawOuter != "1" {
		f.Errorf("the transaction that waited saw %q, want the write of the one before it", sawOuter)
	}
	f.wantStored(outerKey, "1")
	f.wantStored(innerKey, "1")
}

func get(name string) func(*fixture, kv.Transaction) {
	return func(f *fixture, tx kv.Transaction) { await(f, tx.Get(f.key(name))) }
}

func getRange(begin, end string, o kv.RangeOptions) func(*fixture, kv.Transaction) {
	return func(f *fixture, tx kv.Transaction) { await(f, tx.GetRange(f.span(begin, end), o)) }
}

func set(name string) func(*fixture, kv.Transaction) {
	return func(f *fixture, tx kv.Transaction) { tx.Set(f.key(name), []byte("1")) }
}

func clearKey(name string) func(*fixture, kv.Transaction) {
	return func(f *fixture, tx kv.Transaction) { tx.Clear(f.key(name)) }
}

func clearRange(begin, end string) func(*fixture, kv.Transaction) {
	return func(f *fixture, tx kv.Transaction) { tx.ClearRange(f.span(begin, end)) }
}

func add(name string) func(*fixture, kv.Transaction) {
	return func(f *fixture, tx kv.Transaction) { tx.Add(f.key(name), 1) }
}

func compareAndClear(name, value string) func(*fixture, kv.Transaction) {
	return func(f *fixture, tx kv.Transaction) { tx.CompareAndClear(f.key(name), []byte(value)) }
}

func readConflict(begin, end string) func(*fixture, kv.Transaction) {
	return func(f *fixture, tx kv.Transaction) { tx.AddReadConflict(f.span(begin, end)) }
}

func writeConflict(begin, end string) func(*fixture, kv.Transaction) {
	return func(f *fixture, tx kv.Transaction) { tx.AddWriteConflict(f.span(begin, end)) }
}

// snapshot reads everything without a read conflict range.
func snapshot(f *fixture, tx kv.Transaction) {
	await(f, tx.Snapshot().Get(f.key("b")))
	await(f, tx.Snapshot().GetRange(f.all(), kv.RangeOptions{}))
	await(f, tx.Snapshot().GetRange(f.all(), kv.RangeOptions{Limit: 2, Reverse: true}))
}

func both(x, y func(*fixture, kv.Transaction)) func(*fixture, kv.Transaction) {
	return func(f *fixture, tx kv.Transaction) {
		x(f, tx)
		y(f, tx)
	}
}

var (
	everything = kv.RangeOptions{}
	firstTwo   = kv.RangeOptions{Limit: 2}
	lastTwo    = kv.RangeOptions{Limit: 2, Reverse: true}
	firstBytes = kv.RangeOptions{Bytes: 2}
	lastBytes  = kv.RangeOptions{Bytes: 2, Reverse: true}
)

var schedules = []schedule{
	{"GetThenSet", get("b"), set("b"), true},
	{"GetThenSetOfAnother", get("b"), set("d"), false},
	{"GetThenSetOfNext", get("b"), set("b\x00"), false},
	{"GetThenClear", get("b"), clearKey("b"), true},
	{"GetThenClearRange", get("d"), clearRange("c", "e"), true},
	{"GetThenClearRangeUpToIt", get("d"), clearRange("a", "d"), false},
	{"GetThenClearRangeAfterIt", get("d"), clearRange("d\x00", "z"), false},
	{"GetThenAdd", get("b"), add("b"), true},
	{"GetThenCompareAndClear", get("b"), compareAndClear("b", "0"), true},
	{"GetOfAbsentThenSet", get("a"), set("a"), true},

	{"RangeThenChange", getRange("a", "e", everything), set("b"), true},
	{"RangeThenClear", getRange("a", "e", everything), clearKey("d"), true},
	{"Phantom", getRange("a", "e", everything), set("c"), true},
	{"PhantomAtBegin", getRange("a", "e", everything), set("a"), true},
	{"PhantomAtEnd", getRange("a", "e", everything), set("e"), false},
	{"PhantomInEmptyRange", getRange("k", "z", everything), set("m"), true},
	{"PhantomInReverse", getRange("a", "e", kv.RangeOptions{Reverse: true}), set("c"), true},
	{"RangeThenWriteOutside", getRange("c", "e", everything), both(set("b"), set("f")), false},

	{"LimitedThenPhantom", getRange("a", "z", firstTwo), set("c"), true},
	{"LimitedThenPhantomBefore", getRange("a", "z", firstTwo), set("a"), true},
	{"LimitedThenChangeOfLast", getRange("a", "z", firstTwo), set("d"), true},
	{"LimitedThenPhantomAfterLast", getRange("a", "z", firstTwo), set("d\x00"), false},
	{"LimitedThenChangeOfRest", getRange("a", "z", firstTwo), clearRange("e", "z"), false},
	{"BytesThenPhantom", getRange("a", "z", firstBytes), set("c"), true},
	{"BytesThenChangeOfLast", getRange("a", "z", firstBytes), set("d"), true},
	{"BytesThenPhantomAfterLast", getRange("a", "z", firstBytes), set("d\x00"), false},
	{"BytesNotReached", getRange("a", "e", kv.RangeOptions{Bytes: 3}), set("dd"), true},
	{"LimitBeforeBytes", getRange("a", "z", kv.RangeOptions{Limit: 1, Bytes: 2}), set("d"), false},
	{"ReverseBytesThenPhantom", getRange("a", "z", lastBytes), set("i"), true},
	{"ReverseBytesThenPhantomBeforeLast", getRange("a", "z", lastBytes), set("gg"), false},
	{"BytesOverOwnWrites", both(set("a"), getRange("", "z", firstBytes)), set("aa"), true},
	{"BytesOverOwnWritesThenRest", both(set("a"), getRange("", "z", firstBytes)), set("d"), false},
	{"LimitNotReached", getRange("a", "e", kv.RangeOptions{Limit: 3}), set("dd"), true},
	{"ReverseLimitedThenPhantom", getRange("a", "z", lastTwo), set("i"), true},
	{"ReverseLimitedThenPhantomAtEnd", getRange("a", "z", lastTwo), set("y"), true},
	{"ReverseLimitedThenChangeOfLast", getRange("a", "z", lastTwo), set("h"), true},
	{"ReverseLimitedThenPhantomBeforeLast", getRange("a", "z", lastTwo), set("gg"), false},
	{"ReverseLimitedThenChangeOfRest", getRange("a", "z", lastTwo), clearRange("a", "h"), false},
	{"ReverseLimitNotReached", getRange("g", "z", kv.RangeOptions{Limit: 3, Reverse: true}), set("g"), true},
	{"LimitedOverOwnWrites", both(set("a"), getRange("", "z", firstTwo)), set("aa"), true},
	{"LimitedOverOwnWritesThenRest", both(set("a"), getRange("", "z", firstTwo)), set("d"), false},
	{"LimitedOverOwnClears", both(clearKey("b"), getRange("a", "z", firstTwo)), set("e"), true},
	{"LimitedOverOwnClearsThenRest", both(clearKey("b"), getRange("a", "z", firstTwo)), set("h"), false},

	{"SnapshotReads", snapshot, clearRange("", "y"), false},
	{"SnapshotThenReadConflict", both(snapshot, readConflict("f", "g")), set("f"), true},
	{"ReadConflict", readConflict("c", "e"), set("c"), true},
	{"ReadConflictEndIsOutside", readConflict("c", "e"), set("e"), false},
	{"ReadConflictEmpty", readConflict("e", "c"), clearRange("a", "z"), false},
	{"WriteConflictWithGet", get("b"), writeConflict("a", "c"), true},
	{"WriteConflictWithRange", getRange("a", "z", everything), writeConflict("x", "y"), true},
	{"WriteConflictEndIsOutside", get("d"), writeConflict("a", "d"), false},
	{"WriteConflictEmpty", getRange("a", "z", everything), writeConflict("e", "c"), false},
	{"WriteConflictWithReadConflict", readConflict("c", "e"), writeConflict("d", "f"), true},

	{"BlindSets", set("b"), set("b"), false},
	{"BlindClears", clearRange("a", "z"), both(set("c"), clearKey("d")), false},
	{"BlindWriteConflicts", writeConflict("a", "z"), writeConflict("a", "z"), false},
	{"Adds", add("n"), add("n"), false},
	{"AddThenSet", add("b"), set("b"), false},
	{"CompareAndClears", compareAndClear("b", "0"), compareAndClear("b", "0"), false},
	{"CompareAndClearThenSet", compareAndClear("b", "0"), set("b"), false},

	{"WriteSkew", both(both(get("b"), get("d")), set("b")), both(both(get("b"), get("d")), set("d")), true},
	{"LostUpdate", both(get("b"), set("b")), both(get("b"), set("b")), true},
	{"PhantomSkew", both(getRange("k", "z", everything), set("l")), both(getRange("k", "z", everything), set("m")), true},
}
