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
	late := &nats.Msg{Data: []byte(`{"msg_id":"a","expires":"5s"}`)}
	q := newRequest(newTestHandler(t), subjects.Request{Verb: subjects.Result, Queue: "jobs"}, late)
	q.Received = began.Add(-time.Second)

	must(t, q.decode(late))
	if least := began.Add(5 * time.Second); q.Wait.Until.Before(least) {
		t.Errorf("it waits %v too briefly", least.Sub(q.Wait.Until))
	}
}

// Each verb of the grammar has a row whose fields fit together.
func TestVerbs(t *testing.T) {
	for _, e := range (subjects.Grammar{}).Endpoints() {
		if int(e.Verb) >= len(verbs) {
			t.Fatalf("%s has no row", e.Verb)
		}

		row := verbs[e.Verb]
		if takes := e.Verb.MostPayload() > 0; takes && row.decode == nil {
			t.Errorf("%s: nothing reads its payload", e.Verb)
		}
		if row.op == 0 && row.decode == nil {
			t.Errorf("%s: there is neither an operation nor a decoder, which could ask", e.Verb)
		}
		if e.Kind == subjects.FIFO && row.end != fdbpq.Front {
			t.Errorf("%s: a FIFO queue has no end other than its front", e.Verb)
		}
	}
}
