package bridge

import (
	"testing"

	"github.com/nats-io/nats.go"
)

// A pop of many items takes memory for each of them while it is pending, so it counts for more
// than its payload.
func TestSizeOfAPopOfSeveral(t *testing.T) {
	b := newTestBridge(t)
	var before int64
	for _, one := range []struct {
		payload string
		least   int64
	}{{"", 0}, {`{"batch":1}`, 0}, {`{"batch":1000}`, 200_000}, {`{"batch":1000,"expires":"1h"}`, 200_000}} {
		newHandler(b).handle(&nats.Msg{Subject: "pq.jobs.pop.min", Reply: "inbox", Data: []byte(one.payload)})
		_, after := b.dispatcher.Pending()
		if size := after - before; size < one.least || one.least == 0 && size > int64(len(one.payload)) {
			t.Errorf("%q counts as %d bytes", one.payload, size)
		}
		before = after
	}
}

// What users wrote stays as it is, whatever it looks like.
func TestWithoutPackages(t *testing.T) {
	for text, want := range map[string]string{
		"kv: the store is away":                          "the store is away",
		`a push: fdbpq: header Pq-X: "kv: 5": kv: wrong`: `a push: header Pq-X: "kv: 5": wrong`,
	} {
		if got := withoutPackages(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
