package jetstream

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// Requests are kept while they wait, so large ones are refused before that, whatever they say.
func TestLargeRequests(t *testing.T) {
	s := newSystem(t)
	s.fails("pq.API.STREAM.INFO.jobs", strings.Repeat(" ", maxCall+1), errJSON, "bytes")
	s.succeeds("pq.API.STREAM.INFO.jobs", strings.Repeat(" ", maxCall))

	large := []byte(`{"no_wait":true,"group":"` + strings.Repeat("x", maxPull) + `"}`)
	for _, consumer := range []string{"min", "unknown"} {
		s.receive(&leaf.Message{Subject: "$JS.pq.API.CONSUMER.MSG.NEXT.jobs." + consumer, Reply: "_INBOX.x", Payload: large})
		m := s.sent()
		if status, _, _ := strings.Cut(string(m.Header), "\r\n"); !strings.HasPrefix(status, "NATS/1.0 400 Bad Request") {
			t.Errorf("a large pull of %s got %q", consumer, status)
		}
	}
	s.cache.Lock()
	waiting := s.cache.waiting
	s.cache.Unlock()
	same(t, "pulls that wait for their consumer", waiting, 0)
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
	s.receive(&leaf.Message{Subject: "$JS.pq.API.CONSUMER.MSG.NEXT.jobs.w", Reply: "_INBOX.x", Header: body[:header:header], Payload: body[header:]})

	s.cache.Lock()
	m := s.cache.streams[jobsW.stream].pulls[0].message
	s.cache.Unlock()
	if len(m.Header) > 0 || &m.Payload[0] == &body[header] {
		t.Error("the headers of a pull that waits stay in memory")
	}
	for range maxTasks {
		<-s.slots
	}
	s.nextStatus("503")
}

// However many pulls there are, of many consumers and of one inbox, one more costs no more than
// another, and each ends at once, in any order. Nightly there are so many that a search for each
// would take too long.
func TestManyPulls(t *testing.T) {
	n := harness.Times(1000, 100_000)
	s := newSystem(t)
	began := time.Now()
	for i := range n {
		c := worker(jetstream.ConsumerConfig{})
		c.name = strconv.Itoa(i)
		s.pull(c, &leaf.Message{Reply: "_INBOX.x", Payload: []byte(hour)})
	}
	s.interestGone("_INBOX.x")
	eventually(t, "the end of all", func() bool {
		s.pulls.mu.Lock()
		defer s.pulls.mu.Unlock()
		return len(s.inboxes) == 0
	})
	if took := time.Since(began); took > patience {
		t.Errorf("it took %v", took)
	}
}
