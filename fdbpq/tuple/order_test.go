package tuple

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"strconv"
	"testing"

	"github.com/pqbridge/pqbridge/testenv/harness"
)

// compare orders tuples by the rules of the package comment, without packing.
func compare(a, b Tuple) int {
	for i := range min(len(a), len(b)) {
		if c := compareElements(a[i], b[i]); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(a), len(b))
}

func compareElements(a, b any) int {
	if c := cmp.Compare(rank(a), rank(b)); c != 0 {
		return c
	}
	switch a := a.(type) {
	case []byte:
		return bytes.Compare(a, b.([]byte))
	case string:
		return cmp.Compare(a, b.(string))
	case Tuple:
		return compare(a, b.(Tuple))
	case int64:
		return cmp.Compare(a, b.(int64))
	default:
		return 0
	}
}

// rank is the place of an element's type in the order; true and false are
// types of their own.
func rank(element any) int {
	switch v := element.(type) {
	case nil:
		return 0
	case []byte:
		return 1
	case string:
		return 2
	case Tuple:
		return 3
	case int64:
		return 4
	case bool:
		if v {
			return 6
		}
		return 5
	default:
		panic(fmt.Sprintf("no rank for %T", v))
	}
}

// seeded returns a generator whose seed is random, or TUPLE_SEED if that is set.
func seeded(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	if text := os.Getenv("TUPLE_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("TUPLE_SEED: %v", err)
		}
	}

	t.Logf("again with: TUPLE_SEED=%d go test -run '^%s$' ./fdbpq/tuple", seed, t.Name())
	return rand.New(rand.NewPCG(seed, 0))
}

func randomTuple(r *rand.Rand, depth int) Tuple {
	t := Tuple{}
	for range r.IntN(4) {
		t = append(t, randomElement(r, depth))
	}

	return t
}

func randomElement(r *rand.Rand, depth int) any {
	switch r.IntN(6) {
	case 0:
		return nil
	case 1:
		return randomBytes(r)
	case 2:
		return string(randomBytes(r))
	case 3:
		return r.IntN(2) == 0
	case 4:
		if depth < 3 {
			return randomTuple(r, depth+1)
		}
	}
	return int64(r.Uint64()) >> r.IntN(64)
}

// randomBytes is mostly made of the bytes that need care.
func randomBytes(r *rand.Rand) []byte {
	b := make([]byte, r.IntN(5))
	for i := range b {
		b[i] = []byte{0x00, 0x00, 0xff, 0x01, byte(r.Uint32())}[r.IntN(5)]
	}

	return b
}

func checkRoundTrip(t *testing.T, tup Tuple) {
	t.Helper()
	packed := tup.Pack()
	got, err := Unpack(packed)
	if err != nil || !reflect.DeepEqual(got, tup) {
		t.Fatalf("%#v packed to %x, unpacked to %#v, %v", tup, packed, got, err)
	}
	checkCursors(t, packed, tup, nil)
}

func checkOrder(t *testing.T, a, b Tuple) {
	t.Helper()
	if got, want := bytes.Compare(a.Pack(), b.Pack()), compare(a, b); got != want {
		t.Fatalf("%#v and %#v compare as %d, packed as %d", a, b, want, got)
	}
}

// Random tuples sort as their encodings do, and come back unchanged.
func TestRandomTuplesRoundTripInOrder(t *testing.T) {
	r := seeded(t)
	for range harness.Times(5_000, 500_000) {
		a, b := randomTuple(r, 0), randomTuple(r, 0)
		checkRoundTrip(t, a)
		checkOrder(t, a, b)
		checkOrder(t, a, append(append(Tuple{}, a...), randomElement(r, 0)))
	}
}

// Integers of every size sort by value, and come back unchanged.
func TestEveryIntegerSize(t *testing.T) {
	edges := []int64{math.MinInt64, math.MinInt64 + 1, 0}
	for shift := range 63 {
		power := int64(1) << shift
		edges = append(edges, power-1, power, power+1, -power+1, -power, -power-1)
	}

	edges = append(edges, math.MaxInt64)
	for _, a := range edges {
		checkRoundTrip(t, Tuple{a})
		for _, b := range edges {
			checkOrder(t, Tuple{a}, Tuple{b})
		}
	}
}

// Bytes from anywhere never panic, and what decodes is packed to the same bytes again.
func FuzzUnpack(f *testing.F) {
	f.Add([]byte{})
	f.Add(Tuple{nil, []byte{0}, "s\x00", int64(-300), true, Tuple{nil, Tuple{}, int64(7)}}.Pack())
	f.Add(bytes.Repeat([]byte{codeNested}, MaxDepth+2))
	f.Add([]byte{0x1d, 0x09, 0x01, 0, 0, 0, 0, 0, 0, 0, 0})

	f.Fuzz(func(t *testing.T, b []byte) {
		tup, err := Unpack(b)
		if err == nil && !bytes.Equal(tup.Pack(), b) {
			t.Fatalf("%x unpacked to %#v, packed to %x", b, tup, tup.Pack())
		}
		checkCursors(t, b, tup, err)
	})
}

// checkCursors compares the functions for single elements with Unpack.
func checkCursors(t *testing.T, b []byte, tup Tuple, unpackErr error) {
	consumed := func(rest []byte) []byte { return b[:len(b)-len(rest)] }
	number, rest, err := DecodeInt(b)
	if err == nil && !bytes.Equal(AppendInt(nil, number), consumed(rest)) {
		t.Fatalf("%x: decoded integer %d", b, number)
	}

	raw, rest, err := DecodeBytes(b, nil)
	if err == nil && !bytes.Equal(AppendBytes(nil, raw), consumed(rest)) {
		t.Fatalf("%x: decoded bytes %x", b, raw)
	}

	text, rest, err := DecodeString(b)
	if err == nil && !bytes.Equal(AppendString(nil, text), consumed(rest)) {
		t.Fatalf("%x: decoded string %q", b, text)
	}

	if unpackErr != nil || len(tup) == 0 {
		return
	}

	err = nil
	switch tup[0].(type) {
	case int64:
		_, _, err = DecodeInt(b)
	case []byte:
		_, _, err = DecodeBytes(b, nil)
	case string:
		_, _, err = DecodeString(b)
	}
	if err != nil {
		t.Fatalf("%x: unpacked, but its first element gave %v", b, err)
	}
}
