package jetstream

import (
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
)

// Requests are kept while they wait, so large ones are refused before that, whatever they say.
func TestLargeRequests(t *testing.T) {
	s := newSystem(t)
	s.fails("pq.API.STREAM.INFO.jobs", strings.Repeat(" ", maxCall+1), errJSON, "bytes")

	s.succeeds("pq.API.STREAM.INFO.jobs", strings.Repeat(" ", maxCall))

	s.running.Wait() // the calls so far
	for range maxTasks {
		s.slots <- struct{}{} // so that a pull that waits goes on waiting
	}

	large := []byte(`{"no_wait":true,"group":"` + strings.Repeat("x", maxPull) + `"}`)
	for _, consumer := range []string{"min", "unknown"} {
		s.receive(&leaf.Message{
			Subject: "$JS.pq.API.CONSUMER.MSG.NEXT.jobs." + consumer,
			Reply:   "_INBOX.x",
			Payload: large,
		})

		m := s.sent()
		status, _, _ := strings.Cut(string(m.Header), "\r\n")
		if !strings.HasPrefix(status, "NATS/1.0 400 Bad Request") {
			t.Errorf("a large pull of %s got %q", consumer, status)
		}
	}

	s.mu.Lock()
	same(t, "pulls that wait for their consumer", s.mu.pending, 0)

	s.mu.Unlock()
	for range maxTasks {
		<-s.slots
	}
}

// A request that waits keeps no headers, which may be as large as a message can be.
func TestLargeHeaders(t *testing.T) {
	s := newSystem(t)
	for range maxTasks {
		s.slots <- struct{}{} // so the consumer is not read yet
	}

	body := make([]byte, 1<<20)
	header := len(body) - 1
	body[header] = '1'

	m := &leaf.Message{
		Subject: "$JS.pq.API.CONSUMER.MSG.NEXT.jobs.w",
		Reply:   "_INBOX.x",
		Header:  body[:header:header],
		Payload: body[header:],
	}

	s.receive(m)
	if len(m.Header) > 0 || &m.Payload[0] == &body[header] {
		t.Error("the headers of a pull that waits stay in memory")
	}

	for range maxTasks {
		<-s.slots
	}

	s.nextStatus("503")
}
