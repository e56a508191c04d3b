package main

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/client"
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

// pq consumers lists what the bridge says of those that JetStream's programs have created.
func TestConsumers(t *testing.T) {
	c, env := newCLI(t)
	info := &client.QueueInfo{Queue: "jobs", Ready: 1, Consumers: []client.QueueConsumer{
		{Name: "mailer", Order: "max", AckWait: time.Minute, MaxDeliver: 5, MaxAckPending: 1000, Created: time.Now(), Description: "sends\tmail"},
		{Name: "plain", Order: "min"},
	}}
	_, err := env.Conn.Subscribe("fake.jobs.info", func(m *nats.Msg) { _ = m.Respond(info.Encode()) })
	must(t, err)
	must(t, env.Conn.Flush())
	lines := strings.Split(c.ok("", "consumers", "jobs", "--prefix", "fake"), "\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "mailer\tmax\t1m0s\t5\t1000\t") || !strings.HasSuffix(lines[0], "\tsends mail") ||
		!strings.HasPrefix(lines[1], "plain\tmin\t-\t-\t-\t") {
		t.Errorf("printed %q", lines)
	}
	lines = strings.Split(c.ok("", "consumers", "jobs", "--json", "--prefix", "fake"), "\n")
	var first client.QueueConsumer
	decode(t, lines[0], &first)
	if len(lines) != 3 || first.Name != "mailer" || first.Order != "max" || first.AckWait != time.Minute || first.Created.IsZero() {
		t.Errorf("printed %q", lines)
	}
	if got := c.ok("", "info", "jobs", "--prefix", "fake"); !strings.Contains(got, "consumers   mailer, plain\n") {
		t.Errorf("pq info printed %q", got)
	}
}
