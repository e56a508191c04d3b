package subjects_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/subjects"
)

func TestPurgeAndRedriveOptions(t *testing.T) {
	for payload, want := range map[string]subjects.State{``: "", `{}`: "", `{"state":"leased"}`: "leased", `{"state":"ready"}`: "ready"} {
		if got, err := subjects.ParsePurge([]byte(payload)); got != want || err != nil {
			t.Errorf("%s: %q, %v: want %q", payload, got, err, want)
		}
	}
	for payload, want := range map[string]int{``: 1000, `{}`: 1000, `{"max":1}`: 1, `{"max":1000000}`: 1_000_000} {
		if got, err := subjects.ParseItemOptions(subjects.Redrive, []byte(payload)); got.Most != want || err != nil {
			t.Errorf("%s: %+v, %v: want %d", payload, got, err, want)
		}
	}
	for payload, words := range map[string]string{
		`[]`: "[]: want a JSON object with members of state", `{"state":null}`: "state: null: want a value, or leave it out", `{"state":"all"}`: "want", `{"state":""}`: "want",
		`{"state":"ready","state":"ready"}`: "given twice", `{"max":1}`: "unknown member", `{"state":1}`: "want",
	} {
		if got, err := subjects.ParsePurge([]byte(payload)); got != "" || !errors.Is(err, subjects.ErrOptions) || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %q, %v: want %q", payload, got, err, words)
		}
	}
	for payload, words := range map[string]string{
		`[[`: "[[: not JSON", `1`: "1: want a JSON object with members of id, ids, end, priority, value_bytes, max", `{"max":null}`: "max: null: want a value", `{"max":0}`: "1 to 1000000", `{"max":-1}`: "1 to 1000000", `{"max":1000001}`: "1 to 1000000",
		`{"max":"5"}`: "want an integer", `{"n":1}`: "members of id, ids, end, priority, value_bytes, max", `{"ids":["x"`: "members of id, ids, end, priority, value_bytes, max",
		`{"ids":["x"],"max":1}`: "ids and max: want one of them", `{"max":2,"ids":["x"]}`: "ids and max: want one of them",
	} {
		got, err := subjects.ParseItemOptions(subjects.Redrive, []byte(payload))
		if got.Most != 0 || !errors.Is(err, subjects.ErrOptions) || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %+v, %v: want %q", payload, got, err, words)
		}
	}
}

// FuzzManaging: what the parsers accept comes back from its own encoding, and what they refuse has
// an error that can be sent.
func FuzzManaging(f *testing.F) {
	for _, payload := range []string{
		``, `{}`, `{"id":"x"}`, `{"id":"x","end":"max"}`, `{"id":"\ud800","priority":-5}`, `{"state":"ready"}`, `{"max":7}`,
		`{"ids":["x","y"],"value_bytes":0}`, `{"ids":["x"],"priority":1}`, `{"headers":{"A":"b"},"match":"c","end":"max"}`,
		`{"after":"jobs","limit":3}`, `null`, `{"id":{}}`, "{\"id\":\"\xff\"}",
	} {
		f.Add([]byte(payload))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		for _, verb := range []subjects.Verb{subjects.Get, subjects.Rank, subjects.Move, subjects.Release, subjects.Redrive} {
			o, err := subjects.ParseItemOptions(verb, payload)
			if err != nil {
				subjects.WantSendable(t, err, subjects.ErrOptions)
			} else if again, err := subjects.ParseItemOptions(verb, o.Encode(verb)); err != nil || !reflect.DeepEqual(again, o) {
				t.Fatalf("%s %q: %+v, then %+v, %v", verb, payload, o, again, err)
			}
		}
		if o, err := subjects.ParseItemsOptions(payload); err != nil {
			subjects.WantSendable(t, err, subjects.ErrOptions)
		} else if again, err := subjects.ParseItemsOptions(o.Encode()); err != nil ||
			fmt.Sprintf("%+v", again) != fmt.Sprintf("%+v", o) { // which takes no map for an empty one
			t.Fatalf("%q: %+v, then %+v, %v", payload, o, again, err)
		}
		if state, err := subjects.ParsePurge(payload); err != nil {
			subjects.WantSendable(t, err, subjects.ErrOptions)
		} else if again, err := subjects.ParsePurge(subjects.EncodePurge(state)); err != nil || again != state {
			t.Fatalf("%q: %q, then %q, %v", payload, state, again, err)
		}
		if o, err := subjects.ParseListOptions(payload); err != nil {
			subjects.WantSendable(t, err, subjects.ErrOptions)
		} else if again, err := subjects.ParseListOptions(o.Encode()); err != nil || again != o {
			t.Fatalf("%q: %+v, then %+v, %v", payload, o, again, err)
		}
	})
}

func TestListOptions(t *testing.T) {
	for payload, want := range map[string]subjects.ListOptions{
		``: {Limit: 1000}, `{}`: {Limit: 1000}, `{"limit":0,"after":""}`: {Limit: 1000}, `{"limit":1,"after":"jobs"}`: {After: "jobs", Limit: 1}, `{"limit":1000}`: {Limit: 1000},
	} {
		if got, err := subjects.ParseListOptions([]byte(payload)); err != nil || got != want {
			t.Errorf("%s: %+v, %v: want %+v", payload, got, err, want)
		}
	}
	for payload, words := range map[string]string{
		`[]`: "want a JSON object", `{"limit":1001}`: "0 to 1000", `{"limit":-1}`: "0 to 1000", `{"limit":null}`: "want a value", `{"limit":"1"}`: "want an integer",
		`{"after":"a b"}`: `after: "a b" holds " "`, `{"after":null}`: "want a value", `{"after":"a","after":"a"}`: "given twice", `{"from":"a"}`: "unknown member",
	} {
		if got, err := subjects.ParseListOptions([]byte(payload)); got != (subjects.ListOptions{}) || !errors.Is(err, subjects.ErrOptions) || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %+v, %v: want %q", payload, got, err, words)
		}
	}
}
