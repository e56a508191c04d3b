package requests

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/peers"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// A pop of many items takes no more memory than one of a single item until its turn comes.
func TestSizeOfAPopOfSeveral(t *testing.T) {
	h := newTestHandler(t)

	var before int64
	for _, payload := range []string{
		"", `{"batch":1}`, `{"batch":1000}`, `{"batch":1000,"expires":"1h"}`,
	} {
		pop := &nats.Msg{Subject: "pq.jobs.pop.min", Reply: "inbox", Data: []byte(payload)}

		h.Receive(pop, peers.Origin{})

		_, after := h.config.Dispatcher.Pending()
		if size := after - before; size > int64(len(payload)) {
			t.Errorf("%q counts as %d bytes", payload, size)
		}

		before = after
	}
}

// A request for an outcome waits for as long as it says, even if it may have been in the socket.
func TestLateRequestWaitsForOutcome(t *testing.T) {
	began := time.Now()
	q := request{h: newTestHandler(t), received: began.Add(-time.Second)}
	q.parsed = subjects.Request{Kind: subjects.Priority, Queue: "jobs"}

	must(t, q.decodeResult([]byte(`{"msg_id":"a","expires":"5s"}`)))
	if least := began.Add(5 * time.Second); q.wait.Until.Before(least) {
		t.Errorf("it waits %v too briefly", least.Sub(q.wait.Until))
	}
}

// Each verb of the grammar has a row whose fields fit together.
func TestVerbs(t *testing.T) {
	for _, e := range (subjects.Grammar{}).Endpoints() {
		if int(e.Verb) >= len(verbs) {
			t.Fatalf("%s has no row", e.Verb)
		}

		row := verbs[e.Verb]
		if (row.op == 0) != row.inspected {
			t.Errorf("%s: the row has no operation, or one that is not used", e.Verb)
		}
		if e.Kind == subjects.FIFO && row.end != fdbpq.Front {
			t.Errorf("%s: a FIFO queue has no end other than its front", e.Verb)
		}
	}
}
