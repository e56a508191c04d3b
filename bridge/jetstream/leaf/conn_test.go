package leaf_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
	"github.com/pqbridge/pqbridge/testenv"
)

// A client gets an item as if JetStream had sent it: with the subject that is behind the @ of the
// reply, with metadata, and with a reply subject on which it can acknowledge.
func TestAcknowledgementSubject(t *testing.T) {
	h := newHub(t, "", "")
	r := run(t, h.leafURL(), func(c *leaf.Config) {
		c.Subjects = []leaf.Subscription{{Subject: "$JS.ACK.pq.>", Queue: "face"}}
	})
	r.waitConnected()
	nc := h.client()
	inbox := subscribe(t, nc, "_INBOX.a")
	r.waitInterest("_INBOX.a", true)

	const ack = "$JS.ACK.pq.hash.jobs.w.1.7.3.99.0.token" // with the stream sequence 7
	header := []byte("NATS/1.0\r\nPq-Priority: 5\r\n\r\n")

	r.publish(&leaf.Message{
		Subject: "_INBOX.a",
		Reply:   ack + "@pq.jobs.push",
		Header:  header,
		Payload: []byte("item"),
	})

	m := nextMsg(t, inbox)
	if m.Subject != "pq.jobs.push" || m.Reply != ack || string(m.Data) != "item" ||
		m.Header.Get("Pq-Priority") != "5" {
		t.Fatalf("received %+v", m)
	}

	if metadata, err := m.Metadata(); err != nil || metadata.Domain != "pq" ||
		metadata.Stream != "jobs" || metadata.Sequence.Stream != 7 {
		t.Errorf("%+v, %v", metadata, err)
	}

	must(t, m.Nak())
	if got := next(t, r.received); got.Subject != ack || string(got.Payload) != "-NAK" {
		t.Errorf("received %+v", got)
	}
}

// Requests with and without headers, replies and payloads of all sizes arrive whole.
func TestMessages(t *testing.T) {
	h := newHub(t, "max_payload: 4MB", "")
	r := run(t, h.leafURL(),
		func(c *leaf.Config) { c.Subjects = []leaf.Subscription{{Subject: "a.>"}} })
	r.waitConnected()
	nc := h.client()

	if r.MaxPayload() != 4<<20 {
		t.Errorf("max_payload is %d", r.MaxPayload())
	}

	for i, size := range []int{0, 1, 4095, 70_000, 3 << 20} {
		for _, withHeader := range []bool{false, true} {
			m := &nats.Msg{Subject: fmt.Sprintf("a.%d", i), Data: bytes.Repeat([]byte("x"), size)}
			if withHeader {
				m.Header, m.Reply = nats.Header{"A": {"b"}}, "_INBOX.x"
			}
			must(t, nc.PublishMsg(m))

			got := next(t, r.received)
			if got.Subject != m.Subject || got.Reply != m.Reply ||
				!bytes.Equal(got.Payload, m.Data) {
				t.Fatalf("received %s, reply %q, with %d bytes instead of %d", got.Subject,
					got.Reply, len(got.Payload), size)
			}

			want := "NATS/1.0\r\nA: b\r\n\r\n"
			if withHeader && string(got.Header) != want || !withHeader && got.Header != nil {
				t.Fatalf("header %q", got.Header)
			}
		}
	}
	if n := len(r.states); n > 0 {
		t.Errorf("%d changes of the connection", n)
	}
}

// A message that cannot be sent is refused here, and the connection goes on.
func TestPublishRefuses(t *testing.T) {
	h := newHub(t, "max_payload: 1000", "")
	r := run(t, h.leafURL(), nil)
	r.waitConnected()

	header := []byte("NATS/1.0\r\n\r\n")
	for _, m := range []leaf.Message{
		{},
		{Subject: "a b"},
		{Subject: "a\r\nPING"},
		{Subject: "a..b"},
		{Subject: ".a"},
		{Subject: "a.*"},
		{Subject: ">"},
		{Subject: "a", Reply: "b c"},
		{Subject: "a", Reply: "b\n"},
		{Subject: "a", Header: []byte("A: b\r\n\r\n")},
		{Subject: "a", Header: []byte("NATS/1.0\r\n")},
	} {
		if err := r.Publish(&m); !errors.Is(err, leaf.ErrInvalid) {
			t.Errorf("%+v: %v", m, err)
		}
	}

	const most = 1000 // with the header
	for _, size := range []int{most - 1, most + 1 - len(header)} {
		err := r.Publish(&leaf.Message{Subject: "a", Header: header, Payload: make([]byte, size)})
		if !errors.Is(err, leaf.ErrTooLarge) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}

	r.publish(&leaf.Message{Subject: "a", Header: header, Payload: make([]byte, most-len(header))})
	r.flush()
	if n := len(r.states); n > 0 {
		t.Errorf("%d changes of the connection", n)
	}
}

// Each request reaches one of three connections in a queue group.
func TestQueueGroup(t *testing.T) {
	h := newHub(t, "", "")
	var all []*running

	for range 3 {
		r := run(t, h.leafURL(), func(c *leaf.Config) {
			c.Subjects = []leaf.Subscription{{Subject: "api.>", Queue: "face"}}
		})
		r.waitConnected()
		all = append(all, r)
	}

	nc := h.client()
	const requests = 300

	for i := range requests {
		must(t, nc.Publish(fmt.Sprintf("api.%d", i), nil))
	}

	flushClient(t, nc)

	seen := make(map[string]bool)
	for _, r := range all {
		r.flush() // the answer comes after all requests
		if len(r.received) == 0 {
			t.Error("a connection got nothing")
		}

		for len(r.received) > 0 {
			m := <-r.received
			if seen[m.Subject] {
				t.Errorf("%s came twice", m.Subject)
			}

			seen[m.Subject] = true
		}
	}
	if len(seen) != requests {
		t.Errorf("%d requests of %d came", len(seen), requests)
	}
}

// Subscriptions in a queue group are no interest.
func TestNoInterestOfQueueGroups(t *testing.T) {
	h := newHub(t, "", "")
	r := run(t, h.leafURL(), nil)
	r.waitConnected()
	nc := h.client()
	_, err := nc.QueueSubscribeSync("_INBOX.a", "one")
	must(t, err)

	subscribe(t, nc, "last")
	r.waitInterest("last", true)
	if r.HasInterest("_INBOX.a") {
		t.Error("a queue group counts")
	}
}

// Drain receives all messages sent before it. After it nothing more comes, not even with the next
// connection: requests have no responders.
func TestDrain(t *testing.T) {
	h := newHub(t, "", "")
	r := run(t, h.leafURL(), func(c *leaf.Config) {
		c.Subjects = []leaf.Subscription{{Subject: "a.>"}, {Subject: "b.>", Queue: "q"}}
	})
	r.waitConnected()
	nc := h.client()

	for _, subject := range []string{"a.1", "b.1"} {
		must(t, nc.Publish(subject, nil))
	}

	flushClient(t, nc)
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience)
	defer cancel()
	must(t, r.Drain(ctx))

	if len(r.received) != 2 {
		t.Errorf("%d messages instead of 2", len(r.received))
	}

	wantNoResponders := func(nc *nats.Conn) {
		t.Helper()
		for _, subject := range []string{"a.1", "b.1"} {
			_, err := nc.Request(subject, nil, testenv.Patience)
			if !errors.Is(err, nats.ErrNoResponders) {
				t.Errorf("%s: %v", subject, err)
			}
		}
	}
	wantNoResponders(nc)

	h.stop()
	if err := r.Drain(ctx); err != nil && !errors.Is(err, leaf.ErrOffline) {
		t.Error(err)
	}

	h.start()
	r.waitConnected()
	wantNoResponders(h.client())
}

// Interest in a subject may be older than the connection, and lasts until the last client that
// subscribed to it unsubscribes or dies, which InterestGone tells.
func TestInterest(t *testing.T) {
	h := newHub(t, "", "")
	early := h.client()
	subscribe(t, early, "early.*")
	r := run(t, h.leafURL(), nil)
	r.waitConnected()

	if !r.HasInterest("early.a") || r.HasInterest("early") || r.HasInterest("early.a.b") {
		t.Error("what was subscribed before is not known once connected")
	}

	nc, other := h.client(), h.client()
	inbox, wildcard := subscribe(t, nc, "_INBOX.a"), subscribe(t, nc, "_INBOX.*")
	subscribe(t, other, "_INBOX.a")
	subscribe(t, other, "_INBOX.b")
	flushClient(t, other)
	r.waitInterest("_INBOX.b", true)

	// Only the last one who leaves counts.
	for _, sub := range []*nats.Subscription{inbox, wildcard} {
		must(t, sub.Unsubscribe())
	}

	flushClient(t, nc)
	r.waitInterest("_INBOX.c", false)
	if !r.HasInterest("_INBOX.a") || len(r.gone) > 0 {
		t.Error("interest was lost too early")
	}

	other.Close() // a client that dies
	gone := map[string]bool{next(t, r.gone): true, next(t, r.gone): true}
	if !gone["_INBOX.a"] || !gone["_INBOX.b"] || r.HasInterest("_INBOX.a") ||
		r.HasInterest("_INBOX.b") {
		t.Errorf("gone are %v", gone)
	}
}
