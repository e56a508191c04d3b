package main

import (
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/client"
	"github.com/pqbridge/pqbridge/testenv"
)

// A queue without consumers of its own says so, and one that was emptied is not suggested for itself.
func TestNoConsumers(t *testing.T) {
	c, _ := newCLI(t)
	prints := func(want string, args ...string) {
		t.Helper()
		if stdout, stderr, code := c.run("", args...); code != exitOK || args[0] == "consumers" && stdout != "" || stderr != want {
			t.Errorf("pq %q: exit code %d, %q and %q, want %q", args, code, stdout, stderr, want)
		}
	}
	for _, kind := range []struct{ queue, flag, own string }{
		{"jobs", "--fifo=false", "pq: none besides min and max, which every queue has\n"},
		{"mail", "--fifo", "pq: none besides min, which every FIFO queue has\n"},
	} {
		c.ok("", "push", kind.queue, "x", kind.flag, "--msg-id", "1") // which keeps it on the list for a while
		prints(kind.own, "consumers", kind.queue, kind.flag)
		prints(kind.own, "consumers", kind.queue, kind.flag, "--json")

		c.ok("", "pop", kind.queue, kind.flag)
		prints(kind.own, "consumers", kind.queue, kind.flag)
		prints("", "info", kind.queue, kind.flag)
	}
}

// pq consumers lists what JetStream's programs have created, also from a bridge that does not serve them.
func TestConsumers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	must(t, l.Close()) // only its port was needed

	env := testenv.New(t, testenv.Options{
		NATS:   func(o *server.Options) { o.LeafNode.Host, o.LeafNode.Port = "127.0.0.1", port },
		Bridge: func(o *bridge.Options) { o.JetStream.LeafURL = "127.0.0.1:" + strconv.Itoa(port) },
	})
	c := &cli{t: t, server: env.NATS.URL()}
	nothing := func(args ...string) {
		t.Helper()
		if stdout, stderr, code := c.run("", args...); stdout != "" || code != exitOK || !strings.Contains(stderr, "no queue jobs is in use") && !strings.Contains(stderr, "jobs is a priority queue") {
			t.Errorf("pq %q: exit code %d, %q and %q", args, code, stdout, stderr)
		}
	}
	nothing("consumers", "jobs")
	nothing("consumers", "jobs", "--json")

	js, err := jetstream.NewWithDomain(env.Conn, "pq")
	must(t, err)
	testenv.Eventually(t, func() error {
		_, err := js.CreateOrUpdateConsumer(t.Context(), "jobs", jetstream.ConsumerConfig{Durable: "mailer", AckPolicy: jetstream.AckExplicitPolicy,
			AckWait: time.Minute, MaxDeliver: 5, Description: "sends\tmail", Metadata: map[string]string{"pq.order": "max"}})
		return err
	})
	_, err = js.CreateOrUpdateConsumer(t.Context(), "jobs", jetstream.ConsumerConfig{Durable: "plain", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: -1})
	must(t, err)

	must(t, env.Bridge.Stop())
	env.StartBridge(func(o *bridge.Options) { o.JetStream.LeafURL = "" }).WaitReady()
	lines := strings.Split(c.ok("", "consumers", "jobs"), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "mailer\tmax\t1m0s\t5\t1000\t") || !strings.HasSuffix(lines[0], "\tsends mail") ||
		!strings.HasPrefix(lines[1], "plain\tmin\t-\t-\t-\t") {
		t.Errorf("printed %q", lines)
	}
	lines = strings.Split(c.ok("", "consumers", "jobs", "--json"), "\n")
	var first client.QueueConsumer
	decode(t, lines[0], &first)
	if len(lines) != 3 || first.Name != "mailer" || first.Order != "max" || first.AckWait != time.Minute || first.Created.IsZero() {
		t.Errorf("printed %q", lines)
	}
	if got := c.ok("", "info", "jobs"); !strings.Contains(got, "consumers   mailer, plain\n") {
		t.Errorf("pq info printed %q", got)
	}
	nothing("consumers", "jobs", "--fifo")
}
