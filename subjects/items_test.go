package subjects_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/subjects/strictjson"
)

// An items request is read with its defaults, and written again as it was read.
func TestItemsOptions(t *testing.T) {
	longest := strings.Repeat("m", subjects.MaxMatch)
	longestMatches := `{"match":"` + longest + `","headers":{"A":"` + longest + `"}}`

	for payload, want := range map[string]subjects.ItemsOptions{
		``:                          {},
		`{"state":"leased"}`:        {State: subjects.StateLeased},
		`{"end":"max","after":"x"}`: {Max: true, After: "x"},
		`{"limit":1000}`:            {Limit: 1000},
		`{"value_bytes":0}`:         {ValueBytes: subjects.NoValues},
		`{"value_bytes":65536}`:     {ValueBytes: 65536},
		longestMatches:              {Match: longest, Headers: map[string]string{"A": longest}},
	} {
		want.Limit = cmp.Or(want.Limit, subjects.DefaultItems)
		want.ValueBytes = cmp.Or(want.ValueBytes, subjects.DefaultValueBytes)

		got, err := subjects.ParseItemsOptions([]byte(payload))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v: want %+v", payload, got, err, want)
		}

		again, err := subjects.ParseItemsOptions(got.Encode())
		if err != nil || !reflect.DeepEqual(again, want) {
			t.Errorf("%s: %s, %+v, %v: want %+v", payload, got.Encode(), again, err, want)
		}
	}

	got, err := subjects.ParseItemsOptions([]byte(manyHeaders(16)))
	if err != nil || len(got.Headers) != 16 {
		t.Errorf("%d headers, %v", len(got.Headers), err)
	}

	const long = "a string of 257 bytes: want at most 256"
	for payload, words := range map[string]string{
		`[]`: "want a JSON object with members of state, end, " +
			"after, limit, value_bytes, match, headers",
		`{"state":"dead"}`:      `state: "dead": want "ready", "delayed", "leased" or "done"`,
		`{"end":"front"}`:       `end: "front": want "min" or "max"`,
		`{"limit":0}`:           "limit: 0: want an integer from 1 to 1000",
		`{"value_bytes":65537}`: "value_bytes: 65537: want an integer from 0 to 65536",

		`{"after":5}`:                          "after: 5: want a string in quotes",
		`{"headers":["A"]}`:                    "headers: [\"A\"]: want a JSON object of strings",
		`{"headers":{"A":1}}`:                  `headers: A: 1: want a string in quotes`,
		`{"headers":{"A":"b","A":"c"}}`:        "given twice",
		`{"match":"` + longest + `m"}`:         "match: " + long,
		`{"headers":{"A":"` + longest + `m"}}`: `headers: "A": ` + long,
		`{"headers":{"` + longest + `m":""}}`:  long,
		manyHeaders(17):                        "headers: 17 members: want at most 16",
		`{"id":"x"}`:                           "unknown member",
	} {
		got, err := subjects.ParseItemsOptions([]byte(payload))
		refused := errors.Is(err, subjects.ErrOptions) && strings.Contains(err.Error(), words)
		if !refused || !reflect.DeepEqual(got, subjects.ItemsOptions{}) {
			t.Errorf("%.80s: %+v, %v: want %q", payload, got, err, words)
		}
	}
}

// manyHeaders is the payload of an items request that compares n headers.
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

// A request about items by id is read as its verb has it, and written again as it was read.
func TestItemOptions(t *testing.T) {
	for _, test := range []struct {
		verb    subjects.Verb
		payload string
		want    subjects.ItemOptions
	}{
		{subjects.Get, `{"id":"x"}`, subjects.ItemOptions{ID: "x"}},
		{subjects.Remove, ` {"id" : "x\u0079"} `, subjects.ItemOptions{ID: "xy"}},
		{
			subjects.Remove, `{"id":"x","state":"done"}`,
			subjects.ItemOptions{ID: "x", State: subjects.StateDone},
		},
		{subjects.Rank, `{"end":"max","id":"x"}`, subjects.ItemOptions{ID: "x", Max: true}},
		{subjects.Rank, `{"id":"x","end":"min"}`, subjects.ItemOptions{ID: "x"}},
		{
			subjects.Move,
			`{"id":"x","priority":-9223372036854775808}`,
			subjects.ItemOptions{ID: "x", Priority: -1 << 63},
		},
		{subjects.Move, `{"id":"x","priority":0}`, subjects.ItemOptions{ID: "x"}},
		{
			subjects.Get,
			`{"ids":["x","y"]}`,
			subjects.ItemOptions{IDs: []string{"x", "y"}, ValueBytes: subjects.DefaultValueBytes},
		},
		{
			subjects.Get,
			`{"ids":["x"],"value_bytes":0}`,
			subjects.ItemOptions{IDs: []string{"x"}, ValueBytes: subjects.NoValues},
		},
		{
			subjects.Get,
			`{"value_bytes":7,"ids":["x"]}`,
			subjects.ItemOptions{IDs: []string{"x"}, ValueBytes: 7},
		},
		{
			subjects.Get,
			`{"msg_id":"x","frames":true}`,
			subjects.ItemOptions{MsgID: "x", Frames: true},
		},
		{subjects.Get, `{"id":"x","frames":false}`, subjects.ItemOptions{ID: "x"}},
		{subjects.Remove, `{"ids":["x"]}`, subjects.ItemOptions{IDs: []string{"x"}}},
		{subjects.Release, `{"id":"x"}`, subjects.ItemOptions{ID: "x"}},
		{subjects.Rank, `{"place":"x"}`, subjects.ItemOptions{ID: "x", AtPlace: true}},
		{
			subjects.Move, `{"place":"x","priority":2}`,
			subjects.ItemOptions{ID: "x", AtPlace: true, Priority: 2},
		},
		{
			subjects.Redrive, `{"places":["x"]}`,
			subjects.ItemOptions{IDs: []string{"x"}, AtPlace: true},
		},
		{subjects.Redrive, `{"ids":["x"]}`, subjects.ItemOptions{IDs: []string{"x"}}},
		{subjects.Move, `{"ids":["x"],"priority":0}`, subjects.ItemOptions{IDs: []string{"x"}}},
	} {
		got, err := subjects.ParseItemOptions(test.verb, []byte(test.payload))
		if err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s %s: %+v, %v: want %+v", test.verb, test.payload, got, err, test.want)
		}

		again, err := subjects.ParseItemOptions(test.verb, got.Encode(test.verb))
		if err != nil || !reflect.DeepEqual(again, test.want) {
			t.Errorf("%s %s again: %+v, %v: want %+v",
				test.verb, test.payload, again, err, test.want)
		}
	}

	got, err := subjects.ParseItemOptions(subjects.Remove, []byte(manyIDs(subjects.MaxItems)))
	if err != nil || len(got.IDs) != subjects.MaxItems {
		t.Errorf("%d ids, %v", len(got.IDs), err)
	}

	for _, test := range []struct {
		verb           subjects.Verb
		payload, words string
	}{
		{
			subjects.Get, ``,
			"want a JSON object with members of id, place, ids, places, msg_id, value_bytes",
		},
		{subjects.Get, `{}`, `no id: want {"id":"..."}`},
		{subjects.Get, `{"id":5}`, "want a string"},
		{subjects.Get, `{"ID":"x"}`, `unknown member "ID": want a JSON object with members of id`},
		{subjects.Rank, `{"id":"x","end":"front"}`, `end: "front": want "min" or "max"`},
		{subjects.Move, `{"id":"x"}`, "no priority"},
		{subjects.Move, `{"id":"x","priority":"1"}`, "want an integer"},
		{subjects.Move, `{"id":"x","priority":9223372036854775808}`, "want an integer"},
		{
			subjects.Remove, manyIDs(subjects.MaxItems + 1),
			"ids: an array of 1001 elements: want at most 1000",
		},
		{subjects.Remove, `{"ids":[]}`, `no ids: want {"ids":["..."]}`},
		{subjects.Remove, `{"ids":"x"}`, `ids: "x": want an array of strings`},
		{subjects.Remove, `{"ids":["x",5]}`, "ids: element 1: 5: want a string in quotes"},
		{subjects.Remove, `{"ids":["x","y","x"]}`, "ids: elements 0 and 2 are the same"},
		{subjects.Remove, `{"ids":["x"],"id":"y"}`, "id and ids: want one of them"},
		{
			subjects.Remove, `{"ids":["x"],"value_bytes":5}`,
			`unknown member "value_bytes": ` +
				`want a JSON object with members of id, place, ids, places, state`,
		},
		{subjects.Redrive, `{"id":"x"}`, "unknown member"},
		{subjects.Move, `{"priority":1}`, `no id: want {"id":"..."}, with an id that a push`},
		{subjects.Move, `{"id":"x","place":"x","priority":1}`, "id and place: want one of them"},
		{subjects.Move, `{"place":"x","ids":["x"],"priority":1}`,
			"place and ids: want one of them"},
		{subjects.Redrive, `{"ids":["x"],"places":["x"]}`, "ids and places: want one of them"},
		{subjects.Redrive, `{"places":["x"],"max":1}`, "places and max: want one of them"},
		{subjects.Redrive, `{"place":"x"}`, `unknown member "place"`},
		{subjects.Get, `{"place":"x","msg_id":"y"}`, "place and msg_id: want one of them"},
		{subjects.Remove, `{"places":[]}`, `no places: want {"places":["..."]}`},
		{subjects.Remove, `{"places":["x","x"]}`, "places: elements 0 and 1 are the same"},
		{
			subjects.Remove, strings.Replace(manyIDs(subjects.MaxItems+1), "ids", "places", 1),
			"places: an array of 1001 elements: want at most 1000",
		},
		{subjects.Redrive, `{"ids":[]}`, "no ids"},
		{subjects.Rank, `{"id":"x","frames":false}`, `unknown member "frames"`},
		{subjects.Move, `{"ids":["x"]}`, "no priority"},
		{subjects.Get, `{"id":"x","value_bytes":5}`, "value_bytes: only with ids"},
	} {
		got, err := subjects.ParseItemOptions(test.verb, []byte(test.payload))
		refused := errors.Is(err, subjects.ErrOptions) && strings.Contains(err.Error(), test.words)
		if !refused || !reflect.DeepEqual(got, subjects.ItemOptions{}) {
			t.Errorf("%s %.80s: %+v, %v: want %q", test.verb, test.payload, got, err, test.words)
		}
	}
}

// A page of items is read as it was written.
func TestItemsPage(t *testing.T) {
	at, next := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC), "n"
	page := subjects.ItemsPage{
		Items: []subjects.StoredItem{
			{
				ID:         "a",
				Priority:   -5,
				State:      subjects.StateLeased,
				PushedAt:   &at,
				Due:        &at,
				Expires:    &at,
				Deliveries: 3,
				Reason:     "no",
				Size:       5,
				Headers:    map[string][]string{"A": {"b", "c"}},
				Value:      []byte("v\x00"),
				ValueCut:   true,
			},
			{
				ID:      "b",
				Value:   []byte{},
				Failure: subjects.Failure{Code: 404, Reason: "missing", Text: "no such item"},
			},
		},
		Next:    &next,
		Scanned: 7,
	}

	got, err := subjects.ParseReply[subjects.ItemsPage](page.Encode())
	if err != nil || !reflect.DeepEqual(got, page) {
		t.Errorf("%s: %+v, %v: want %+v", page.Encode(), got, err, page)
	}
}

// A page without items has an empty list, not null.
func TestEmptyItemsPage(t *testing.T) {
	const empty = `{"items":[],"next":null,"scanned":0}`
	if got := string((&subjects.ItemsPage{}).Encode()); got != empty {
		t.Errorf("an empty page is %s, want %s", got, empty)
	}
}

// The results for several ids are read as they were written.
func TestItemResults(t *testing.T) {
	results := subjects.ItemResults{Queue: "jobs", Results: []subjects.ItemResult{
		{ID: "a", Place: "b", Home: "c"},
		{ID: "d", Failure: subjects.Failure{Code: 409, Text: "the item is leased"}},
	}}
	payload := strictjson.Marshal(&results)

	again, err := subjects.ParseReply[subjects.ItemResults](payload)
	if err != nil || !reflect.DeepEqual(again, results) {
		t.Errorf("%s: %+v, %v: want %+v", payload, again, err, results)
	}
}
