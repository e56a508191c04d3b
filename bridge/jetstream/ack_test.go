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

// acknowledgeWithReply acknowledges an item, and has the answer sent to ackInbox.
func (s *system) acknowledgeWithReply(m *leaf.Message, payload string) {
	subject, _, _ := strings.Cut(m.Reply, "@")
	s.ack(&leaf.Message{Subject: subject, Reply: ackInbox, Payload: []byte(payload)}, false)
}

// waitForRequests waits until no acknowledgement or pull waits.
func (s *system) waitForRequests() {
	s.t.Helper()
	eventually(s.t, "the end of all requests", func() bool { return s.requests.Load() == 0 })
}

// leaseOne leases the next item of a queue, and returns its value.
func (s *system) leaseOne(name string) string {
	s.t.Helper()
	return string(s.do(subjects.Priority, name,
		fdbpq.Op{Kind: fdbpq.OpLease, Lease: time.Minute})[0].Item.Value)
}

// Each acknowledgement that asks for it gets a confirmation, also after others that fail or do not
// ask. One that fails gets none.
func TestAnswersOfARequest(t *testing.T) {
	s := newSystem(t)
	s.push("jobs", "a", "b", "c", "d")
	s.pullAs(jetstream.ConsumerConfig{}, "4")
	settled := s.nextItem("a")
	second := s.nextItem("b")
	third := s.nextItem("c")
	fourth := s.nextItem("d")
	s.acknowledgeWithReply(settled, "+ACK")

	same(t, "the confirmation", s.sent().Subject, ackInbox)

	s.acknowledge(settled, "+ACK") // counts no more
	s.acknowledgeWithReply(second, "+ACK")
	same(t, "after one that fails", s.sent().Subject, ackInbox)

	s.acknowledge(third, "+ACK")
	s.acknowledgeWithReply(settled, "+ACK") // hears nothing, and what comes next does
	s.acknowledgeWithReply(fourth, "+TERM")

	same(t, "after one that gets no answer", s.sent().Subject, ackInbox)

	s.waitForRequests()
	same(t, "more answers", len(s.sender.sent), 0)
}

// A client does not hear of an acknowledgement whose transaction failed.
func TestFailedAcknowledgement(t *testing.T) {
	s := newSystem(t)
	s.requests.Add(1)
	(&settlement{s.core, ackInbox}).Fail(nil, nil, dispatch.ErrUnavailable)

	same(t, "answers", len(s.sender.sent), 0)

	s.waitForRequests()
}

// An acknowledgement in the header is dropped, whatever its payload is: the payload is a result.
func TestAcknowledgementInTheHeader(t *testing.T) {
	s := newSystem(t)
	s.push("jobs", "a")
	s.pullAs(jetstream.ConsumerConfig{AckWait: time.Minute}, "")
	m := s.nextItem("a")
	subject, _, _ := strings.Cut(m.Reply, "@")

	for _, header := range []string{"Pq-Ack: +ACK", "A: b\r\npq-ack:-NAK", "Pq-Ack:"} {
		for _, payload := range []string{"", "+ACK", "-NAK", "+TERM"} {
			s.receive(&leaf.Message{
				Subject: subject, Reply: ackInbox, Payload: []byte(payload),
				Header: []byte("NATS/1.0\r\n" + header + "\r\n\r\n"),
			})
		}
	}
	s.receive(&leaf.Message{
		Subject: subject, Reply: ackInbox, Payload: []byte("+WPI"),
		Header: []byte("NATS/1.0\r\nX: Pq-Ack: +ACK\r\n\r\n"),
	})

	same(t, "the confirmation of the last", s.sent().Subject, ackInbox)
	s.waitForRequests()
	same(t, "more answers", len(s.sender.sent), 0)
	ready, leased := s.count("jobs")
	same(t, "leased", leased, 1)
	same(t, "ready", ready, 0)
}

// After +WPI, a client keeps its item and its place for as long again, and is told so if it asks.
func TestAtWork(t *testing.T) {
	s := newSystem(t)
	s.push("jobs", "a", "b")
	s.pullAs(jetstream.ConsumerConfig{MaxAckPending: 1, AckWait: time.Minute},
		batchForAnHour(2))
	m := s.nextItem("a")
	s.clock.advance(40 * time.Second)
	s.acknowledgeWithReply(m, "+WPI")

	same(t, "the confirmation", s.sent().Subject, ackInbox)

	s.clock.advance(40 * time.Second)
	s.waitOutstanding(counts{Delivered: 1, AckPending: 1, Waiting: 1})
	same(t, "what another client gets", s.leaseOne("jobs"), "b")
}

// Pulls of one consumer that wait get no more items together than max_ack_pending. The next item
// is free for others.
func TestPullsShareThePlaces(t *testing.T) {
	s := newSystem(t)
	for range 3 {
		s.pullAs(jetstream.ConsumerConfig{MaxAckPending: 2, AckWait: time.Minute}, pullForAnHour)
	}

	s.push("jobs", "a", "b", "c", "d")
	s.nextItem("a")
	s.nextItem("b")

	same(t, "what another client gets", s.leaseOne("jobs"), "c")

	s.waitOutstanding(counts{Delivered: 2, AckPending: 2, Waiting: 1})
}

// A consumer without an ack_wait of its own uses the queue's.
func TestAckWaitOfTheQueue(t *testing.T) {
	s := newSystem(t)
	s.configure("jobs", func(x *fdbpq.Settings) { x.AckWait = time.Hour })
	s.push("jobs", "a", "b")
	s.pullAs(jetstream.ConsumerConfig{}, "")
	s.nextItem("a")
	s.clock.advance(59 * time.Minute)

	same(t, "what another client gets", s.leaseOne("jobs"), "b")
}

// An item for an inbox without a listener is returned as not received, and its pull ends.
func TestNobodyHears(t *testing.T) { synctest.Test(t, testNobodyHears) }

func testNobodyHears(t *testing.T) {
	returned := make(chan bool, 1)
	s := newSystem(t, func(c *Config) {
		c.Return = func(_ *dispatch.Queue, _ *fdbpq.Result, unheard bool) { returned <- unheard }
	})
	s.pullAs(jetstream.ConsumerConfig{}, pullForAnHour)
	s.sender.deaf.Store(new("_INBOX."))
	s.push("jobs", "a")

	same(t, "unheard", within(t, "return", returned), true)
	eventually(t, "the end of the pull", func() bool { return s.counts(jobsW).Waiting == 0 })

	_, leased := s.count("jobs")
	same(t, "leased until it is back", leased, 1)
}
