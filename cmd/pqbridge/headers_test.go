package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// adminSeesAll lets the recipe's admin subscribe to every message.
func adminSeesAll(user *server.User) {
	if user.Username == "admin" {
		user.Permissions = nil
	}
}

// TestHeadersCarryNoRights: a producer cannot use the headers of an item to make NATS do
// with the worker's reply what it would refuse the producer, nor to keep the reply from
// the worker.
func TestHeadersCarryNoRights(t *testing.T) {
	e, b, admin := newRecipe(t, adminSeesAll)
	all, err := admin.SubscribeSync(">")
	must(t, err)
	producer := connectAs(t, e, "producer", "_INBOX_producer")
	worker := connectAs(t, e, "worker", "_INBOX_worker")
	destinations := []string{"pq.jobs.push", "pq.other.push", "_pqbridge.pq.members.pq", "_INBOX_worker.x", "x"}

	// Headers as any client sends them. The traces that NATS permits the producer
	// come back as items; the push is refused all the same.
	for _, name := range []string{"Nats-Trace-Dest", "nats-trace-dest", "NATS-TRACE-DEST"} {
		m := nats.NewMsg("pq.jobs.push")
		m.Header[name] = []string{"pq.jobs.push"}
		m.Header["Nats-Trace-Only"] = []string{"false"}
		reply, err := producer.RequestMsg(m, testenv.Patience)
		if err != nil || subjects.ErrorFromHeaders(reply.Header) == nil {
			t.Errorf("%s: %+v, %v", name, reply, err)
		}
	}
	// Lines that NATS parses differently on the way in and on the way out.
	raw := dialAs(t, e, "producer")
	for _, dest := range destinations {
		for _, block := range []string{
			"NATS/1.0\r\na: b\nNats-Trace-Dest: %s\r\n\r\n", "NATS/1.0\r\na:b\nNats-Trace-Dest:  %s\r\n\r\n",
			"NATS/1.0\nNats-Trace-Dest: %s\n\n", "NATS/1.0\r\n: x\nNats-Trace-Dest: %s\r\n\r\n", "NATS/1.0\r\na: b\n\r\nNats-Trace-Dest: %s\r\n\r\n",
		} {
			block = fmt.Sprintf(block, dest)
			raw.write("HPUB pq.jobs.push %d %d\r\n%spoison\r\n", len(block), len(block)+len("poison"), block)
		}
	}
	raw.write("PING\r\n")
	raw.waitFor("PONG")
	// Items like these may be in the store already.
	q, err := e.Keyspace.PriorityQueue("jobs")
	must(t, err)
	for _, dest := range destinations {
		_, err := kv.Transact(t.Context(), e.DB, func(tx kv.Transaction) (fdbpq.ID, error) {
			return q.Push(tx, 0, fdbpq.Message{Value: []byte("poison"), Headers: map[string][]string{"Nats-Trace-Dest": {dest}}})
		})
		must(t, err)
	}
	producer.request(t, "pq.jobs.push.9", "the last")

	for popped := ""; popped != "the last"; {
		for _, subject := range []string{"pq.jobs.peek.min", "pq.jobs.pop.min"} {
			reply := request(t, worker.Conn, subject, "")
			if len(reply.Header["Nats-Trace-Dest"]) > 0 {
				t.Fatalf("%s: %v", subject, reply.Header)
			}
			popped = string(reply.Data)
		}
	}
	wantWords(t, metricsOf(t, b), "\npq_nats_errors_total 0\n", "\npq_reply_failures_total 0\n")
	if got := lengths(t, admin); strings.Contains(got, `"queue":"other","len":1`) {
		t.Errorf("something is in another queue:\n%s", got)
	}
	wantNoTracesOfBridge(t, all)
}

// wantNoTracesOfBridge fails the test if one of the messages is a server's trace of a
// message from the bridge.
func wantNoTracesOfBridge(t *testing.T, all *nats.Subscription) {
	t.Helper()
	for n, _, err := all.Pending(); n > 0 || err != nil; n, _, err = all.Pending() {
		must(t, err)
		m, err := all.NextMsg(testenv.Patience)
		must(t, err)
		var trace server.MsgTraceEvent
		if json.Unmarshal(m.Data, &trace) != nil || len(trace.Events) == 0 {
			continue
		}
		if in, ok := trace.Events[0].(*server.MsgTraceIngress); !ok || in.Name == "pqbridge" {
			t.Errorf("trace on %s: %s", m.Subject, m.Data)
		}
	}
}

// TestRefusedReplyKeepsTheItem: no item is lost if a worker asks for the reply on a subject
// that the bridge may not publish to.
func TestRefusedReplyKeepsTheItem(t *testing.T) {
	e, b, admin := newRecipe(t, unchanged)
	admin.request(t, "pq.jobs.push", "stays")
	before := lengths(t, admin)
	worker := connectAs(t, e, "worker", "_INBOX_worker")
	for i, reply := range []string{"elsewhere", "_INBOX_Worker.x", "pq", "_INBOX_other.x"} {
		must(t, worker.PublishRequest("pq.jobs.pop.min", reply, nil))
		testenv.Eventually(t, func() error {
			if want := fmt.Sprintf("\npq_reply_failures_total %d\n", i+1); !strings.Contains(metricsOf(t, b), want) {
				return fmt.Errorf("not %q", want)
			}
			if after := lengths(t, admin); after != before {
				return fmt.Errorf("before:\n%safter:\n%s", before, after)
			}
			return nil
		})
	}
	worker.request(t, "pq.jobs.pop.min", "")
}

// rawClient speaks the NATS protocol without a client library.
type rawClient struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func dialAs(t *testing.T, e *testenv.Env, user string) rawClient {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(e.NATS.URL(), "nats://"))
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	c := rawClient{t, conn, bufio.NewReader(conn)}
	c.write("CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"user\":%q,\"pass\":%q}\r\n", user, user)
	return c
}

func (c rawClient) write(format string, args ...any) {
	c.t.Helper()
	must(c.t, c.conn.SetDeadline(time.Now().Add(testenv.Patience)))
	_, err := fmt.Fprintf(c.conn, format, args...)
	must(c.t, err)
}

// waitFor reads up to a line that begins with the word.
func (c rawClient) waitFor(word string) {
	c.t.Helper()
	for {
		line, err := c.in.ReadString('\n')
		must(c.t, err)
		if strings.HasPrefix(line, word) {
			return
		}
	}
}
