package jetstream

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

// This file has what unmodified clients do, over a server.

// consumerOf returns a consumer as nats.go's package jetstream has it.
func consumerOf(t testing.TB, nc *nats.Conn, domain, stream, name string) jetstream.Consumer {
	t.Helper()
	js, err := jetstream.NewWithDomain(nc, domain, jetstream.WithDefaultTimeout(patience))
	must(t, err)
	c, err := js.Consumer(t.Context(), stream, name)
	must(t, err)

	return c
}

// patiently has a fetch go on while the bridge is slow: by default it fails when not even a
// heartbeat has come for ten seconds.
var patiently = []jetstream.FetchOpt{
	jetstream.FetchMaxWait(patience), jetstream.FetchHeartbeat(patience / 2),
}

// values returns the values of a batch, and fails if it has an error.
func values(t testing.TB, batch jetstream.MessageBatch, err error) (all []string) {
	t.Helper()
	must(t, err)
	for m := range batch.Messages() {
		all = append(all, string(m.Data()))
		must(t, m.Ack())
	}
	must(t, batch.Error())

	return all
}

// count returns how many items a queue has.
func (s *system) count(name string) (ready, leased int64) {
	s.t.Helper()
	info := s.do(subjects.Priority, name, fdbpq.Op{Kind: fdbpq.OpInfo})[0].Info
	return info.Ready, info.Leased
}

// A client fetches items in order, and a fetch of an empty queue ends without any.
func TestClientFetches(t *testing.T) {
	s, nc := connected(t)
	s.push("jobs", "a", "b", "c")
	c := consumerOf(t, nc, "pq", "jobs", "min")

	batch, err := c.Fetch(2, patiently...)
	same(t, "the first", strings.Join(values(t, batch, err), " "), "a b")
	eventually(t, "their acknowledgements",
		func() bool { _, leased := s.count("jobs"); return leased == 0 })

	var rest string
	eventually(t, "the rest", func() bool {
		batch, err = c.FetchNoWait(5) // gives up after a second
		if rest = strings.Join(values(t, batch, err), " "); rest == "" {
			s.clock.advance(time.Hour) // what came too late for it comes again
		}

		return rest != ""
	})
	same(t, "the rest", rest, "c")

	batch, err = c.FetchNoWait(5)
	same(t, "nothing", len(values(t, batch, err)), 0)

	batch, err = c.Fetch(1, jetstream.FetchMaxWait(50*time.Millisecond))
	same(t, "nothing in time", len(values(t, batch, err)), 0)
	eventually(t, "acknowledgements",
		func() bool { ready, leased := s.count("jobs"); return ready+leased == 0 })
}

// The metadata of a message say where it comes from, how often it was delivered, and how many are
// left.
func TestClientMetadata(t *testing.T) {
	s, nc := connected(t)
	s.push("jobs", "a", "b", "c")
	c := consumerOf(t, nc, "pq", "jobs", "min")

	for i := range uint64(3) {
		m, err := c.Next(patiently...)
		must(t, err)
		about, err := m.Metadata()
		must(t, err)

		same(t, "subject", m.Subject(), "pq.jobs.push")
		if about.Sequence.Stream == 0 || time.Since(about.Timestamp).Abs() > time.Hour {
			t.Errorf("stream sequence %d at %v", about.Sequence.Stream, about.Timestamp)
		}

		about.Sequence.Stream, about.Timestamp = 0, time.Time{}
		same(t, "metadata", *about, jetstream.MsgMetadata{
			Sequence:     jetstream.SequencePair{Consumer: i + 1},
			NumDelivered: 1,
			NumPending:   2 - i,
			Stream:       "jobs",
			Consumer:     "min",
			Domain:       "pq",
		})
		must(t, m.DoubleAck(t.Context()))
	}

	ready, leased := s.count("jobs")
	same(t, "left", ready+leased, 0)
}

// A client that consumes gets all items in order, and leaves nothing behind when it stops.
func TestClientConsumes(t *testing.T) {
	s, nc := connected(t)
	const n = 1000
	var want []string

	for i := range n {
		want = append(want, strconv.Itoa(i))
	}

	c := consumerOf(t, nc, "pq", "jobs", "min")

	got := make(chan string, n)
	consuming, err := c.Consume(func(m jetstream.Msg) {
		got <- string(m.Data())
		if err := m.Ack(); err != nil {
			t.Error(err)
		}
	}, jetstream.PullExpiry(patience), jetstream.PullHeartbeat(patience/4),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) { t.Error(err) }))
	must(t, err)

	eventually(t, "a pull that waits", func() bool { return s.counts(jobsMin).Waiting == 1 })

	s.push("jobs", want...)
	for i := range n {
		if value := within(t, fmt.Sprint("item ", i), got); value != want[i] {
			t.Fatalf("%s came as item %d", value, i)
		}
	}

	consuming.Stop()
	<-consuming.Closed()
	eventually(t, "acknowledgements",
		func() bool { ready, leased := s.count("jobs"); return ready+leased == 0 })
	eventually(t, "the end of the pulls", func() bool { return s.counts(jobsMin).Waiting == 0 })
	eventually(t, "no places", func() bool { return s.counts(jobsMin).AckPending == 0 })
}

// The client's older interface finds the stream by its subject, creates, uses and deletes a
// consumer, or binds to one that is there. A push consumer is refused.
func TestClientLegacy(t *testing.T) {
	s, nc := connected(t)
	s.push("jobs", "a", "b", "c")
	js, err := nc.JetStream(nats.Domain("pq"), nats.MaxWait(patience))
	must(t, err)

	sub, err := js.PullSubscribe("pq.jobs.push", "legacy")
	must(t, err)
	all, err := sub.Fetch(2)
	must(t, err)

	same(t, "messages", len(all), 2)
	must(t, all[0].AckSync())
	must(t, all[1].Nak())

	all, err = sub.Fetch(2, nats.MaxWait(patience))
	must(t, err)
	same(t, "the rest, and the one given back", len(all), 2)
	must(t, sub.Unsubscribe()) // deletes what it has created

	if _, err := js.ConsumerInfo("jobs", "legacy"); !errors.Is(err, nats.ErrConsumerNotFound) {
		t.Errorf("a deleted consumer: got %v", err)
	}

	sub, err = js.PullSubscribe("pq.jobs.push", "min")
	must(t, err)
	must(t, sub.Unsubscribe())

	if _, err := js.Subscribe("pq.jobs.push", func(*nats.Msg) {}); err == nil {
		t.Error("a push consumer: no error")
	}
}

// A client that is gone gets no more, and what it has not received comes at once to others.
func TestClientGone(t *testing.T) {
	s, nc := connected(t)
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	must(t, err)
	pull := []byte(pullForAMinute)
	must(t, nc.PublishRequest("$JS.pq.API.CONSUMER.MSG.NEXT.jobs.min", inbox, pull))

	eventually(t, "a pull", func() bool { return s.counts(jobsMin).Waiting == 1 })
	must(t, sub.Unsubscribe())
	eventually(t, "its end", func() bool { return s.counts(jobsMin).Waiting == 0 })

	s.push("jobs", "a")
	m, err := consumerOf(t, nc, "pq", "jobs", "min").Next(patiently...)
	must(t, err)

	about, err := m.Metadata()
	must(t, err)
	same(t, "deliveries", fmt.Sprint(string(m.Data()), about.NumDelivered), "a1")
}

// The reply to +NXT is the next message, or 404 if there is none. It acknowledges the one before.
func TestClientAckNext(t *testing.T) {
	s, nc := connected(t)
	s.push("jobs", "a", "b")
	m, err := consumerOf(t, nc, "pq", "jobs", "max").Next(patiently...)
	must(t, err)

	same(t, "the last", string(m.Data()), "b")

	next, err := nc.Request(m.Reply(), []byte(`+NXT {"batch":1,"expires":60000000000}`), patience)
	must(t, err)
	same(t, "the next", string(next.Data), "a")

	_, leased := s.count("jobs")
	same(t, "leased", leased, 1)
	eventually(t, "the end", func() bool {
		last, err := nc.Request(next.Reply, []byte(`+NXT {"no_wait":true}`), patience)
		must(t, err)
		same(t, "more", string(last.Data), "")
		return last.Header.Get("Status") == "404" // a busy bridge answers 409
	})
}

// A FIFO queue is a stream of its own domain.
func TestClientFIFO(t *testing.T) {
	s, nc := connected(t)
	s.do(subjects.FIFO, "mail",
		fdbpq.Op{Kind: fdbpq.OpPush, Message: fdbpq.Message{Value: []byte("a")}})
	m, err := consumerOf(t, nc, "q", "mail", "min").Next(patiently...)
	must(t, err)

	same(t, "the subject", m.Subject(), "q.mail.push")
	must(t, m.DoubleAck(t.Context()))
}
