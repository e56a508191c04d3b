package bridge

import (
	"testing"

	"github.com/nats-io/nats.go"
)

// A pop of many items takes no more memory than one of a single item until its turn comes.
func TestSizeOfAPopOfSeveral(t *testing.T) {
	b := newTestBridge(t)
	var before int64
	for _, payload := range []string{"", `{"batch":1}`, `{"batch":1000}`, `{"batch":1000,"expires":"1h"}`} {
		newHandler(b).handle(&nats.Msg{Subject: "pq.jobs.pop.min", Reply: "inbox", Data: []byte(payload)})
		_, after := b.dispatcher.Pending()
		if size := after - before; size > int64(len(payload)) {
			t.Errorf("%q counts as %d bytes", payload, size)
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
