package bridge_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// One transaction has no room to lease very many large items. A batch gets those that fit, the
// next one the others. Nor has it room to give all back at once: those that do not fit are told
// so, and try again.
func TestLeasesOfManyLargeItems(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		const n, size = 150, 90_000
		for i := range n {
			push(t, e, "pq.large.push", nil, string(bytes.Repeat([]byte{byte(i)}, size)))
		}
		reply := e.Conn.NewRespInbox()
		s, err := e.Conn.SubscribeSync(reply)
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		var acks []string
		for batches := 0; got < n; batches++ {
			if err := e.Conn.PublishRequest("pq.large.pop.min", reply, []byte(`{"batch":150,"ack_wait":"1h"}`)); err != nil {
				t.Fatal(err)
			}
			before := got
			m := next(t, s)
			for ; m.Header.Get(subjects.HeaderBatchCount) == ""; m = next(t, s) {
				if len(m.Data) != size || m.Data[0] != byte(got) {
					t.Fatalf("item %d: %d bytes, headers %v", got, len(m.Data), m.Header)
				}
				acks = append(acks, m.Reply)
				got++
			}
			if got == before || batches > 3 {
				t.Fatalf("%d items in batch %d: %v", got-before, batches, m.Header)
			}
		}
		for attempt := 0; len(acks) > 0; attempt++ {
			if attempt > 20 {
				t.Fatalf("%d items cannot be given back", len(acks))
			}
			for _, ack := range acks {
				if err := e.Conn.PublishRequest(ack, reply, []byte("-NAK")); err != nil {
					t.Fatal(err)
				}
			}
			for range acks {
				if code := next(t, s).Header.Get(subjects.HeaderErrorCode); code != "" && code != "409" && code != "413" {
					t.Fatalf("-NAK: %s", code)
				}
			}
			acks = slices.DeleteFunc(acks, func(ack string) bool {
				return e.Request(ack, nil, []byte("+WPI")).Header.Get(subjects.HeaderErrorCode) == "409"
			})
		}
		for i := range n {
			m := e.Request("pq.large.pop.min", nil, nil)
			if err := bridge.ErrorFromHeaders(m.Header); err != nil || m.Data[0] != byte(i) {
				t.Fatalf("item %d: %v, %v", i, m.Header, err)
			}
		}
		consistent(t, e)
	})
}
