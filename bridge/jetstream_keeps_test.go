package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// What holds for items holds for those that JetStream's programs take: the rest of it is in package jetstream and
// testenv/proof. Each queue here has a test of its own.
func TestJetStreamKeeps(t *testing.T) {
	clock := newSteppedClock()
	e := newJetStreamEnv(t, testenv.Options{Bridge: clock.options})
	minOf(t, e.Conn) // which waits for the face
	js, err := jetstream.NewWithDomain(e.Conn, "pq")
	must(t, err)

	for _, c := range []struct {
		name string
		test func(t *testing.T, q *streamed)
	}{
		{"groups", testStreamedGroups},
		{"rate", testStreamedRate},
		{"pause", testStreamedPause},
		{"expiry", testStreamedExpiry},
		{"ends", testStreamedEnds},
		{"fences", testStreamedFences},
		{"stricter", testStreamedMaxDeliver},
		{"skipped", testStreamedSkipsDead},
		{"waits", testStreamedWaitsPastDead},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, &streamed{t: t, e: e, js: js, clock: clock, name: c.name}) })
	}
}

// streamed is a queue as a program for JetStream sees it.
type streamed struct {
	t     *testing.T
	e     *testenv.Env
	js    jetstream.JetStream
	clock *steppedClock
	name  string
}

// config changes the settings of the queue.
func (q *streamed) config(payload string) {
	q.t.Helper()
	ok(q.t, q.e, "pq."+q.name+".config", nil, payload)
}

// push pushes values at a priority, with pairs of headers.
func (q *streamed) push(priority int, header nats.Header, values ...string) {
	q.t.Helper()
	for _, value := range values {
		push(q.t, q.e, fmt.Sprintf("pq.%s.push.%d", q.name, priority), header, value)
	}
}

// consumer returns a consumer that the queue has.
func (q *streamed) consumer(name string) jetstream.Consumer {
	q.t.Helper()
	c, err := q.js.Consumer(q.t.Context(), q.name, name)
	must(q.t, err)
	return c
}

// create creates a consumer.
func (q *streamed) create(c jetstream.ConsumerConfig) jetstream.Consumer {
	q.t.Helper()
	c.AckPolicy = jetstream.AckExplicitPolicy
	consumer, err := q.js.CreateOrUpdateConsumer(q.t.Context(), q.name, c)
	must(q.t, err)
	return consumer
}

// fetch fetches up to five messages that are there.
func (q *streamed) fetch(c jetstream.Consumer) (all []jetstream.Msg) {
	q.t.Helper()
	batch, err := c.FetchNoWait(5)
	must(q.t, err)
	for m := range batch.Messages() {
		all = append(all, m)
	}
	must(q.t, batch.Error())
	return all
}

// takes is fetch, and compares the values.
func (q *streamed) takes(c jetstream.Consumer, want ...string) (all []jetstream.Msg) {
	q.t.Helper()
	all = q.fetch(c)
	var values []string
	for _, m := range all {
		values = append(values, string(m.Data()))
	}
	if got := strings.Join(values, " "); got != strings.Join(want, " ") {
		q.t.Fatalf("got %q, want %q", got, want)
	}
	return all
}

// waits begins to wait for a message, and returns once the bridge knows.
func (q *streamed) waits(c jetstream.Consumer) (value <-chan string) {
	q.t.Helper()
	got := make(chan string, 1)
	go func() {
		m, err := c.Next(jetstream.FetchMaxWait(testenv.Patience))
		if err != nil {
			got <- err.Error()
			return
		}
		got <- string(m.Data())
	}()
	testenv.Eventually(q.t, func() error {
		info, err := c.Info(q.t.Context())
		if err == nil && info.NumWaiting == 0 {
			err = errors.New("no pull waits")
		}
		return err
	})
	return got
}

// info returns what the queue has.
func (q *streamed) info() *subjects.QueueInfo {
	q.t.Helper()
	info, err := subjects.ParseQueueInfo(ok(q.t, q.e, "pq."+q.name+".info", nil, "").Data)
	must(q.t, err)
	return info
}

// dies returns the one dead letter of the queue.
func (q *streamed) dies() *nats.Msg {
	q.t.Helper()
	m := q.e.Request("pq."+q.name+"-dead.pop.min", nil, []byte(`{"expires":"1h"}`))
	same(q.t, "the queue of the dead letter", m.Header.Get("Pq-Dead-Queue"), q.name)
	return m
}

// A group has as many leases as it may, others go on, and an acknowledgement lets its next item go.
func testStreamedGroups(t *testing.T, q *streamed) {
	q.config(`{"max_leased_per_group":1}`)
	a, b := nats.Header{"Pq-Group": {"a"}}, nats.Header{"Pq-Group": {"b"}}
	q.push(0, a, "a1", "a2", "a3")
	q.push(0, b, "b1")
	c := q.consumer("min")
	of := map[string]jetstream.Msg{}
	for _, m := range q.fetch(c) { // whose turn is equal, so which is the first is chance
		of[m.Headers().Get("Pq-Group")+" "+string(m.Data())] = m
	}
	first, other := of["a a1"], of["b b1"]
	if len(of) != 2 || first == nil || other == nil {
		t.Fatalf("got %v", of)
	}
	q.takes(c)

	next := q.waits(c)
	must(t, first.Ack())
	same(t, "after the acknowledgement", <-next, "a2")
	next = q.waits(q.consumer("max"))
	must(t, other.DoubleAck(t.Context()))
	q.push(0, b, "b2")
	same(t, "the other group", <-next, "b2")
}

// Deliveries beyond the rate wait for tokens.
func testStreamedRate(t *testing.T, q *streamed) {
	q.config(`{"rate":"2/1m","ack_wait":"1h"}`)
	q.push(0, nil, "a", "b", "c", "d")
	c := q.consumer("min")
	q.takes(c, "a", "b")
	q.takes(c)
	q.clock.step(31 * time.Second)
	q.takes(c, "c")

	// One that waits goes on when the rate is lifted.
	next := q.waits(c)
	q.config(`{"rate":null}`)
	same(t, "without a rate", <-next, "d")
}

// A paused queue delivers nothing, says so, and goes on when the pause is lifted.
func testStreamedPause(t *testing.T, q *streamed) {
	q.push(0, nil, "a", "b")
	c := q.consumer("min")
	got := q.takes(c, "a", "b")
	must(t, got[0].Nak())
	q.config(fmt.Sprintf(`{"pause_until":%q}`, q.clock.after(time.Hour)))
	q.takes(c)
	must(t, got[1].DoubleAck(t.Context())) // what was delivered can be settled
	info, err := c.Info(t.Context())
	must(t, err)
	if !info.Paused || info.PauseRemaining != time.Hour {
		t.Errorf("paused %v for %v", info.Paused, info.PauseRemaining)
	}

	next := q.waits(c)
	q.config(`{"pause_until":null}`)
	same(t, "after the pause", <-next, "a")
}

// An item that has expired is not delivered, one that is leased when it would expire is settled as usual.
func testStreamedExpiry(t *testing.T, q *streamed) {
	q.config(`{"ack_wait":"1h"}`)
	q.push(0, nats.Header{"Nats-TTL": {"1m"}}, "a", "b")
	q.push(0, nil, "c")
	c := q.consumer("min")
	batch, err := c.FetchNoWait(1)
	must(t, err)
	a := <-batch.Messages()
	same(t, "the first", string(a.Data()), "a")
	q.clock.step(2 * time.Minute)
	q.takes(c, "c")
	must(t, a.DoubleAck(t.Context()))
	info := q.info()
	same(t, "left", fmt.Sprint(info.Ready, info.Leased, info.Delayed), "0 1 0")
}

// Consumers begin at either end.
func testStreamedEnds(t *testing.T, q *streamed) {
	high := q.create(jetstream.ConsumerConfig{Durable: "high", Metadata: map[string]string{"pq.order": "max"}})
	low := q.create(jetstream.ConsumerConfig{Durable: "low"})
	for _, priority := range []int{5, -3, 9, 0} {
		q.push(priority, nil, fmt.Sprint(priority))
	}
	for _, next := range []struct {
		c    jetstream.Consumer
		want string
	}{{high, "9"}, {low, "-3"}, {q.consumer("max"), "5"}, {q.consumer("min"), "0"}} {
		m, err := next.c.Next()
		must(t, err)
		same(t, "the next", string(m.Data()), next.want)
	}

	var listed []string
	for _, c := range q.info().Consumers {
		listed = append(listed, c.Name+" "+c.Order)
	}
	same(t, "the consumers", strings.Join(listed, ", "), "high max, low min")
}

// Acknowledgements of a delivery do nothing once the item was delivered again.
func testStreamedFences(t *testing.T, q *streamed) {
	q.push(0, nil, "a")
	c := q.create(jetstream.ConsumerConfig{Durable: "w", AckWait: time.Minute})
	first := q.takes(c, "a")[0]
	q.clock.step(2 * time.Minute)
	second := q.takes(c, "a")[0]

	for _, payload := range []string{"+ACK", "-NAK", `-NAK {"delay":1000000}`, "+WPI", "+TERM enough", ""} {
		must(t, q.e.Conn.Publish(first.Reply(), []byte(payload)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := first.DoubleAck(ctx); err == nil {
		t.Error("a late acknowledgement was confirmed")
	}
	same(t, "leased", q.info().Leased, 1)

	// -NAK, and so another delivery: the second is as late then.
	must(t, second.Nak())
	third, err := c.Next()
	must(t, err)
	must(t, q.e.Conn.Publish(second.Reply(), nil))
	must(t, third.TermWithReason("no good"))
	same(t, "how it died", q.dies().Header.Get("Pq-Dead-Reason"), "no good")

	// What has died is settled.
	must(t, q.e.Conn.Publish(third.Reply(), nil))
	must(t, q.e.Conn.FlushTimeout(testenv.Patience))
	info := q.info()
	same(t, "left", info.Ready+info.Leased+info.Delayed, 0)
}

// The max_deliver of a consumer counts if it is less than that of the queue.
func testStreamedMaxDeliver(t *testing.T, q *streamed) {
	q.config(`{"max_deliver":5}`)
	q.push(0, nil, "a")
	c := q.create(jetstream.ConsumerConfig{Durable: "w", MaxDeliver: 2})
	for range 2 {
		must(t, q.takes(c, "a")[0].Nak())
		comes(t, "the negative acknowledgement", func() bool { return q.info().Ready == 1 })
	}
	q.takes(c)
	dead := q.dies()
	same(t, "how it died", dead.Header.Get("Pq-Dead-Reason")+" "+dead.Header.Get("Pq-Dead-Deliveries"), "max_deliver 2")
}

// A pull that does not wait gets what is behind items that its consumer gives up.
func testStreamedSkipsDead(t *testing.T, q *streamed) {
	q.push(0, nil, "a", "b", "c")
	must(t, q.takes(q.consumer("min"), "a", "b", "c")[2].NakWithDelay(time.Hour))
	q.clock.step(time.Minute)
	c := q.create(jetstream.ConsumerConfig{Durable: "w", MaxDeliver: 1})
	q.push(0, nil, "d", "e", "f", "g")

	batch, err := c.FetchNoWait(2) // just as many as are given up
	must(t, err)
	var values []string
	for m := range batch.Messages() {
		values = append(values, string(m.Data()))
	}
	must(t, batch.Error())
	same(t, "got", strings.Join(values, " "), "d e")
	same(t, "dead", string(q.dies().Data)+string(q.dies().Data), "ab")
	info := q.info()
	same(t, "left", fmt.Sprint(info.Ready, info.Leased, info.Delayed), "2 2 1")
}

// One that waits gets it at once.
func testStreamedWaitsPastDead(t *testing.T, q *streamed) {
	q.push(0, nil, "a")
	q.takes(q.consumer("min"), "a")
	q.clock.step(time.Minute)
	q.push(0, nil, "b")
	c := q.create(jetstream.ConsumerConfig{Durable: "w", MaxDeliver: 1})
	m, err := c.Next(jetstream.FetchMaxWait(testenv.Patience))
	must(t, err)
	same(t, "got", string(m.Data()), "b")
	same(t, "dead", string(q.dies().Data), "a")
}
