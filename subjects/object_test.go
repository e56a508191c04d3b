package subjects

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"testing"
)

// FuzzObject compares eachMember with encoding/json, which lets members be given twice.
func FuzzObject(f *testing.F) {
	for _, payload := range []string{
		`{}`, ` { } `, `{"a":1}`, `{"a":1,"b":"x,}\"y"}`, `{"a":{"b":[1,{"c":"]"}]},"d":null}`, `{"a":-1.5e3 , "\u0061":true}`,
		"{\"\xff\":1}", `{"a":1,}`, `{,"a":1}`, `{"a"}`, `{"a":}`, `{"a":01}`, `{"a":1 2}`, `{"a":"\`, `{"a":[1}`, `{"a":1]`, `{a:1}`, `{}}`, `{} {}`, `[]`, `null`, ``,
	} {
		f.Add([]byte(payload))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		got := map[string]json.RawMessage{}
		err := eachMember(payload, func(name string, value json.RawMessage) error {
			got[name] = value
			return nil
		})
		if errors.As(err, new(duplicateError)) {
			return
		}
		var want map[string]json.RawMessage
		valid := json.Unmarshal(payload, &want) == nil && want != nil // nil is null
		if valid != (err == nil) {
			t.Fatalf("%q: error %v, encoding/json says valid: %v", payload, err, valid)
		}
		if !valid {
			return
		}
		if len(got) != len(want) {
			t.Fatalf("%q: members %q, want %q", payload, got, want)
		}
		for name := range want {
			if !bytes.Equal(got[name], want[name]) {
				t.Errorf("%q: member %q is %q, want %q", payload, name, got[name], want[name])
			}
		}
	})
}

// FuzzTexts compares parseTexts with encoding/json, which takes null for a text.
func FuzzTexts(f *testing.F) {
	for _, array := range []string{
		`[]`, `[ ]`, `["a"]`, `["a","b",""]`, `["a" , "b"]`, `["a\"b"]`, `["\u0061","b"]`, `["é","b"]`, "[\"a\xff\"]",
		`["a",1]`, `["a",["b"]]`, `[["a"]]`, `["a",null]`, `["a","b","c","d","e"]`, `[",",","]`, `["]"]`, `{"a":"b"}`, `"a"`,
	} {
		f.Add([]byte(array))
	}
	f.Fuzz(func(t *testing.T, array []byte) {
		const most = 4
		array = bytes.TrimSpace(array)
		if !json.Valid(array) || bytes.Contains(array, []byte("null")) {
			return
		}
		got, err := parseTexts(array, most)
		var want []string
		valid := json.Unmarshal(array, &want) == nil && len(want) <= most
		if valid != (err == nil) || valid && !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v: want %q", array, got, err, want)
		}
	})
}
