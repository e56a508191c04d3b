package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	js, err := jetstream.NewWithDomain(nc, domain)
	must(t, err)
	c, err := js.Consumer(t.Context(), stream, name)
	must(t, err)
	return c
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

// length is how many items a queue has, wherever they are.
func (s *system) count(name string) (ready, leased int64) {
	s.t.Helper()
	info := s.do(subjects.Priority, name, fdbpq.Op{Kind: fdbpq.OpInfo})[0].Info
	return info.Ready, info.Leased
}

// eventually waits until something is so.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still missing: %s", what)
		}
	}
}

func TestClientFetches(t *testing.T) {
	s, nc := connected(t)
	s.push("jobs", "a", "b", "c")
	c := consumerOf(t, nc, "pq", "jobs", "min")

	batch, err := c.Fetch(2)
	same(t, "the first", strings.Join(values(t, batch, err), " "), "a b")
	batch, err = c.FetchNoWait(5)
	same(t, "the rest", strings.Join(values(t, batch, err), " "), "c")
	batch, err = c.FetchNoWait(5)
	same(t, "nothing", len(values(t, batch, err)), 0)
	batch, err = c.Fetch(1, jetstream.FetchMaxWait(50*time.Millisecond))
	same(t, "nothing in time", len(values(t, batch, err)), 0)
	eventually(t, "acknowledgements", func() bool { ready, leased := s.count("jobs"); return ready+leased == 0 })
}

// A pull that does not wait gets what is there, also if that takes several requests.
func TestClientFetchesMany(t *testing.T) {
	const n = maxAtOnce + 100
	s, nc := connected(t)
	js, err := jetstream.NewWithDomain(nc, "pq")
	must(t, err)
	c, err := js.CreateOrUpdateConsumer(t.Context(), "jobs", jetstream.ConsumerConfig{Durable: "w", AckPolicy: jetstream.AckExplicitPolicy})
	must(t, err)
	push := make([]fdbpq.Op, n)
	for i := range push {
		push[i] = fdbpq.Op{Kind: fdbpq.OpPush, Message: fdbpq.Message{Value: []byte("x")}}
	}
	s.do(subjects.Priority, "jobs", push...)
	batch, err := c.FetchNoWait(n)
	same(t, "messages", len(values(t, batch, err)), n)
}

// What a message says of itself.
func TestClientMetadata(t *testing.T) {
	s, nc := connected(t)
	s.push("jobs", "a", "b", "c")
	c := consumerOf(t, nc, "pq", "jobs", "min")
	for i, left := range []uint64{2, 1, 0} {
		m, err := c.Next()
		must(t, err)
		about, err := m.Metadata()
		must(t, err)
		same(t, "subject", m.Subject(), "pq.jobs.push")
		same(t, "stream", about.Stream+" "+about.Consumer+" "+about.Domain, "jobs min pq")
		same(t, "pending", about.NumPending, left)
		same(t, "deliveries", about.NumDelivered, 1)
		same(t, "number", about.Sequence.Consumer, uint64(i+1))
		if about.Sequence.Stream == 0 || time.Since(about.Timestamp).Abs() > time.Hour {
			t.Errorf("stream sequence %d at %v", about.Sequence.Stream, about.Timestamp)
		}
		must(t, m.DoubleAck(t.Context()))
	}
	ready, leased := s.count("jobs")
	same(t, "left", ready+leased, 0)
}

// A pull waits, and gets what comes later.
func TestClientWaits(t *testing.T) {
	s, nc := connected(t)
	c := consumerOf(t, nc, "pq", "jobs", "min")
	got := make(chan string)
	go func() {
		m, err := c.Next(jetstream.FetchMaxWait(patience))
		if err != nil {
			got <- err.Error()
			return
		}
		got <- string(m.Data())
	}()
	eventually(t, "a pull that waits", func() bool { return s.counts(consumerKey{stream{subjects.Priority, "jobs"}, "min"}).Waiting == 1 })
	s.push("jobs", "a")
	same(t, "the message", <-got, "a")
}

func TestClientSettles(t *testing.T) {
	s, nc := connected(t)
	c := consumerOf(t, nc, "pq", "jobs", "min")
	next := func(deliveries uint64) jetstream.Msg {
		t.Helper()
		m, err := c.Next(jetstream.FetchMaxWait(patience))
		must(t, err)
		about, err := m.Metadata()
		must(t, err)
		same(t, "deliveries of "+string(m.Data()), about.NumDelivered, deliveries)
		return m
	}

	s.push("jobs", "a")
	must(t, next(1).Nak())
	must(t, next(2).NakWithDelay(time.Hour))
	eventually(t, "the delay", func() bool {
		return s.do(subjects.Priority, "jobs", fdbpq.Op{Kind: fdbpq.OpInfo})[0].Info.Delayed == 1
	})
	s.clock.advance(2 * time.Hour)
	must(t, next(3).TermWithReason("no good"))
	eventually(t, "the dead letter", func() bool { ready, _ := s.count("jobs-dead"); return ready == 1 })
}

// withConsumer returns a system and a consumer of the queue jobs whose leases last a minute.
func withConsumer(t *testing.T) (*system, jetstream.Consumer) {
	s, nc := connected(t)
	js, err := jetstream.NewWithDomain(nc, "pq")
	must(t, err)
	c, err := js.CreateOrUpdateConsumer(t.Context(), "jobs", jetstream.ConsumerConfig{Durable: "w", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Minute})
	must(t, err)
	return s, c
}

// A lease that is over comes again, and its acknowledgement is worth nothing.
func TestClientLeaseEnds(t *testing.T) {
	s, c := withConsumer(t)
	s.push("jobs", "a")
	first, err := c.Next()
	must(t, err)
	s.clock.advance(2 * time.Minute)
	second, err := c.Next()
	must(t, err)
	same(t, "again", string(second.Data()), "a")

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := first.DoubleAck(ctx); err == nil {
		t.Error("a late acknowledgement was confirmed")
	}
	_, leased := s.count("jobs")
	same(t, "leased", leased, 1)
	must(t, second.DoubleAck(t.Context()))
}

// A client that says that it is at work keeps its item.
func TestClientInProgress(t *testing.T) {
	s, c := withConsumer(t)
	s.push("jobs", "a")
	m, err := c.Next()
	must(t, err)
	s.clock.advance(40 * time.Second)
	must(t, m.InProgress())
	_, err = c.Info(t.Context()) // arrives after that, as the pull below
	must(t, err)

	s.clock.advance(40 * time.Second)
	batch, err := c.FetchNoWait(1)
	same(t, "items while it is at work", len(values(t, batch, err)), 0)
	s.clock.advance(40 * time.Second)
	batch, err = c.FetchNoWait(1)
	same(t, "items after that", strings.Join(values(t, batch, err), " "), "a")
}

func TestClientConsumes(t *testing.T) {
	s, nc := connected(t)
	const n = 1000
	var want []string
	for i := range n {
		want = append(want, strconv.Itoa(i))
	}
	c := consumerOf(t, nc, "pq", "jobs", "min")

	var mu sync.Mutex
	var got []string
	done := make(chan struct{})
	consuming, err := c.Consume(func(m jetstream.Msg) {
		mu.Lock()
		got = append(got, string(m.Data()))
		if len(got) == n {
			close(done)
		}
		mu.Unlock()
		if err := m.Ack(); err != nil {
			t.Error(err)
		}
	}, jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) { t.Error(err) }))
	must(t, err)
	s.push("jobs", want...)
	select {
	case <-done:
	case <-time.After(patience):
		mu.Lock()
		t.Fatalf("%d of %d came: %+v", len(got), n, s.counts(consumerKey{stream{subjects.Priority, "jobs"}, "min"}))
	}
	consuming.Stop()
	<-consuming.Closed()
	if !slices.Equal(got, want) {
		t.Error("they came in another order")
	}
	eventually(t, "acknowledgements", func() bool { ready, leased := s.count("jobs"); return ready+leased == 0 })
	key := consumerKey{stream{subjects.Priority, "jobs"}, "min"}
	eventually(t, "the end of the pulls", func() bool { return s.counts(key).Waiting == 0 })
	same(t, "outstanding", s.counts(key).AckPending, 0)
}

func TestClientIterates(t *testing.T) {
	s, nc := connected(t)
	s.push("jobs", "a", "b", "c")
	c := consumerOf(t, nc, "pq", "jobs", "max")
	messages, err := c.Messages(jetstream.PullMaxMessages(1))
	must(t, err)
	defer messages.Stop()
	for _, want := range []string{"c", "b", "a"} {
		m, err := messages.Next()
		must(t, err)
		same(t, "the message", string(m.Data()), want)
		must(t, m.Ack())
	}
}

// The calls before package jetstream.
func TestClientLegacy(t *testing.T) {
	s, nc := connected(t)
	s.push("jobs", "a", "b", "c")
	js, err := nc.JetStream(nats.Domain("pq"))
	must(t, err)
	sub, err := js.PullSubscribe("pq.jobs.push", "", nats.Bind("jobs", "min"))
	must(t, err)
	all, err := sub.Fetch(2)
	must(t, err)
	same(t, "messages", len(all), 2)
	must(t, all[0].AckSync())
	must(t, all[1].Nak())
	all, err = sub.Fetch(5, nats.MaxWait(200*time.Millisecond))
	must(t, err)
	same(t, "the others", len(all), 2)
	if _, err = sub.Fetch(1, nats.MaxWait(50*time.Millisecond)); !errors.Is(err, nats.ErrTimeout) {
		t.Errorf("without any: %v", err)
	}
}

// max_ack_pending bounds what a consumer has, and an acknowledgement lets it have more.
func TestClientMaxAckPending(t *testing.T) {
	s, nc := connected(t)
	js, err := jetstream.NewWithDomain(nc, "pq")
	must(t, err)
	c, err := js.CreateOrUpdateConsumer(t.Context(), "jobs", jetstream.ConsumerConfig{Durable: "w", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 2, AckWait: time.Hour})
	must(t, err)
	s.push("jobs", "a", "b", "c", "d", "e")
	batch, err := c.Fetch(5, jetstream.FetchMaxWait(patience))
	must(t, err)
	first, second := <-batch.Messages(), <-batch.Messages()
	key := consumerKey{stream{subjects.Priority, "jobs"}, "w"}
	same(t, "outstanding", s.counts(key), counts{Delivered: 2, AckPending: 2, Waiting: 1})
	none, err := c.FetchNoWait(1)
	same(t, "beyond", len(values(t, none, err)), 0)

	must(t, first.Ack())
	third := <-batch.Messages()
	same(t, "the third", string(third.Data()), "c")
	must(t, second.Nak())
	again := <-batch.Messages()
	same(t, "again", string(again.Data()), "b")
	for _, m := range []jetstream.Msg{third, again} {
		must(t, m.Ack())
	}
	same(t, "the last", string((<-batch.Messages()).Data()), "d")
}

// A client that is gone gets no more, and what it has not received comes at once to others.
func TestClientGone(t *testing.T) {
	s, nc := connected(t)
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	must(t, err)
	must(t, nc.PublishRequest("$JS.pq.API.CONSUMER.MSG.NEXT.jobs.min", inbox, []byte(`{"batch":5,"expires":60000000000}`)))
	key := consumerKey{stream{subjects.Priority, "jobs"}, "min"}
	eventually(t, "a pull", func() bool { return s.counts(key).Waiting == 1 })
	must(t, sub.Unsubscribe())
	eventually(t, "its end", func() bool { return s.counts(key).Waiting == 0 })
	s.push("jobs", "a")
	m, err := consumerOf(t, nc, "pq", "jobs", "min").Next()
	must(t, err)
	about, err := m.Metadata()
	must(t, err)
	same(t, "deliveries", fmt.Sprint(string(m.Data()), about.NumDelivered), "a1")
}

// The next message comes with the acknowledgement of the one before.
func TestClientAckNext(t *testing.T) {
	s, nc := connected(t)
	s.push("jobs", "a", "b")
	m, err := consumerOf(t, nc, "pq", "jobs", "min").Next()
	must(t, err)
	next, err := nc.Request(m.Reply(), []byte(`+NXT {"batch":1,"expires":5000000000}`), patience)
	must(t, err)
	same(t, "the next", string(next.Data), "b")
	_, leased := s.count("jobs")
	same(t, "leased", leased, 1)
	last, err := nc.Request(next.Reply, []byte(`+NXT {"no_wait":true}`), patience)
	must(t, err)
	same(t, "the end", last.Header.Get("Status"), "404")
}

// A FIFO queue is a stream of its own domain.
func TestClientFIFO(t *testing.T) {
	s, nc := connected(t)
	s.do(subjects.FIFO, "mail", fdbpq.Op{Kind: fdbpq.OpPush, Message: fdbpq.Message{Value: []byte("a")}})
	m, err := consumerOf(t, nc, "q", "mail", "min").Next()
	must(t, err)
	same(t, "the subject", m.Subject(), "q.mail.enqueue")
	must(t, m.DoubleAck(t.Context()))
}

// When the bridge stops, those who wait are told.
func TestClientStop(t *testing.T) {
	s, nc := connected(t)
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	must(t, err)
	must(t, nc.PublishRequest("$JS.pq.API.CONSUMER.MSG.NEXT.jobs.min", inbox, []byte(`{"batch":5,"expires":60000000000}`)))
	eventually(t, "a pull", func() bool { return s.counts(consumerKey{stream{subjects.Priority, "jobs"}, "min"}).Waiting == 1 })
	must(t, s.Stop(t.Context()))
	m, err := sub.NextMsg(patience)
	must(t, err)
	same(t, "the status", m.Header.Get("Status")+" "+m.Header.Get("Description"), "409 Server Shutdown")
}
