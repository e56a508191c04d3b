package codec

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// Held items, histories and headers are stored as these bytes.
func TestStoredFormsOfLeases(t *testing.T) {
	const (
		due   = "1b065bfeda25e000"                          // or any other time
		lease = "1502" + "1505" + due + "170f4240" + "1501" // deliveries, fence, due, wait, end
		past  = "1502" + "1505" + "170f4240"                // deliveries, fence, wait
		value = "76616c7565"                                // "value"
		dead  = "05" + "016a6f627300" + "016e6f00" + due + "1502" + "016c61746500" + "00"
		a     = "05" + "014100" + "016200" + "016300" + "00" // a header
	)

	at := time.UnixMicro(1_790_000_000_000_000).UTC()
	once := History{Deliveries: 2, Fence: 5, Wait: time.Second}
	all := once
	all.Reason, all.Lasting = "n\x00o", Lasting{Expires: at, Unique: "k"}

	record := func(state ItemState, history History, holder string) *Record {
		h := &Record{State: state, Due: at, End: Back, Value: []byte("value"), History: history}
		h.SetHolder(holder, at)
		return h
	}

	headers := map[string][]string{"A": {"b", "c"}}
	joiner := &Joiner{Queue: "q", ID: ID{Priority: 3, Count: 256}}
	copy(joiner.ID.Random[:], strings.Repeat("a", RandomSize))
	died := &DeadLetter{Queue: "jobs", Reason: "no", At: at, Deliveries: 2, Error: "late"}

	for _, form := range []struct {
		what string
		got  []byte
		want string
	}{
		{
			"held item", record(Delayed, once, "").Encode(),
			"1e" + "1501" + "1501" + lease + "0100" + "14" + "0100" + "0100" + "14" + value,
		},
		{
			"held item with all", record(Delayed, all, "").Encode(),
			"2a" + "1501" + "1501" + lease + "016e00ff6f00" + due + "016b00" + "0100" + "14" +
				value,
		},
		{
			"lease with a holder", record(Leased, all, "me").Encode(),
			"32" + "1501" + "14" + lease + "016e00ff6f00" + due + "016b00" + "016d6500" + due +
				value,
		},
		{
			"item that nobody holds any more", record(Delayed, all, "me").Encode(),
			"2a" + "1501" + "1501" + lease + "016e00ff6f00" + due + "016b00" + "0100" + "14" +
				value,
		},
		{
			"delayed push", NewDelayed(&ID{}, &Message{}, at, []byte("value")).Encode(),
			"18" + "1501" + "1501" + "14" + "14" + due + "14" + "14" +
				"0100" + "14" + "0100" + "0100" + "14" + value,
		},
		{"history", once.Encode(), past + "0100" + "14" + "0100"},
		{"history with all", all.Encode(), past + "016e00ff6f00" + due + "016b00"},
		{"headers", EncodeMeta(&Message{Headers: headers}), "0f" + "1501" + "0500" + a},
		{
			"headers of a dead letter", EncodeMeta(&Message{Headers: headers, DeadLetter: died}),
			"31" + "1501" + "05" + "026465616400" + dead + "00" + a,
		},
		{
			"all properties",
			EncodeMeta(&Message{MsgID: "m", Unique: "k", Expires: at, DeadLetter: died}),
			"4d" + "1501" + "05" + "026d73675f696400" + "016d00" + "02756e6971756500" + "016b00" +
				"026578706972657300" + due + "026465616400" + dead + "00",
		},
		{
			"joiner that is a member", EncodeMeta(&Message{Join: time.Second, Joiner: joiner}),
			"3a" + "1501" + "05" + "026a6f696e657200" + "05" + "017100" +
				"0115031601" + "00ff" + "01" + strings.Repeat("61", 20) + "00ff" + "00" + "00" +
				"026a6f696e00" + "170f4240" + "00",
		},
	} {
		wantBytes(t, form.what, form.got, form.want)
	}
}

// Records, histories and messages are read as they were written.
func TestStoredFormsAreRead(t *testing.T) {
	at := time.UnixMicro(1_790_000_000_000_000).UTC()
	id := ID{Priority: 3, Count: 4}

	past := History{
		Deliveries: 2,
		Fence:      5,
		Wait:       time.Second,
		Reason:     "n\x00o",
		Lasting:    Lasting{Expires: at, Unique: "k"},
	}

	leased := Record{
		ID:      id,
		State:   Leased,
		Due:     at.Local(),
		End:     Back,
		Value:   []byte("value"),
		History: past,
	}
	leased.SetHolder("me", at)
	delayed := *NewDelayed(&id, &Message{}, at.Local(), []byte("value"))

	for _, want := range []Record{leased, delayed} {
		got, err := ParseRecord(&id, want.Encode())
		if err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("read %+v, %v: want %+v", got, err, want)
		}
	}

	for _, want := range []History{past, {Fence: 5, Wait: time.Second}} {
		got, err := ParseHistory(&id, want.Encode())
		if err != nil || got != want {
			t.Errorf("read %+v, %v: want %+v", got, err, want)
		}
	}

	died := &DeadLetter{Queue: "jobs", Reason: "no", At: at, Deliveries: 2, Error: "late"}
	for _, want := range []Message{
		{Headers: map[string][]string{"A": {"b", "c"}}, DeadLetter: died},
		{MsgID: "m", Unique: "k", Expires: at, DeadLetter: died},
		{},
	} {
		got, rest, err := DecodeMeta([]kv.KeyValue{{Value: append(EncodeMeta(&want), "rest"...)}})
		if err != nil || !reflect.DeepEqual(got, want) || string(rest) != "rest" {
			t.Errorf("read %+v and %q, %v: want %+v", got, rest, err, want)
		}
	}
}
