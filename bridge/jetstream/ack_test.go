package jetstream

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// ackInbox is where answers to acknowledgements go.
const ackInbox = "_INBOX.ack"

// askFor answers an item, and wants to know whether that counts.
func (s *system) askFor(m *leaf.Message, payload string) {
	subject, _, _ := strings.Cut(m.Reply, "@")
	s.ack(&leaf.Message{Subject: subject, Reply: ackInbox, Payload: []byte(payload)}, false)
}

// endsAcks waits until no acknowledgement or pull waits.
func (s *system) endsAcks() {
	s.t.Helper()
	eventually(s.t, "the end of all requests", func() bool { return s.requests.Load() == 0 })
}

// leased leases the next item of a queue, and returns its value.
func (s *system) leased(name string) string {
	s.t.Helper()
	return string(s.do(subjects.Priority, name, fdbpq.Op{Kind: fdbpq.OpLease, Lease: time.Minute})[0].Item.Value)
}

// Each acknowledgement of a request gets the answer that is its own.
func TestAnswersOfARequest(t *testing.T) {
	s := newSystem(t)
	s.push("jobs", "a", "b", "c", "d")
	s.pullAs(jetstream.ConsumerConfig{}, "4")
	settled, second, third, fourth := s.nextItem("a"), s.nextItem("b"), s.nextItem("c"), s.nextItem("d")
	s.askFor(settled, "+ACK")
	same(t, "the confirmation", s.sent().Subject, ackInbox)

	s.acknowledge(settled, "+ACK") // counts no more
	s.askFor(second, "+ACK")
	same(t, "after one that fails", s.sent().Subject, ackInbox)
	s.acknowledge(third, "+ACK")
	s.askFor(settled, "+ACK") // hears nothing, and what comes next does
	s.askFor(fourth, "+TERM")
	same(t, "after one that gets no answer", s.sent().Subject, ackInbox)
	s.endsAcks()
	same(t, "more answers", len(s.sender.sent), 0)
}

// A client does not hear of an acknowledgement whose transaction failed.
func TestFailedAcknowledgement(t *testing.T) {
	s := newSystem(t)
	s.requests.Add(1)
	(&settlement{s.core, ackInbox}).Fail(nil, nil, dispatch.ErrUnavailable)
	same(t, "answers", len(s.sender.sent), 0)
	s.endsAcks()
}

// A client that is at work keeps its item and its place for as long again, and is told so if it asks.
func TestAtWork(t *testing.T) {
	s := newSystem(t)
	s.push("jobs", "a", "b")
	s.pullAs(jetstream.ConsumerConfig{MaxAckPending: 1, AckWait: time.Minute}, `{"batch":2,"expires":3600000000000}`)
	m := s.nextItem("a")
	s.clock.advance(40 * time.Second)
	s.askFor(m, "+WPI")
	same(t, "the confirmation", s.sent().Subject, ackInbox)

	s.clock.advance(40 * time.Second)
	s.settles(counts{Delivered: 1, AckPending: 1, Waiting: 1})
	same(t, "what another client gets", s.leased("jobs"), "b")
}

// Pulls that wait have no more places together than their consumer.
func TestPullsShareThePlaces(t *testing.T) {
	s := newSystem(t)
	for range 3 {
		s.pullAs(jetstream.ConsumerConfig{MaxAckPending: 2, AckWait: time.Minute}, hour)
	}
	s.push("jobs", "a", "b", "c", "d")
	s.nextItem("a")
	s.nextItem("b")
	same(t, "what another client gets", s.leased("jobs"), "c")
	s.settles(counts{Delivered: 2, AckPending: 2, Waiting: 1})
}

// Without an ack_wait of the consumer, that of the queue counts.
func TestAckWaitOfTheQueue(t *testing.T) {
	s := newSystem(t)
	s.configure("jobs", func(x *fdbpq.Settings) { x.AckWait = time.Hour })
	s.push("jobs", "a", "b")
	s.pullAs(jetstream.ConsumerConfig{}, "")
	s.nextItem("a")
	s.clock.advance(59 * time.Minute)
	same(t, "what another client gets", s.leased("jobs"), "b")
}

// Items for a client that is gone go back, as not received.
func TestNobodyHears(t *testing.T) { synctest.Test(t, testNobodyHears) }

func testNobodyHears(t *testing.T) {
	returned := make(chan bool, 1)
	s := newSystem(t, func(c *Config) {
		c.Return = func(_ *dispatch.Queue, _ *fdbpq.Result, unheard bool) { returned <- unheard }
	})
	s.pullAs(jetstream.ConsumerConfig{}, hour)
	s.sender.deaf = "_INBOX."
	s.push("jobs", "a")
	same(t, "unheard", within(t, "return", returned), true)
	eventually(t, "the end of the pull", func() bool { return s.counts(jobsW).Waiting == 0 })
	_, leased := s.count("jobs")
	same(t, "leased until it is back", leased, 1)
}
