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

// Keys and values are like the recipes', byte for byte.
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
			wantBytes(t, "raw value", EncodeValue(RawValues, unhex(t, item.Value)),
				item.StoredPython)
			wantBytes(t, "tuple value", EncodeValue(TupleValues, unhex(t, item.Value)),
				item.StoredJava)

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

// Items count as ours even if the clock of their machine is far off: otherwise they would lose
// headers and the rest of long values.
func TestIDWithImpossibleClock(t *testing.T) {
	for _, year := range []int{
		-5000, 1, 1969, 1970, 2019, 2020, 2026, 2199, 2200, 2201, 9999, 300_000,
	} {
		now := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
		id := NewID(1, 2, now, make([]byte, UniqueSize), flagMeta)
		if !Ours(&id) || !HasMeta(&id) {
			t.Errorf("an id of the year %d is not known as ours: %x", year, id.Random)
		}
		if year >= 2020 && year < 2200 && !PushedAt(&id).Equal(now) {
			t.Errorf("an id of %v says %v", now, PushedAt(&id))
		}
	}
}

// Ids and keys of items with a group have these bytes, and hashes are the first six bytes of the
// SHA-256 of secret and name.
func TestGoldenGroups(t *testing.T) {
	jobs := NewLayout(tuple.NewSubspace(tuple.Tuple{"pq", "jobs"}), RawValues, false)
	mail := NewLayout(tuple.NewSubspace(tuple.Tuple{"q", "mail"}), RawValues, true)

	random := []byte{1, 2, 3, 4, 5, 6, 7, 8, 9}
	id := NewID(5, 7, time.UnixMicro(1_790_000_000_000_000), random, flagMeta)
	if GroupIn(&id) != NotIndexed {
		t.Errorf("without a group it is %x", GroupIn(&id))
	}

	if hash := HashGroup(make([]byte, GroupSecretSize), "a"); hash != 0x41a0370c3d9f {
		t.Errorf("with a secret of zeros, the hash is %x", hash)
	}

	acme := HashGroup(nil, "acme")
	SetGroup(&id, acme, 3)
	if GroupIn(&id) != acme || TurnItemOf(&id) != (TurnItem{7, 3}) {
		t.Errorf("the group is %x, at %+v, want %x", GroupIn(&id), TurnItemOf(&id), acme)
	}

	if at := PushedAt(&id).UnixMicro(); at != 1_790_000_000_000_000 {
		t.Errorf("it was pushed at %d", at)
	}

	const item = "070103065bfeda25e000ff9d5103822b33ad87c107080900" // count and random
	wantBytes(t, "random part", id.Random[:], "03065bfeda25e0009d5103822b33ad87c1070809")

	for _, key := range []struct {
		what string
		key  []byte
		want string
	}{
		{
			"ready item", jobs.GroupItemKey(KindGroupReady, acme, &id),
			"02707100026a6f6273000277001a822b33ad87c1150515" + item,
		},
		{
			"held item", jobs.GroupItemKey(KindGroupHeld, acme, &id),
			"02707100026a6f6273000279001a822b33ad87c1150515" + item,
		},
		{
			"ready items of a group", jobs.GroupCounterKey(GroupCounter{acme, GroupReady}),
			"02707100026a6f627300027a001a822b33ad87c114",
		},
		{
			"leased items", jobs.GroupCounterKey(GroupCounter{acme, GroupLeased}),
			"02707100026a6f627300027a001a822b33ad87c11501",
		},
		{"turn", jobs.TurnKey(5), "02707100026a6f6273000276001505"},
		{"value of a turn", TurnItem{7, 3}.Encode(), "15071503"},
		{
			"item without a group", mail.GroupItemKey(KindGroupReady, NoGroup, &id),
			"027100026d61696c0002770014" + "15" + item,
		},
		{
			"ready items of FIFO", mail.GroupCounterKey(GroupCounter{acme, GroupReady}),
			"027100026d61696c00027a001a822b33ad87c114",
		},
		{"turn of FIFO", mail.TurnKey(0), "027100026d61696c00027600"},
	} {
		wantBytes(t, key.what, key.key, key.want)
	}

	for _, l := range []*Layout{jobs, mail} {
		own := id
		if l.Fifo {
			own.Priority = 0
		}

		got, err := l.ParseGroupItem(l.GroupItemKey(KindGroupHeld, acme, &own))
		if err != nil || got != own {
			t.Errorf("parsed %+v (error %v), want %+v", got, err, own)
		}
	}
}

// Of the flags that no version writes yet, only the one of properties that must be understood keeps
// an item ours, beside ("m") keys. No version understands any such property yet.
func TestReservedFlags(t *testing.T) {
	for flags, ours := range map[Flags]bool{
		flagMeta | flagMust:             true,
		flagMeta | flagMoved | flagMust: true,
		flagMust:                        false,
		flagMeta | 0x40:                 false,
		flagMeta | 0x80:                 false,
		flagMeta | 0xe0:                 false,
	} {
		id := NewID(1, 2, time.Now(), make([]byte, UniqueSize), flags)
		if Ours(&id) != ours || HasMeta(&id) != ours || Must(&id) != ours {
			t.Errorf("flags %#x: ours %v, has (\"m\") keys %v, %v; want %v", byte(flags), Ours(&id),
				HasMeta(&id), Must(&id), ours)
		}
	}
}
