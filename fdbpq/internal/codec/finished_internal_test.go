package codec

import (
	"encoding/hex"
	"errors"
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
		"bare": {Item: Item{ID: first}, At: at, Order: at, Until: at.Add(time.Hour), NoValue: true},
		"result": {
			Item: Item{ID: first}, At: at, Order: at.Add(time.Hour), Until: at,
			Outcome: Outcome{Result: []byte{}},
		},
		"large": {
			Item: Item{ID: first, Message: Message{
				Value:   []byte(strings.Repeat("v", 2*ChunkSize)),
				Headers: map[string][]string{"A": {"b"}},
				First:   &ID{Priority: 7, Count: 1, Random: first.Random},
				Keep:    time.Minute,
			}},
			Outcome: Outcome{Result: []byte("done\x00"), ContentType: "text/plain"},
			At:      at, Order: at, Until: at, Since: at, Deliveries: 3, Fence: 9, Holder: "me",
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

// The flags of an id say that its item has moved or will be kept, and such an id is one of ours
// only if the item has ("m") keys.
func TestFlagsOfIDs(t *testing.T) {
	l := NewLayout(tuple.NewSubspace(tuple.Tuple{"q"}), RawValues, false)
	at := time.UnixMicro(1_790_000_000_000_000)

	m := &Message{First: &ID{Count: 1}, Keep: time.Second}
	id := NewID(0, 0, at, make([]byte, UniqueSize), l.Flags(m))
	if !Ours(&id) || !HasMeta(&id) || !Moved(&id) || !Keeps(&id) {
		t.Errorf("flags %x: want an item that has moved and is to be kept", id.Random[flagsAt])
	}

	id.Random[flagsAt] &^= flagMeta
	if Ours(&id) || Moved(&id) || Keeps(&id) {
		t.Errorf("flags %x: want an item of another program", id.Random[flagsAt])
	}
}

// The bytes of a finished job and of its entry in the order stay as they are.
func TestStoredFormsOfFinishedJobs(t *testing.T) {
	const (
		due    = "1b065bfeda25e000" // or any other time
		random = "4141414141414141414141414141414141414141"
		place  = "1503" + "1504" + "01" + random + "00ff" // in bytes
	)
	at := time.UnixMicro(1_790_000_000_000_000).UTC()
	f := &Finished{
		Item:    Item{ID: ID{Priority: 3, Count: 4}, Message: Message{Value: []byte("value")}},
		Outcome: Outcome{Result: []byte("done"), ContentType: "t/p"},
		At:      at, Order: at, Until: at, Since: at, Deliveries: 2, Fence: 5, Holder: "me",
	}
	for i := range f.ID.Random {
		f.ID.Random[i] = 'A'
	}
	bare := &Finished{Item: f.Item, At: at, Order: at, Until: at, Fence: 5, NoValue: true}
	entry := FinishedEntry{Order: at, At: at, Until: at, Parts: 1}
	moved := entry
	moved.Place, moved.At = f.ID, at.Add(-5*time.Microsecond)

	for _, form := range []struct {
		what string
		got  []byte
		want string
	}{
		{
			"finished job", f.Encode()[0],
			"49" + "1501" + "01" + place + "00" + due + "14" + due + due + "1502" + "1505" +
				"016d6500" +
				"1501" + "1504" + "01742f7000" + "646f6e65" + "04" + "1501" + "0500" + "76616c7565",
		},
		{
			"without value, result and names", bare.Encode()[0],
			"3b" + "1501" + "01" + place + "00" + due + "14" + due + "14" + "14" + "1505" + "0100" +
				"14" + "13fe" + "0100" + "04" + "1501" + "0500",
		},
		{"entry", entry.Encode(), due + "14" + "1501"},
		{"entry by end", entry.EncodeEnd(), due + "14" + "1501"},
		{
			"entry of a job that had moved, placed late", moved.Encode(),
			due + "1505" + "1501" + "01" + place + "00",
		},
	} {
		if got := hex.EncodeToString(form.got); got != form.want {
			t.Errorf("%s: %s\nwant %s", form.what, got, form.want)
		}
	}
}

// Both entries of a job say all of it again, and one of the order whose value is damaged still says
// which job it is about.
func TestFinishedEntries(t *testing.T) {
	at := time.UnixMicro(1_790_000_000_000_000).UTC()
	for _, fifo := range []bool{false, true} {
		l := NewLayout(tuple.NewSubspace(tuple.Tuple{"q"}), RawValues, fifo)
		e := FinishedEntry{Order: at, Job: ID{Count: 4}, Parts: 3, Place: ID{Count: 9}}
		e.At, e.Until = Micros(at.Add(-time.Minute)), Micros(at.Add(time.Hour))
		end := kv.KeyValue{Key: l.FinishedEndKey(e.Until, &e.Job), Value: e.EncodeEnd()}
		pair := kv.KeyValue{Key: l.FinishedOrderKey(at, &e.Job), Value: e.Encode()}

		if got, err := l.ParseFinishedEnd(end); err != nil || got != e {
			t.Errorf("read %+v by end, %v, want %+v", got, err, e)
		}

		got, err := l.ParseFinishedEntry(pair)
		if err != nil || got != e {
			t.Errorf("read %+v, %v, want %+v", got, err, e)
		}

		pair.Value = []byte("damaged")
		got, err = l.ParseFinishedEntry(pair)
		if !errors.Is(err, ErrCorrupt) || got != (FinishedEntry{Order: at, Job: e.Job}) {
			t.Errorf("read %+v, %v, want the time and the job", got, err)
		}

		pair.Key = append(pair.Key, "more"...)
		if got, err = l.ParseFinishedEntry(pair); err == nil || !got.Order.IsZero() {
			t.Errorf("read %+v, %v, want nothing", got, err)
		}
	}
}
