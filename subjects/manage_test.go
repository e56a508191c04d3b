package subjects_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/subjects"
)

// A purge may name a state.
func TestPurgeOptions(t *testing.T) {
	for payload, want := range map[string]subjects.State{
		``:                   "",
		`{}`:                 "",
		`{"state":"leased"}`: "leased",
		`{"state":"ready"}`:  "ready",
	} {
		if got, err := subjects.ParsePurge([]byte(payload)); got != want || err != nil {
			t.Errorf("%s: %q, %v: want %q", payload, got, err, want)
		}
	}
}

// A redrive may say how many items it sends back, and otherwise sends back 1,000.
func TestRedriveOptions(t *testing.T) {
	for payload, want := range map[string]int{
		``:                1000,
		`{}`:              1000,
		`{"max":1}`:       1,
		`{"max":1000000}`: 1_000_000,
	} {
		got, err := subjects.ParseItemOptions(subjects.Redrive, []byte(payload))
		if got.Most != want || err != nil {
			t.Errorf("%s: %+v, %v: want %d", payload, got, err, want)
		}
	}
}

// A purge with anything but a state is refused.
func TestBadPurgeOptions(t *testing.T) {
	for payload, words := range map[string]string{
		`[]`:                                "[]: want a JSON object with members of state",
		`{"state":null}`:                    "state: null: want a value, or leave it out",
		`{"state":"all"}`:                   "want",
		`{"state":""}`:                      "want",
		`{"state":"ready","state":"ready"}`: "given twice",
		`{"max":1}`:                         "unknown member",
		`{"state":1}`:                       "want",
	} {
		got, err := subjects.ParsePurge([]byte(payload))
		refused := errors.Is(err, subjects.ErrOptions) && strings.Contains(err.Error(), words)
		if !refused || got != "" {
			t.Errorf("%s: %q, %v: want %q", payload, got, err, words)
		}
	}
}

// A redrive that does not say how many, or which ids, in the form that the errors name is refused.
func TestBadRedriveOptions(t *testing.T) {
	const members = "members of ids, places, max"
	for payload, words := range map[string]string{
		`[[`:                    "[[: not JSON",
		`1`:                     "1: want a JSON object with " + members,
		`{"max":null}`:          "max: null: want a value",
		`{"max":0}`:             "1 to 1000000",
		`{"max":-1}`:            "1 to 1000000",
		`{"max":1000001}`:       "1 to 1000000",
		`{"max":"5"}`:           "want an integer",
		`{"n":1}`:               members,
		`{"ids":["x"`:           members,
		`{"ids":["x"],"max":1}`: "ids and max: want one of them",
		`{"max":2,"ids":["x"]}`: "ids and max: want one of them",
	} {
		got, err := subjects.ParseItemOptions(subjects.Redrive, []byte(payload))
		refused := errors.Is(err, subjects.ErrOptions) && strings.Contains(err.Error(), words)
		if !refused || got.Most != 0 {
			t.Errorf("%s: %+v, %v: want %q", payload, got, err, words)
		}
	}
}

// A payload that a parser accepts is read again as it is written, and one that it refuses gets an
// error that fits into a header.
func FuzzManaging(f *testing.F) {
	for _, payload := range []string{
		``, `{}`, `{"id":"x"}`, `{"id":"x","end":"max"}`, `{"id":"\ud800","priority":-5}`,
		`{"state":"ready"}`, `{"max":7}`, `{"ids":["x","y"],"value_bytes":0}`,
		`{"ids":["x"],"priority":1}`, `{"places":["x"]}`, `{"place":"x"}`,
		`{"headers":{"A":"b"},"match":"c","end":"max"}`,
		`{"after":"jobs","limit":3}`, `null`, `{"id":{}}`, "{\"id\":\"\xff\"}",
	} {
		f.Add([]byte(payload))
	}

	f.Fuzz(func(t *testing.T, payload []byte) {
		for _, verb := range []subjects.Verb{
			subjects.Get, subjects.Rank, subjects.Move, subjects.Release, subjects.Redrive,
		} {
			parse := func(payload []byte) (subjects.ItemOptions, error) {
				return subjects.ParseItemOptions(verb, payload)
			}
			encode := func(o subjects.ItemOptions) []byte { return o.Encode(verb) }
			checkAgain(t, payload, parse, encode)
		}
		checkAgain(t, payload, subjects.ParseItemsOptions, subjects.ItemsOptions.Encode)
		checkAgain(t, payload, subjects.ParsePurge, subjects.EncodePurge)
		checkAgain(t, payload, subjects.ParseListOptions, subjects.ListOptions.Encode)
	})
}

// checkAgain checks that a payload is refused with an error that can be sent, or encoded to one
// that is read as the same.
func checkAgain[T any](
	t *testing.T, payload []byte, parse func([]byte) (T, error), encode func(T) []byte,
) {
	t.Helper()
	o, err := parse(payload)
	if err != nil {
		subjects.WantSendable(t, err, subjects.ErrOptions)
		return
	}

	// As text, because an empty map and none are the same.
	again, err := parse(encode(o))
	if err != nil || fmt.Sprintf("%+v", again) != fmt.Sprintf("%+v", o) {
		t.Fatalf("%T of %q: %+v, then %+v, %v", o, payload, o, again, err)
	}
}

// A list begins after a name, and has at most 1,000 queues.
func TestListOptions(t *testing.T) {
	for payload, want := range map[string]subjects.ListOptions{
		``:                           {Limit: 1000},
		`{}`:                         {Limit: 1000},
		`{"limit":0,"after":""}`:     {Limit: 1000},
		`{"limit":1,"after":"jobs"}`: {After: "jobs", Limit: 1},
		`{"limit":1000}`:             {Limit: 1000},
	} {
		if got, err := subjects.ParseListOptions([]byte(payload)); err != nil || got != want {
			t.Errorf("%s: %+v, %v: want %+v", payload, got, err, want)
		}
	}

	for payload, words := range map[string]string{
		`[]`:                        "want a JSON object",
		`{"limit":1001}`:            "0 to 1000",
		`{"limit":-1}`:              "0 to 1000",
		`{"limit":null}`:            "want a value",
		`{"limit":"1"}`:             "want an integer",
		`{"after":"a b"}`:           `after: "a b" holds " "`,
		`{"after":null}`:            "want a value",
		`{"after":"a","after":"a"}`: "given twice",
		`{"from":"a"}`:              "unknown member",
	} {
		got, err := subjects.ParseListOptions([]byte(payload))
		refused := errors.Is(err, subjects.ErrOptions) && strings.Contains(err.Error(), words)
		if !refused || got != (subjects.ListOptions{}) {
			t.Errorf("%s: %+v, %v: want %q", payload, got, err, words)
		}
	}
}
