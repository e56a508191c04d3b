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

// Ids and keys of items with a group. The hash is the beginning of the SHA-256 of its name.
func TestGoldenGroups(t *testing.T) {
	jobs := NewLayout(tuple.NewSubspace(tuple.Tuple{"pq", "jobs"}), RawValues, false)
	mail := NewLayout(tuple.NewSubspace(tuple.Tuple{"q", "mail"}), RawValues, true)
	id := NewID(5, 7, time.UnixMicro(1_790_000_000_000_000), []byte{1, 2, 3, 4, 5, 6, 7, 8, 9}, true)
	if GroupIn(&id) != NotIndexed {
		t.Errorf("without a group it is %x", GroupIn(&id))
	}
	acme := HashGroup("acme")
	SetGroup(&id, acme)
	if GroupIn(&id) != acme {
		t.Errorf("the group is %x, want %x", GroupIn(&id), acme)
	}

	const item = "070100ff065bfeda25e000ff9d5103822b33ad870607080900" // count and random
	wantBytes(t, "random part", id.Random[:], "00065bfeda25e0009d5103822b33ad8706070809")
	for _, key := range []struct {
		what string
		key  []byte
		want string
	}{
		{"ready item", jobs.GroupItemKey(KindGroupReady, acme, &id), "02707100026a6f62730002770019822b33ad87150515" + item},
		{"held item", jobs.GroupItemKey(KindGroupHeld, acme, &id), "02707100026a6f62730002790019822b33ad87150515" + item},
		{"ready items", jobs.GroupReadyKey(acme, 5), "02707100026a6f627300027a0019822b33ad87141505"},
		{"leased items", jobs.GroupLeasedKey(acme), "02707100026a6f627300027a0019822b33ad871501"},
		{"turn", jobs.TurnKey(5), "02707100026a6f6273000276001505"},
		{"value of a turn", EncodeCount(7), "1507"},
		{"item without a group", mail.GroupItemKey(KindGroupReady, NoGroup, &id), "027100026d61696c0002770014" + "15" + item},
		{"ready items of FIFO", mail.GroupReadyKey(acme, 0), "027100026d61696c00027a0019822b33ad8714"},
		{"turn of FIFO", mail.TurnKey(0), "027100026d61696c00027600"},
	} {
		wantBytes(t, key.what, key.key, key.want)
	}

	for _, l := range []*Layout{jobs, mail} {
		own := id
		if l.Fifo {
			own.Priority = 0
		}
		if got, err := l.ParseGroupItem(l.GroupItemKey(KindGroupHeld, acme, &own)); err != nil || got != own {
			t.Errorf("parsed %+v (error %v), want %+v", got, err, own)
		}
	}
}
