package codec

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// Keys and values are those of the recipes, byte for byte.
func TestGoldenBytes(t *testing.T) {
	type recipe struct {
		Begin string `json:"range_begin"`
		End   string `json:"range_end"`
		Items []struct {
			Priority, Count, Index int64
			Random, Value, Key     string
			StoredPython           string `json:"stored_python"`
			StoredJava             string `json:"stored_java"`
		}
	}
	var file struct {
		PriorityQueue recipe `json:"priority_queue"`
		Queue         recipe
	}
	text, err := os.ReadFile("../../testdata/recipes.json")
	if err == nil {
		err = json.Unmarshal(text, &file)
	}
	if err != nil {
		t.Fatal(err)
	}
	check := func(l *Layout, r recipe) {
		for _, item := range r.Items {
			id := ID{Priority: item.Priority, Count: item.Count + item.Index}
			copy(id.Random[:], unhex(t, item.Random))
			wantBytes(t, "key", l.ItemKey(&id), item.Key)
			wantBytes(t, "raw value", EncodeValue(RawValues, unhex(t, item.Value)), item.StoredPython)
			wantBytes(t, "tuple value", EncodeValue(TupleValues, unhex(t, item.Value)), item.StoredJava)
			if got, err := l.ParseItem(unhex(t, item.Key)); err != nil || got != id {
				t.Errorf("key %s gives id %+v (error %v), want %+v", item.Key, got, err, id)
			}
		}
	}
	jobs := NewLayout(tuple.NewSubspace(tuple.Tuple{"pq", "jobs"}), RawValues, false)
	check(jobs, file.PriorityQueue)
	wantBytes(t, "begin of the items", jobs.ItemRange().Begin, file.PriorityQueue.Begin)
	wantBytes(t, "end of the items", jobs.ItemRange().End, file.PriorityQueue.End)
	check(NewLayout(tuple.NewSubspace(tuple.Tuple{"q", "mail"}), RawValues, true), file.Queue)
}

func unhex(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func wantBytes(t *testing.T, what string, got []byte, want string) {
	t.Helper()
	if !bytes.Equal(got, unhex(t, want)) {
		t.Errorf("%s is %x, want %s", what, got, want)
	}
}

// Even if the clock of a machine is far off, the items it pushes must count as ours:
// otherwise they would lose headers and the rest of long values.
func TestIDWithImpossibleClock(t *testing.T) {
	for _, year := range []int{-5000, 1, 1969, 1970, 2019, 2020, 2026, 2199, 2200, 2201, 9999, 300_000} {
		now := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
		id := NewID(1, 2, now, make([]byte, UniqueSize), true)
		if !Ours(&id) || !HasMeta(&id) {
			t.Errorf("an id of the year %d is not known as ours: %x", year, id.Random)
		}
		if year >= 2020 && year < 2200 && !PushedAt(&id).Equal(now) {
			t.Errorf("an id of %v says %v", now, PushedAt(&id))
		}
	}
}
