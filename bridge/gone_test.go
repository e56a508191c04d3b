package bridge_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

const noResponders = `pq_given_back_total{reason="no_responders"}`

// popAll pops until the queue is empty, and returns the values.
func popAll(t *testing.T, e *testenv.Env, subject string) (values []string) {
	t.Helper()
	for {
		m := e.Request(subject, nil, nil)
		if replyError(m.Header) != nil {
			wantError(t, 404, subject, m)
			return values
		}

		values = append(values, string(m.Data))
	}
}

// wantPopped pops until the queue is empty, and compares the values.
func wantPopped(t *testing.T, e *testenv.Env, subject string, want ...string) {
	t.Helper()
	if got := popAll(t, e, subject); !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", subject, got, want)
	}
}

// An item that nobody receives is back at its old place, with its id and its history, and
// the delivery is not counted.
func TestGoneReceiver(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		back := 0
		for _, kind := range kinds {
			var pushed []subjects.Pushed
			for _, value := range []string{"a", "b", "c", "d"} {
				own := nats.Header{"Own": {value, "x"}}
				pushed = append(pushed, push(t, e, kind.push, own, value))
			}

			acknowledge(t, e, leaseOne(t, e, kind.pop, `{"ack_wait":"1h"}`, "a"), "-NAK")
			for range 5 {
				publish(t, e, kind.pop, nats.NewInbox(), "")
				back++
				wantMetric(t, e.Bridge, noResponders, float64(back))
			}

			m := e.Request(kind.pop, nil, []byte(`{"ack_wait":"1h"}`))
			if string(m.Data) != "a" || m.Header.Get(subjects.HeaderDeliveries) != "2" ||
				m.Header.Get(subjects.HeaderID) != pushed[0].ID {
				t.Errorf("leased %q with %v, want delivery 2 of %q", m.Data, m.Header, pushed[0].ID)
			}

			acknowledge(t, e, m.Reply, "-NAK")
			m = ok(t, e, kind.pop, nil, "")
			if string(m.Data) != "a" ||
				m.Header.Get(subjects.HeaderID) != pushed[0].ID || len(m.Header["Own"]) != 2 {
				t.Errorf("popped %q with %v, want %q", m.Data, m.Header, pushed[0].ID)
			}

			// Several items at once, and nobody receives any.
			publish(t, e, kind.pop, nats.NewInbox(), `{"batch":2}`)
			back += 2
			wantMetric(t, e.Bridge, noResponders, float64(back))
			wantPopped(t, e, kind.pop, "b", "c", "d")
		}
		wantMetric(t, e.Bridge, "pq_lost_items_total", 0)
		wantMetric(t, e.Bridge, "pq_nats_errors_total", 0)
		checkStore(t, e)
	})
}

// subscribeFor subscribes to a new inbox, until that many messages have come.
func subscribeFor(t *testing.T, e *testenv.Env, messages int) *nats.Subscription {
	t.Helper()
	s, err := e.Conn.SubscribeSync(nats.NewInbox())
	if err == nil {
		err = s.AutoUnsubscribe(messages)
	}
	must(t, err)

	return s
}

// A client that holds a wildcard inbox and does not want the reply any more loses the item:
// plain pops are at most once.
func TestGoneBehindAWildcard(t *testing.T) {
	e := start(t, testenv.Options{})
	push(t, e, "pq.jobs.push", nil, "lost")

	inbox := nats.NewInbox()
	if _, err := e.Conn.SubscribeSync(inbox + ".*"); err != nil {
		t.Fatal(err)
	}

	publish(t, e, "pq.jobs.pop.min", inbox+".x", "")
	refused(t, e, 404, "pq.jobs.pop.min", nil, nil)

	// A peek has no item to give back. Once the bridge has ended, all is confirmed.
	publish(t, e, "pq.jobs.peek.min", nats.NewInbox(), "")
	restart(t, e)
	refused(t, e, 404, "pq.jobs.pop.min", nil, nil)
}

// Leases of receivers that are gone run out. What NATS says of them never counts as an
// acknowledgement.
func TestGoneReceiverOfALease(t *testing.T) {
	clock := newSteppedClock()
	e := start(t, testenv.Options{Bridge: clock.options})
	push(t, e, "pq.jobs.push", nil, "stays")
	publish(t, e, "pq.jobs.pop.min", nats.NewInbox(), `{"ack_wait":"1h"}`)

	refused(t, e, 404, "pq.jobs.pop.min", nil, nil)

	clock.step(time.Hour)
	m := ok(t, e, "pq.jobs.pop.min", nil, `{"ack_wait":"1h"}`)
	wantData(t, m, "stays")
	same(t, "deliveries", m.Header.Get(subjects.HeaderDeliveries), "2")

	// Nor does what a client forges.
	c := dialRaw(t, e)
	for _, block := range []string{
		"NATS/1.0 503\r\n\r\n",
		"NATS/1.0 503\r\nNats-Subject: x\r\n\r\n",
		"NATS/1.0 503 No Responders\r\n\r\n",
		"NATS/1.0 100\r\n\r\n",
		"NATS/1.0 503\r\nA:         b\r\n\r\n",
		"NATS/1.0 503\r\nStatus:x\r\nA:       b\r\n\r\n",
		"NATS/1.0\r\nStatus: 503\r\n\r\n",
		"NATS/1.0\r\nstatus:503\r\n\r\n",
	} {
		if got := c.request(m.Reply, block, ""); !strings.Contains(got.headers, "400") {
			t.Errorf("%q is answered with %q", block, got.headers)
		}
	}

	acknowledge(t, e, m.Reply, "+WPI")
	wantMetric(t, e.Bridge, noResponders, 0)
	wantMetric(t, e.Bridge, "pq_unanswered_total", 0)
}

// A lease with frames that nobody receives ends at once, and the delivery does not count, also
// after a wait or a +NXT.
func TestGoneReceiverOfAFramedLease(t *testing.T) {
	e := start(t, testenv.Options{})
	back := func(n float64) {
		t.Helper()
		wantMetric(t, e.Bridge, noResponders, n)
	}

	push(t, e, "pq.jobs.push", nil, "a")
	publish(t, e, "pq.jobs.pop.min", nats.NewInbox(), `{"ack_wait":"1h","frames":true}`)
	back(1)
	first := leaseOne(t, e, "pq.jobs.pop.min", `{"ack_wait":"1h"}`, "a")
	gone := askAndWait(t, e, "jobs", "pop.min", `{"ack_wait":"1h","frames":true,"expires":"1h"}`)
	must(t, gone.Unsubscribe())

	push(t, e, "pq.jobs.push", nil, "b")
	back(2)
	publish(t, e, first, nats.NewInbox(), `+NXT {"frames":true}`)
	back(3)

	m := e.Request("pq.jobs.pop.min", nil, []byte(`{"ack_wait":"1h"}`))
	if string(m.Data) != "b" || m.Header.Get(subjects.HeaderDeliveries) != "1" {
		t.Errorf("leased %q with %v", m.Data, m.Header)
	}
}

// An item goes back only on the word of the server or of the receiver, never on that of a third
// client.
func TestGoneIsNotForged(t *testing.T) {
	e := start(t, testenv.Options{})
	push(t, e, "pq.jobs.push", nil, "a")
	const status = "NATS/1.0 503\r\n\r\n"
	m := ok(t, e, "pq.jobs.pop.min", nil, "")

	root, token, _ := strings.Cut(m.Reply, "-")
	if !strings.HasPrefix(root, "_PQ.") || len(token) < 8 {
		t.Fatalf("the reply subject is %q", m.Reply)
	}

	c := dialRaw(t, e)
	for _, subject := range []string{
		m.Reply, root + "-", root + "-1", root, root + "-" + token + "0", root + "9-" + token,
		root + "--" + token, root + "+1-" + token,
	} {
		c.write(message(subject, "", "NATS/1.0\r\nStatus: 200\r\n\r\n", "") +
			message(subject, "", status, "x") + message(subject, "", "", "done"))
		c.write(message(subject, "", "NATS/1.0 100\r\n\r\n", "") + "PUB " + subject + " 0\r\n\r\n")

		if subject != m.Reply {
			c.write(message(subject, "", status, ""))
		}
	}

	c.request("pq.jobs.len", "", "")
	for _, payload := range []string{"", "+ACK", "-NAK"} { // as if it were leased
		err := refused(t, e, 400, m.Reply, nil, []byte(payload))
		if !strings.Contains(err.Text, "not leased") {
			t.Error(err)
		}
	}

	publish(t, e, m.Reply, "pq.jobs.push", "")
	publish(t, e, m.Reply, m.Reply, "")
	wantMetric(t, e.Bridge, "pq_unanswered_total", 2)
	refused(t, e, 404, "pq.jobs.pop.min", nil, nil)
	wantMetric(t, e.Bridge, noResponders, 0)

	// Nor can the bridge be made to publish there.
	push(t, e, "pq.jobs.push", nil, "b")
	publish(t, e, "pq.jobs.pop.min", m.Reply, "")
	publish(t, e, "pq.jobs.peek.min", "_PQ.x.1", "")
	publish(t, e, "$SRV.PING", "_PQ.x.1", "")

	wantMetric(t, e.Bridge, "pq_unanswered_total", 4)
	wantPopped(t, e, "pq.jobs.pop.min", "b")
}

// An item that nobody receives goes back even if the client is at another server than the bridge.
func TestGoneInACluster(t *testing.T) {
	port := harness.Port(t)
	e := start(t, testenv.Options{NATS: func(o *server.Options) {
		clustered(o)
		o.Cluster.Port = port
	}})

	other := testenv.New(t, testenv.Options{Stopped: true, NATS: func(o *server.Options) {
		clustered(o)
		o.Routes = []*url.URL{{Scheme: "nats-route", Host: fmt.Sprint("127.0.0.1:", port)}}
	}})

	other.NATS.Start()
	client := other.Connect()
	other.NATS.Knows("pq.jobs.pop.min", true)
	pushAll(t, e, "pq.jobs.push", "a", "b", "c")
	inbox := nats.NewInbox()
	s := subscribe(t, client, inbox)
	e.NATS.Knows(inbox, true)

	pop := func(options string) {
		t.Helper()
		must(t, client.PublishRequest("pq.jobs.pop.min", inbox, []byte(options)))
	}

	pop("")
	wantData(t, next(t, s), "a")
	must(t, s.Unsubscribe())

	e.NATS.Knows(inbox, false)
	pop("")
	wantMetric(t, e.Bridge, noResponders, 1)

	pop(`{"batch":2}`)
	wantMetric(t, e.Bridge, noResponders, 3)

	// The same when the bridge had to go to the other server.
	e.NATS.Stop()
	testenv.Eventually(t, func() error {
		m, err := client.Request("pq.jobs.len", nil, time.Second)
		if err == nil && string(m.Data) != `{"queue":"jobs","len":2}` {
			err = fmt.Errorf("len: %q", m.Data)
		}

		return err
	})

	pop("")
	wantMetric(t, e.Bridge, noResponders, 4)

	for _, want := range []string{"b", "c"} {
		m, err := client.Request("pq.jobs.pop.min", nil, testenv.Patience)
		if err != nil || string(m.Data) != want {
			t.Errorf("got %v, %v: want %q", m, err, want)
		}
	}
	e.Bridge.MustStop() // before its server does
}

// clustered are options of a server that others can join.
func clustered(o *server.Options) {
	o.Cluster = server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: server.RANDOM_PORT}
}

// Without the permission to hear of missing receivers, everything else works.
func TestGoneWithoutPermission(t *testing.T) {
	p := inboxesOnly()
	p.Subscribe = &server.SubjectPermission{Deny: []string{"_PQ.>"}}
	var log syncLog

	e := start(t, restricted(p, testenv.Options{
		NATS:   clustered,
		Bridge: func(o *bridge.Options) { o.Logger = log.logger() },
	}))
	log.wantSays(t, "allow this user to subscribe to _PQ.>")

	pushAll(t, e, "pq.jobs.push", "a", "b")
	publish(t, e, "pq.jobs.pop.min", nats.NewInbox(), "")
	if m := ok(t, e, "pq.jobs.pop.min", nil, ""); string(m.Data) != "b" || m.Reply != "" {
		t.Errorf("popped %q, reply subject %q", m.Data, m.Reply)
	}

	push(t, e, "pq.jobs.push", nil, "c")
	publish(t, e, "pq.jobs.pop.min", "elsewhere", "")
	wantMetric(t, e.Bridge, `pq_given_back_total{reason="denied"}`, 1)
	wantPopped(t, e, "pq.jobs.pop.min", "c")
	same(t, "lines about it in the log:\n"+log.String(), strings.Count(log.String(), "_PQ."), 1)
	wantMetric(t, e.Bridge, noResponders, 0)

	// A new connection may have it.
	e.NATS.Stop()
	wantMetric(t, e.Bridge, "pq_nats_connected", 0) // else it may still be ready as it was before

	e.NATS.Change(func(o *server.Options) { o.Users[0].Permissions.Subscribe = nil })
	e.NATS.Start()
	e.Bridge.WaitReady()

	testenv.Eventually(t, e.Conn.Flush)

	push(t, e, "pq.jobs.push", nil, "d")
	publish(t, e, "pq.jobs.pop.min", nats.NewInbox(), "")
	wantMetric(t, e.Bridge, noResponders, 1)
	wantPopped(t, e, "pq.jobs.pop.min", "d")
}

// Items that nobody receives go back also where the bridge may publish only answers.
func TestGoneWithAllowResponses(t *testing.T) {
	p := &server.Permissions{
		Publish:  &server.SubjectPermission{Allow: []string{"_pqbridge.>"}},
		Response: &server.ResponsePermission{MaxMsgs: 10, Expires: time.Minute},
	}

	e := start(t, restricted(p, testenv.Options{}))
	pushAll(t, e, "pq.jobs.push", "a", "b")
	publish(t, e, "pq.jobs.pop.min", nats.NewInbox(), `{"batch":2}`)

	wantMetric(t, e.Bridge, noResponders, 2)
	wantPopped(t, e, "pq.jobs.pop.min", "a", "b")
	wantMetric(t, e.Bridge, "pq_nats_errors_total", 0)
}

// An item that leaves no room for the headers of the bridge goes back as any other.
func TestLargestItemGoesBack(t *testing.T) {
	e := start(t, testenv.Options{})
	value := strings.Repeat("x", int(e.Conn.MaxPayload()))
	push(t, e, "pq.jobs.push", nil, value)
	publish(t, e, "pq.jobs.pop.min", nats.NewInbox(), "")
	wantMetric(t, e.Bridge, noResponders, 1)
	m := ok(t, e, "pq.jobs.pop.min", nil, `{"expires":"1h"}`)
	same(t, "the value is the same", string(m.Data) == value, true)
}
