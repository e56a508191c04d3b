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

func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// TestGoldenTuples compares with bytes written by FoundationDB's Python binding.
func TestGoldenTuples(t *testing.T) {
	var golden struct {
		Cases []struct {
			Tuple  []vector
			Packed hexBytes
		}
	}
	readJSON(t, "testdata/tuple.json", &golden)
	if len(golden.Cases) == 0 {
		t.Fatal("no cases")
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

type goldenRecipe struct {
	Subspace   []string
	RangeBegin hexBytes `json:"range_begin"`
	RangeEnd   hexBytes `json:"range_end"`
	Items      []struct {
		Priority, Count, Index *int64
		Random, Value, Key     hexBytes
		StoredJava             hexBytes `json:"stored_java"`
	}
}

// TestGoldenRecipes compares with the keys the published recipes build in
// FoundationDB's Python binding.
func TestGoldenRecipes(t *testing.T) {
	var golden map[string]json.RawMessage
	readJSON(t, "testdata/recipes.json", &golden)
	for _, name := range []string{"priority_queue", "queue"} {
		var recipe goldenRecipe
		if err := json.Unmarshal(golden[name], &recipe); err != nil {
			t.Fatal(err)
		}
		var space Subspace
		for _, element := range recipe.Subspace {
			space = space.Sub(element)
		}
		checkRecipe(t, space, recipe)
	}
}

func checkRecipe(t *testing.T, space Subspace, recipe goldenRecipe) {
	if recipe.RangeBegin != nil {
		begin, end := space.Range()
		if !bytes.Equal(begin, recipe.RangeBegin) || !bytes.Equal(end, recipe.RangeEnd) {
			t.Errorf("range %x to %x, want %x to %x", begin, end, recipe.RangeBegin, recipe.RangeEnd)
		}
	}
	if len(recipe.Items) == 0 {
		t.Error("no items")
	}
	for _, item := range recipe.Items {
		var tup Tuple
		for _, n := range []*int64{item.Priority, item.Count, item.Index} {
			if n != nil {
				tup = append(tup, *n)
			}
		}
		tup = append(tup, []byte(item.Random))
		if got := space.Pack(tup); !bytes.Equal(got, item.Key) {
			t.Errorf("%v: key %x, want %x", tup, got, item.Key)
		}
		if got, err := space.Unpack(item.Key); err != nil || !reflect.DeepEqual(got, tup) {
			t.Errorf("key %x: unpacked to %v, %v, want %v", item.Key, got, err, tup)
		}
		if got := AppendBytes(nil, item.Value); !bytes.Equal(got, item.StoredJava) {
			t.Errorf("value %x: packed to %x, want %x", item.Value, got, item.StoredJava)
		}
		if got, rest, err := DecodeBytes(item.StoredJava); err != nil || len(rest) != 0 || !bytes.Equal(got, item.Value) {
			t.Errorf("stored %x: decoded to %x, %x, %v, want %x", item.StoredJava, got, rest, err, item.Value)
		}
	}
}
