package tuple

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// Bytes that no tuple is packed to are refused, with the position and the reason.
func TestUnpackRefuses(t *testing.T) {
	tests := []struct {
		name, packed, want string
	}{
		{"unknown code", "15013f", "at byte 2: type code 0x3f is not supported"},
		{"floating point", "21c000000000000000", "at byte 0: type code 0x21 is not supported"},
		{"bytes without end", "140161", "at byte 1: a bytes element has no end"},
		{"bytes ending in an escape", "016100ff", "at byte 0: a bytes element has no end"},
		{"string without end", "02", "at byte 0: a string has no end"},
		{"integer cut off", "1c0102", "at byte 0: the integer is cut off after 2 of 8 bytes"},
		{"negative integer cut off", "0c", "at byte 0: the integer is cut off after 0 of 8 bytes"},
		{"leading zero byte", "160001", "at byte 0: the integer is not in its shortest form"},
		{
			"leading byte of negative",
			"12fffe",
			"at byte 0: the integer is not in its shortest form",
		},
		{"zero as one byte", "1500", "at byte 0: the integer is not in its shortest form"},
		{"one over int64", "1c8000000000000000", "at byte 0: the integer does not fit int64"},
		{"largest of 8 bytes", "1cffffffffffffffff", "at byte 0: the integer does not fit int64"},
		{"one under int64", "0c7ffffffffffffffe", "at byte 0: the integer does not fit int64"},
		{"smallest of 8 bytes", "0c0000000000000000", "at byte 0: the integer does not fit int64"},
		{"9 bytes", "1d09010000000000000000", "at byte 0: the integer does not fit int64"},
		{
			"9 bytes, negative",
			"0bf6feffffffffffffffff",
			"at byte 0: the integer does not fit int64",
		},
		{"nested without end", "05150115", "at byte 3: the integer is cut off"},
		{"nested, only begun", "2705", "at byte 1: the nested tuple has no end"},
		{"escaped nil outside of a nested tuple", "00ff", "at byte 1: type code 0xff"},
		{
			"nested too deep",
			strings.Repeat("05", MaxDepth+1),
			"at byte 100: nested deeper than 100",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			packed, err := hex.DecodeString(test.packed)
			if err != nil {
				t.Fatal(err)
			}

			got, err := Unpack(packed)
			if got != nil || !errors.Is(err, ErrMalformed) ||
				!strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, %v; want an error with %q", got, err, test.want)
			}
		})
	}
}

// An element of another type is refused by name.
func TestDecodeOtherType(t *testing.T) {
	decodeInt := func(b []byte) error { _, _, err := DecodeInt(b); return err }
	decodeBytes := func(b []byte) error { _, _, err := DecodeBytes(b, nil); return err }
	decodeString := func(b []byte) error { _, _, err := DecodeString(b); return err }

	tests := []struct {
		decode func([]byte) error
		packed []byte
		want   string
	}{
		{decodeInt, nil, "at byte 0: want an integer, found the end"},
		{decodeInt, Tuple{"s"}.Pack(), "want an integer, found a string"},
		{decodeInt, Tuple{nil}.Pack(), "want an integer, found nil"},
		{decodeBytes, nil, "want a bytes element, found the end"},
		{decodeBytes, Tuple{1}.Pack(), "want a bytes element, found an integer"},
		{decodeBytes, Tuple{Tuple{}}.Pack(), "want a bytes element, found a nested tuple"},
		{decodeString, Tuple{[]byte("b")}.Pack(), "want a string, found a bytes element"},
		{decodeString, Tuple{true}.Pack(), "want a string, found a bool"},
	}

	for _, test := range tests {
		err := test.decode(test.packed)
		if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%x: got %v, want %q", test.packed, err, test.want)
		}
	}
}

// Packing a value that tuples cannot hold panics.
func TestPackPanics(t *testing.T) {
	deep := Tuple{}
	for range MaxDepth {
		deep = Tuple{deep}
	}
	checkRoundTrip(t, deep)

	cyclic := make(Tuple, 1)
	cyclic[0] = cyclic

	for name, tup := range map[string]Tuple{
		"float":      {1.5},
		"uint64":     {uint64(1)},
		"nested":     {"a", Tuple{[]string{}}},
		"too deep":   {deep},
		"in a cycle": cyclic,
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			tup.Pack()
		})
	}
}

// An int is packed as an int64, a typed nil as an empty value.
func TestPackAcceptsIntAndTypedNil(t *testing.T) {
	got, err := Unpack(Tuple{-7, []byte(nil), Tuple(nil)}.Pack())
	if want := (Tuple{int64(-7), []byte{}, Tuple{}}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %#v, %v, want %#v", got, err, want)
	}
}

// An unpacked tuple keeps its values when the bytes change.
func TestUnpackSharesNoMemory(t *testing.T) {
	packed := Tuple{[]byte("value")}.Pack()
	got, err := Unpack(packed)
	if err != nil {
		t.Fatal(err)
	}

	clear(packed)
	if !bytes.Equal(got[0].([]byte), []byte("value")) {
		t.Errorf("got %q after the packed bytes changed", got[0])
	}
}

// Appending to a decoded value must not write into the bytes it shares.
func TestDecodedBytesAreClipped(t *testing.T) {
	packed := Tuple{[]byte("a"), "b"}.Pack()
	v, rest, err := DecodeBytes(packed, nil)
	if err != nil {
		t.Fatal(err)
	}

	_ = append(v, 'x')
	if s, _, err := DecodeString(rest); err != nil || s != "b" {
		t.Errorf("got %q, %v", s, err)
	}
}

// Single elements are encoded and decoded without allocations.
func TestNoAllocations(t *testing.T) {
	long := strings.Repeat("name", 32)
	random := []byte("0123456789\x00bcdefghij")
	buffer := make([]byte, 0, 512)

	allocs := testing.AllocsPerRun(100, func() {
		key := AppendString(buffer[:0], long)
		item := key[len(key):]
		item = AppendBytes(AppendInt(AppendInt(item, -5), 1<<40), random)
		_, rest, err1 := DecodeInt(item)
		_, rest, err2 := DecodeInt(rest)
		var scratch [20]byte

		v, _, err3 := DecodeBytes(rest, scratch[:0])
		if !bytes.Equal(v, random) {
			t.Fatal("other bytes")
		}
		if err1 != nil || err2 != nil || err3 != nil {
			t.Fatal(err1, err2, err3)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations, want none", allocs)
	}
}

// A nested tuple that is appended and decoded element by element is the one that Pack and Unpack
// know.
func TestNestedByElements(t *testing.T) {
	packed := Tuple{int64(1), Tuple{[]byte("a\x00"), nil, int64(7)}, "b"}.Pack()
	b := AppendBytes(AppendStart(AppendInt(nil, 1)), []byte("a\x00"))
	b = AppendString(AppendEnd(AppendInt(append(b, codeNil, escape), 7)), "b")
	if !bytes.Equal(b, packed) {
		t.Fatalf("appended %x, want %x", b, packed)
	}

	_, rest, err := DecodeInt(packed)
	if err != nil {
		t.Fatal(err)
	}
	if rest, err = DecodeStart(rest); err != nil {
		t.Fatal(err)
	}
	if _, rest, err = DecodeBytes(rest, nil); err != nil {
		t.Fatal(err)
	}
	if _, ended := DecodeEnd(rest); ended {
		t.Errorf("it ends at an element that is nil: %x", rest)
	}
	element, rest, err := Decode(rest[len("\x00\xff"):])
	if element != int64(7) || err != nil {
		t.Errorf("decoded %v, %v; want 7", element, err)
	}
	rest, ended := DecodeEnd(rest)
	if !ended || !bytes.Equal(rest, AppendString(nil, "b")) {
		t.Errorf("ended: %v, and %x follows", ended, rest)
	}

	for _, refused := range []string{"", "\x01a\x00"} {
		if _, err := DecodeStart([]byte(refused)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q begins a nested tuple: %v", refused, err)
		}
	}
	if _, _, err := Decode(nil); !errors.Is(err, ErrMalformed) {
		t.Errorf("an element of nothing: %v", err)
	}
}
