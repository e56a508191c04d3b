package subjects

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
)

// An array of texts is read as encoding/json reads it.
func FuzzTexts(f *testing.F) {
	for _, array := range []string{
		`[]`, `[ ]`, `["a"]`, `["a","b",""]`, `["a" , "b"]`, `["a\"b"]`, `["\u0061","b"]`,
		`["é","b"]`, "[\"a\xff\"]", `["a",1]`, `["a",["b"]]`, `[["a"]]`, `["a",null]`,
		`["a","b","c","d","e"]`, `[",",","]`, `["]"]`, `{"a":"b"}`, `"a"`,
	} {
		f.Add([]byte(array))
	}

	f.Fuzz(func(t *testing.T, array []byte) {
		array = bytes.TrimSpace(array)
		if !json.Valid(array) {
			return
		}

		var want []string
		valid := json.Unmarshal(array, &want) == nil

		var got texts
		err := got.UnmarshalJSON(array)
		if valid != (err == nil) || valid && !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v: want %q", array, got, err, want)
		}
	})
}
