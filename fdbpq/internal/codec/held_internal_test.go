package codec

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// The stored forms of held items, histories and headers, as bytes. Forms without a reason or a dead
// letter are as earlier versions write and read them.
func TestStoredFormsOfLeases(t *testing.T) {
	id := ID{Priority: 3, Count: 4}
	h := Record{
		ID: id, State: Delayed, Due: time.UnixMicro(1_790_000_000_000_000), End: Back, Value: []byte("value"),
		History: History{Deliveries: 2, Fence: 5, Wait: time.Second},
	}
	past := History{Deliveries: 2, Fence: 5, Wait: time.Second}
	dead := Message{
		Headers:    map[string][]string{"A": {"b", "c"}},
		DeadLetter: &DeadLetter{Queue: "jobs", Reason: "no", At: time.UnixMicro(1_790_000_000_000_000).UTC(), Deliveries: 2, Error: "late"},
	}
	check := func(what string, got []byte, want string) {
		t.Helper()
		wantBytes(t, what, got, want)
	}
	check("held item", h.Encode(), "16"+"1501"+"1501"+"1502"+"1505"+"1b065bfeda25e000"+"170f4240"+"1501"+"76616c7565")
	check("history", past.Encode(), "1502"+"1505"+"170f4240")
	h.Reason, past.Reason = "n\x00o", "no"
	check("held item with a reason", h.Encode(), "1c"+"1502"+"1501"+"1502"+"1505"+"1b065bfeda25e000"+"170f4240"+"1501"+"016e00ff6f00"+"76616c7565")
	check("history with a reason", past.Encode(), "1502"+"1505"+"170f4240"+"016e6f00")
	check("history with a unique key", History{Deliveries: 2, Fence: 5, Wait: time.Second, Lasting: Lasting{Unique: "k"}}.Encode(), "1502"+"1505"+"170f4240"+"0100"+"14"+"016b00")
	h.Expires, h.Unique = time.UnixMicro(1_790_000_000_000_000).UTC(), "k"
	check("held item that expires, with a unique key", h.Encode(),
		"27"+"1503"+"1501"+"1502"+"1505"+"1b065bfeda25e000"+"170f4240"+"1501"+"016e00ff6f00"+"1b065bfeda25e000"+"016b00"+"76616c7565")
	named := h
	named.State, named.Holder, named.Since = Leased, "me", time.UnixMicro(1_790_000_000_000_000).UTC()
	check("lease with a holder", named.Encode(),
		"32"+"1504"+"14"+"1502"+"1505"+"1b065bfeda25e000"+"170f4240"+"1501"+"016e00ff6f00"+"1b065bfeda25e000"+"016b00"+"016d6500"+"1b065bfeda25e000"+"76616c7565")
	if again, err := ParseRecord(&id, named.Encode()); err != nil || !reflect.DeepEqual(*again, named) {
		t.Errorf("read %+v, %v: want %+v", again, err, named)
	}
	named.State = Delayed // nobody holds it any more
	check("delayed after a lease with a holder", named.Encode(), fmt.Sprintf("%x", h.Encode()))
	check("headers", EncodeMeta(&Message{Headers: dead.Headers}), "0d"+"1501"+"05"+"014100"+"016200"+"016300"+"00")
	check("headers of a dead letter", EncodeMeta(&dead),
		"29"+"1502"+"05"+"016a6f627300"+"016e6f00"+"1b065bfeda25e000"+"1502"+"016c61746500"+"00"+"05"+"014100"+"016200"+"016300"+"00")

	all := dead
	all.Headers, all.MsgID, all.Unique, all.Expires = nil, "m", "k", h.Expires
	check("all properties", EncodeMeta(&all),
		"4d"+"1503"+"05"+"026d73675f696400"+"016d00"+"02756e6971756500"+"016b00"+"026578706972657300"+"1b065bfeda25e000"+"026465616400"+"05"+"016a6f627300"+"016e6f00"+"1b065bfeda25e000"+"1502"+"016c61746500"+"00"+"00")

	again, err := ParseRecord(&id, h.Encode())
	if err != nil || !reflect.DeepEqual(*again, h) {
		t.Errorf("read %+v, %v: want %+v", again, err, h)
	}
	read, err := ParseHistory(&id, past.Encode())
	if err != nil || read != past {
		t.Errorf("read %+v, %v: want %+v", read, err, past)
	}
	for _, want := range []Message{dead, all} {
		m, rest, err := DecodeMeta([]kv.KeyValue{{Value: append(EncodeMeta(&want), "rest"...)}})
		if err != nil || !reflect.DeepEqual(m, want) || string(rest) != "rest" {
			t.Errorf("read %+v and %q, %v: want %+v", m, rest, err, want)
		}
	}
}
