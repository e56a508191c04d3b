package codec

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// A finished job is read back as it was written, with or without a value and a result, also if its
// record takes several keys.
func TestFinishedRoundTrip(t *testing.T) {
	l := NewLayout(tuple.NewSubspace(tuple.Tuple{"q"}), RawValues, false)
	at := time.UnixMicro(1_790_000_000_000_000).UTC()
	first := NewID(1, 2, at, make([]byte, UniqueSize), flagMeta)

	for name, f := range map[string]Finished{
		"bare":   {Item: Item{ID: first}, At: at, Until: at.Add(time.Hour), NoValue: true},
		"result": {Item: Item{ID: first}, At: at, Until: at, Outcome: Outcome{Result: []byte{}}},
		"large": {
			Item: Item{ID: first, Message: Message{
				Value:   []byte(strings.Repeat("v", 2*ChunkSize)),
				Headers: map[string][]string{"A": {"b"}},
				First:   ID{Priority: 7, Count: 1, Random: first.Random},
				Keep:    time.Minute,
			}},
			Outcome: Outcome{Result: []byte("done\x00"), ContentType: "text/plain"},
			At:      at, Until: at, Since: at, Deliveries: 3, Fence: 9, Holder: "me",
		},
	} {
		f.PushedAt = PushedAt(&f.ID)
		var parts []kv.KeyValue
		job := f.Job()
		for n, part := range f.Encode() {
			parts = append(parts, kv.KeyValue{Key: l.FinishedKey(&job, n), Value: part})
		}

		got, err := ParseFinished(parts)

		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(got.Value) == 0 {
			got.Value = nil
		}
		if !reflect.DeepEqual(*got, f) {
			t.Errorf("%s: read %+v, want %+v", name, *got, f)
		}
	}
}

// The flags of an id say that its item has moved or is to be kept, and such an id is one of ours
// only if the item has ("m") keys.
func TestFlagsOfIDs(t *testing.T) {
	l := NewLayout(tuple.NewSubspace(tuple.Tuple{"q"}), RawValues, false)
	at := time.UnixMicro(1_790_000_000_000_000)

	m := &Message{First: ID{Count: 1}, Keep: time.Second}
	id := NewID(0, 0, at, make([]byte, UniqueSize), l.Flags(m))
	if !Ours(&id) || !HasMeta(&id) || !Moved(&id) || !Keeps(&id) {
		t.Errorf("flags %x: want an item that has moved and is to be kept", id.Random[flagsAt])
	}

	id.Random[flagsAt] &^= flagMeta
	if Ours(&id) || Moved(&id) || Keeps(&id) {
		t.Errorf("flags %x: want an item of another program", id.Random[flagsAt])
	}
}
