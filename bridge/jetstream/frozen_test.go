package jetstream

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// Calls and pulls that a face finds in its socket after it stood still are refused, because their
// clients have given up. A pull that may still wait gets its item.
func TestOldRequests(t *testing.T) {
	s := newSystem(t)
	s.push("jobs", "stays")

	receive := func(call, payload string) {
		s.receive(&leaf.Message{
			Subject: "$JS.pq.API." + call,
			Reply:   nats.NewInbox(),
			Payload: []byte(payload),
			Waited:  patience,
		})
	}

	receive("STREAM.PURGE.jobs", "")
	if m := s.sent(); !strings.Contains(string(m.Payload), `"err_code":10008`) {
		t.Errorf("an old purge got %s", m.Payload)
	}

	for _, pull := range []string{`{"no_wait":true}`, `{"expires":1000000000}`} {
		receive("CONSUMER.MSG.NEXT.jobs.min", pull)
		s.nextStatus("408 Request Timeout")
	}

	same(t, "items", s.do(subjects.Priority, "jobs", fdbpq.Op{Kind: fdbpq.OpLen})[0].Len, 1)

	receive("CONSUMER.MSG.NEXT.jobs.min", pullForAnHour)
	same(t, "item", string(s.sent().Payload), "stays")
}
