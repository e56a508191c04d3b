package tuple

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"reflect"
	"strconv"
	"testing"
)

// hexBytes is written as hexadecimal digits in JSON.
type hexBytes []byte

func (h *hexBytes) UnmarshalText(text []byte) (err error) {
	*h, err = hex.DecodeString(string(text))
	return err
}

// vector is one element of a tuple in the golden files; one field is set.
type vector struct {
	Null   bool
	Bytes  *hexBytes
	String *string
	Int    *string
	Bool   *bool
	Tuple  []vector
}

func fromVectors(t *testing.T, vectors []vector) Tuple {
	t.Helper()
	out := Tuple{}
	for _, v := range vectors {
		switch {
		case v.Null:
			out = append(out, nil)
		case v.Bytes != nil:
			out = append(out, []byte(*v.Bytes))
		case v.String != nil:
			out = append(out, *v.String)
		case v.Int != nil:
			n, err := strconv.ParseInt(*v.Int, 10, 64)
			if err != nil {
				t.Fatal(err)
			}

			out = append(out, n)
		case v.Bool != nil:
			out = append(out, *v.Bool)
		default:
			out = append(out, fromVectors(t, v.Tuple))
		}
	}

	return out
}

// Tuples are packed to the bytes that FoundationDB's Python binding writes.
func TestGoldenTuples(t *testing.T) {
	var golden struct {
		Cases []struct {
			Tuple  []vector
			Packed hexBytes
		}
	}

	data, err := os.ReadFile("testdata/tuple.json")
	if err == nil {
		err = json.Unmarshal(data, &golden)
	}
	if err != nil || len(golden.Cases) == 0 {
		t.Fatalf("%d cases: %v", len(golden.Cases), err)
	}

	for _, c := range golden.Cases {
		tup := fromVectors(t, c.Tuple)
		if got := tup.Pack(); !bytes.Equal(got, c.Packed) {
			t.Errorf("%v: packed to %x, want %x", tup, got, c.Packed)
		}

		got, err := Unpack(c.Packed)
		if err != nil || !reflect.DeepEqual(got, tup) {
			t.Errorf("%x: unpacked to %v, %v, want %v", c.Packed, got, err, tup)
		}
	}
}
