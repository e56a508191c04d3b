package subjects_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/subjects"
)

func TestItemsOptions(t *testing.T) {
	with := func(change func(*subjects.ItemsOptions)) subjects.ItemsOptions {
		o := subjects.ItemsOptions{Limit: subjects.DefaultItems, ValueBytes: subjects.DefaultValueBytes}
		change(&o)
		return o
	}
	longest := strings.Repeat("m", subjects.MaxMatch)
	for payload, want := range map[string]subjects.ItemsOptions{
		``:                          with(func(*subjects.ItemsOptions) {}),
		`{"state":"leased"}`:        with(func(o *subjects.ItemsOptions) { o.State = subjects.StateLeased }),
		`{"end":"max","after":"x"}`: with(func(o *subjects.ItemsOptions) { o.Max, o.After = true, "x" }),
		`{"limit":1000}`:            with(func(o *subjects.ItemsOptions) { o.Limit = 1000 }),
		`{"value_bytes":0}`:         with(func(o *subjects.ItemsOptions) { o.ValueBytes = subjects.NoValues }),
		`{"value_bytes":65536}`:     with(func(o *subjects.ItemsOptions) { o.ValueBytes = 65536 }),
		`{"match":"` + longest + `","headers":{"A":"` + longest + `"}}`: with(func(o *subjects.ItemsOptions) {
			o.Match, o.Headers = longest, map[string]string{"A": longest}
		}),
	} {
		got, err := subjects.ParseItemsOptions([]byte(payload))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v: want %+v", payload, got, err, want)
		}
		if again, err := subjects.ParseItemsOptions(got.Encode()); err != nil || !reflect.DeepEqual(again, want) {
			t.Errorf("%s: %s, %+v, %v: want %+v", payload, got.Encode(), again, err, want)
		}
	}

	if got, err := subjects.ParseItemsOptions([]byte(manyHeaders(16))); err != nil || len(got.Headers) != 16 {
		t.Errorf("%d headers, %v", len(got.Headers), err)
	}
	for payload, words := range map[string]string{
		`[]`:                                   "want a JSON object with members of state, end, after, limit, value_bytes, match, headers",
		`{"state":"dead"}`:                     `state: "dead": want "ready", "delayed" or "leased"`,
		`{"end":"front"}`:                      `end: "front": want "min" or "max"`,
		`{"limit":0}`:                          "limit: 0: want an integer from 1 to 1000",
		`{"value_bytes":65537}`:                "value_bytes: 65537: want an integer from 0 to 65536",
		`{"after":5}`:                          "after: 5: want a text in quotes",
		`{"match":"` + longest + `m"}`:         "match: a text of 257 bytes: want at most 256",
		`{"headers":["A"]}`:                    "headers: [\"A\"]: want a JSON object of texts",
		`{"headers":{"A":1}}`:                  `headers: A: 1: want a text in quotes`,
		`{"headers":{"A":"b","A":"c"}}`:        "given twice",
		`{"headers":{"A":"` + longest + `m"}}`: `headers: "A": a text of 257 bytes: want at most 256`,
		`{"headers":{"` + longest + `m":""}}`:  "a text of 257 bytes: want at most 256",
		manyHeaders(17):                        "headers: 17 members: want at most 16",
		`{"id":"x"}`:                           "unknown member",
	} {
		got, err := subjects.ParseItemsOptions([]byte(payload))
		if !reflect.DeepEqual(got, subjects.ItemsOptions{}) || !errors.Is(err, subjects.ErrOptions) || !strings.Contains(err.Error(), words) {
			t.Errorf("%.80s: %+v, %v: want %q", payload, got, err, words)
		}
	}
}

func manyHeaders(n int) string {
	headers := map[string]string{}
	for i := range n {
		headers[fmt.Sprint("H", i)] = "v"
	}
	payload, _ := json.Marshal(map[string]any{"headers": headers})
	return string(payload)
}

// manyIDs is the payload of a request for n items.
func manyIDs(n int) string {
	var ids []string
	for i := range n {
		ids = append(ids, fmt.Sprint("id", i))
	}
	payload, _ := json.Marshal(map[string]any{"ids": ids})
	return string(payload)
}

func TestItemOptions(t *testing.T) {
	for _, test := range []struct {
		verb    subjects.Verb
		payload string
		want    subjects.ItemOptions
	}{
		{subjects.Get, `{"id":"x"}`, subjects.ItemOptions{ID: "x"}},
		{subjects.Remove, ` {"id" : "x\u0079"} `, subjects.ItemOptions{ID: "xy"}},
		{subjects.Rank, `{"end":"max","id":"x"}`, subjects.ItemOptions{ID: "x", Max: true}},
		{subjects.Rank, `{"id":"x","end":"min"}`, subjects.ItemOptions{ID: "x"}},
		{subjects.Move, `{"id":"x","priority":-9223372036854775808}`, subjects.ItemOptions{ID: "x", Priority: -1 << 63}},
		{subjects.Move, `{"id":"x","priority":0}`, subjects.ItemOptions{ID: "x"}},
		{subjects.Get, `{"ids":["x","y"]}`, subjects.ItemOptions{IDs: []string{"x", "y"}, ValueBytes: subjects.DefaultValueBytes}},
		{subjects.Get, `{"ids":["x"],"value_bytes":0}`, subjects.ItemOptions{IDs: []string{"x"}, ValueBytes: subjects.NoValues}},
		{subjects.Get, `{"value_bytes":7,"ids":["x"]}`, subjects.ItemOptions{IDs: []string{"x"}, ValueBytes: 7}},
		{subjects.Remove, `{"ids":["x"]}`, subjects.ItemOptions{IDs: []string{"x"}}},
		{subjects.Release, `{"id":"x"}`, subjects.ItemOptions{ID: "x"}},
		{subjects.Redrive, `{"ids":["x"]}`, subjects.ItemOptions{IDs: []string{"x"}}},
		{subjects.Move, `{"ids":["x"],"priority":0}`, subjects.ItemOptions{IDs: []string{"x"}}},
	} {
		got, err := subjects.ParseItemOptions(test.verb, []byte(test.payload))
		if err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s %s: %+v, %v: want %+v", test.verb, test.payload, got, err, test.want)
		}
		if again, err := subjects.ParseItemOptions(test.verb, got.Encode(test.verb)); err != nil || !reflect.DeepEqual(again, test.want) {
			t.Errorf("%s %s: %s, %+v, %v: want %+v", test.verb, test.payload, got.Encode(test.verb), again, err, test.want)
		}
	}
	if got, err := subjects.ParseItemOptions(subjects.Remove, []byte(manyIDs(subjects.MaxItems))); err != nil || len(got.IDs) != subjects.MaxItems {
		t.Errorf("%d ids, %v", len(got.IDs), err)
	}

	for _, test := range []struct {
		verb           subjects.Verb
		payload, words string
	}{
		{subjects.Get, ``, "want a JSON object with members of id, ids, end, priority, value_bytes, max"},
		{subjects.Get, `{}`, `no id: want {"id":"..."}`},
		{subjects.Get, `{"id":5}`, "want a text"},
		{subjects.Get, `{"ID":"x"}`, `unknown member "ID": want a JSON object with members of id`},
		{subjects.Rank, `{"id":"x","end":"front"}`, `end: "front": want "min" or "max"`},
		{subjects.Move, `{"id":"x"}`, "no priority"},
		{subjects.Move, `{"id":"x","priority":"1"}`, "want an integer"},
		{subjects.Move, `{"id":"x","priority":9223372036854775808}`, "want an integer"},
		{subjects.Remove, manyIDs(subjects.MaxItems + 1), "ids: an array of 1001 elements: want at most 1000"},
		{subjects.Remove, `{"ids":[]}`, `no ids: want {"ids":["..."]}`},
		{subjects.Remove, `{"ids":"x"}`, `ids: "x": want an array of texts`},
		{subjects.Remove, `{"ids":["x",5]}`, "ids: element 1: 5: want a text in quotes"},
		{subjects.Remove, `{"ids":["x","y","x"]}`, "ids: elements 0 and 2 are the same"},
		{subjects.Remove, `{"ids":["x"],"id":"y"}`, "id and ids: want one of them"},
		{subjects.Remove, `{"ids":["x"],"value_bytes":5}`, `unknown member "value_bytes": remove has none`},
		{subjects.Redrive, `{"id":"x"}`, "unknown member"},
		{subjects.Redrive, `{"ids":[]}`, "no ids"},
		{subjects.Move, `{"ids":["x"]}`, "no priority"},
		{subjects.Get, `{"id":"x","value_bytes":5}`, "value_bytes: only with ids"},
	} {
		got, err := subjects.ParseItemOptions(test.verb, []byte(test.payload))
		if !reflect.DeepEqual(got, subjects.ItemOptions{}) || !errors.Is(err, subjects.ErrOptions) || !strings.Contains(err.Error(), test.words) {
			t.Errorf("%s %.80s: %+v, %v: want %q", test.verb, test.payload, got, err, test.words)
		}
	}
}

// What a page and results say comes back.
func TestItemReplies(t *testing.T) {
	at, next := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC), "n"
	page := subjects.ItemsPage{
		Items: []subjects.StoredItem{
			{
				ID: "a", Priority: -5, State: subjects.StateLeased, PushedAt: &at, Due: &at, Expires: &at, Deliveries: 3, Reason: "no",
				Size: 5, Headers: map[string][]string{"A": {"b", "c"}}, Value: []byte("v\x00"), ValueCut: true,
			},
			{ID: "b", Failure: subjects.Failure{Code: 404, Text: "no such item"}},
		},
		Next: &next, Scanned: 7,
	}
	if got, err := subjects.ParseReply[subjects.ItemsPage](page.Encode()); err != nil || !reflect.DeepEqual(got, page) {
		t.Errorf("%s: %+v, %v: want %+v", page.Encode(), got, err, page)
	}
	if got, want := string((&subjects.ItemsPage{}).Encode()), `{"items":[],"next":null,"scanned":0}`; got != want {
		t.Errorf("an empty page is %s, want %s", got, want)
	}
	results := subjects.ItemResults{Queue: "jobs", Results: []subjects.ItemResult{
		{ID: "a", NewID: "b", Home: "c"}, {ID: "d", Failure: subjects.Failure{Code: 409, Text: "the item is leased"}},
	}}
	if got, err := subjects.ParseReply[subjects.ItemResults](subjects.EncodeReply(&results)); err != nil || !reflect.DeepEqual(got, results) {
		t.Errorf("%s: %+v, %v: want %+v", subjects.EncodeReply(&results), got, err, results)
	}
}
