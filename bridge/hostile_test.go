package bridge_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// FuzzRequest sends requests with any subject, headers and payload to a running
// service: each gets one reply, and a pop returns what a push stored.
func FuzzRequest(f *testing.F) {
	f.Add("jobs.push", "Trace: a\r\n", []byte("x"))
	f.Add("jobs.push.-5", "Pq-Priority:-5\r\nStatus: 503\t\r\n", []byte{})
	f.Add("jobs.pop.min", "", []byte{})
	f.Add("*.push", "no colon\r\n", []byte("x"))
	f.Add(">", ": no name\r\n", []byte("x"))
	f.Add("a..b", "a: b\r\r\n", []byte{0xff})
	first := frame(5, "a: b\r\n", "x")
	f.Add("jobs.push.batch", "", []byte(frames(first, frame(-5, "Pq-Priority: -5\r\n", "y"))))
	f.Add("jobs.push.batch", "",
		[]byte(frames(first, frame(5, "Status: 503\r\n", ""), frame(-5, "", "yy"))))
	f.Add("jobs.push.batch", "a: b\r\n", []byte(frames(frame(0, "Status: 503\r\n", "")))[:20])
	e := testenv.New(f, testenv.Options{})
	c := dialRaw(f, e)

	f.Fuzz(func(t *testing.T, subject, headers string, payload []byte) {
		subject = "pq." + subject
		if strings.ContainsAny(subject, " \t\r\n") || len(subject) > 1000 {
			return // NATS would take the rest for another argument, or refuse the line
		}

		c.t = t
		block := "NATS/1.0\r\n" + headers + "\r\n"
		m := c.request(subject, block, string(payload))

		if strings.HasPrefix(m.headers, "NATS/1.0 503") {
			return // NATS delivers to no subject with an empty token
		}

		err := replyError(decoded(t, m.headers))
		r, parseErr := e.Grammar.Parse(subject)
		var wire *refusal

		switch {
		case err != nil && (!errors.As(err, &wire) || wire.Code != 400 && wire.Code != 404):
			t.Fatalf("%q with %q: %v", subject, headers, err)
		case err == nil && parseErr != nil:
			t.Fatalf("%q succeeded: %v", subject, parseErr)
		case err == nil && r.Verb == subjects.Push:
			if got := c.request("pq."+r.Queue+".pop.min", "", ""); got.payload != string(payload) {
				t.Fatalf("%q came back as %q with %q", payload, got.payload, got.headers)
			}
		case err == nil && r.Verb == subjects.PushBatch:
			popBatch(t, c, r.Queue, payload)
		}
	})
}

// popBatch pops what a batch pushed, and compares it with the payload of that.
func popBatch(t *testing.T, c *rawConn, queue string, payload []byte) {
	t.Helper()
	pushed, err := subjects.ParseFrames(payload)
	if err != nil {
		t.Fatalf("%q succeeded: %v", payload, err)
	}

	want := slices.Clone(pushed)
	byPriority := func(a, b subjects.Frame) int { return cmp.Compare(a.Priority, b.Priority) }
	slices.SortStableFunc(want, byPriority)

	if len(payload)%2 == 0 && len(want) > 1 { // in frames
		c.replies++
		c.write(message("pq."+queue+".pop.min", "raw."+strconv.Itoa(c.replies), "",
			fmt.Sprintf(`{"batch":%d,"frames":true}`, min(len(want), 1000))))

		for n := 0; n < min(len(want), 1000); {
			m := c.next()
			reply := &nats.Msg{Header: decoded(t, m.headers), Data: []byte(m.payload)}
			for _, item := range unpacked(t, "pq."+queue, reply) {
				if item.value != string(want[n].Value) {
					t.Fatalf("%q came back as %q with %q", want[n].Value, item.value, item.header)
				}
				n++
			}
		}

		want = want[min(len(want), 1000):]
	}

	for _, f := range want {
		if got := c.request("pq."+queue+".pop.min", "", ""); got.payload != string(f.Value) {
			t.Fatalf("%q came back as %q with %q", f.Value, got.payload, got.headers)
		}
	}
}

// decoded reads a block of headers; empty means none.
func decoded(t *testing.T, block string) nats.Header {
	t.Helper()
	if block == "" {
		return nil
	}

	h, err := nats.DecodeHeadersMsg([]byte(block))
	if err != nil {
		t.Fatalf("headers %q: %v", block, err)
	}

	return h
}

// A reply that a bridge would read is not sent: it would be a request, or a message
// between bridges, made with permissions that its author need not have.
func TestRepliesToOurselves(t *testing.T) {
	e := start(t, testenv.Options{})
	e.StartBridge().WaitReady()
	var ping micro.Ping
	discover(t, e, "$SRV.PING.pqbridge", &ping)
	c := dialRaw(t, e)

	own := []string{
		"pq.loop.push", "pq.loop.push.1", "q.loop.push", "pq.jobs.push", "pq.x", "q.>", "pq.*.push",
		"_pqbridge.members", "_pqbridge.members." + ping.ID, rootOf(t, e.Conn) + "members",
		"_pqbridge.x",
	}

	// Messages in a bridge's name: that it has left, or is there.
	said := []string{"left " + ping.ID, fmt.Sprintf(`{"id":%q,"state":"gone"}`, ping.ID)}
	push(t, e, "pq.jobs.push.1", nil, said[0])
	push(t, e, "pq.jobs.push.2", nil, said[1])

	for _, reply := range own {
		for _, subject := range []string{
			"pq.jobs.push", "pq.jobs.pop.min", "pq.jobs.peek.max", "pq.jobs.len", "pq.nonsense",
			"q.jobs.push", "$SRV.PING", "$SRV.INFO.pqbridge",
		} {
			payload := ""
			if strings.Contains(subject, "push") {
				payload = "loop"
			}

			c.write(message(subject, reply, "", payload))
		}
	}

	// Replies to other subjects are sent, whatever those are.
	for _, reply := range []string{
		">", "*", "a..b", ".", "$SRV.PING", "pq", "_pqbridge", "pqx.loop.push", "\x00\xff",
	} {
		c.write(message("pq.jobs.len", reply, "", ""))
		c.write(message("$SRV.STATS", reply, "", ""))
	}

	c.request("pq.jobs.len", "", "") // after this, all the others have been handled
	for _, queue := range []string{"loop", "jobs"} {
		wantLen(t, e, "q", queue, 0)
	}
	wantLen(t, e, "pq", "loop", 0)
	wantLen(t, e, "pq", "jobs", 2)
	wantPopped(t, e, "pq.jobs.pop.min", said...)
}

// An item whose stored headers NATS cannot carry stays at its place, in the way of those behind it,
// and the client that pops it is told why.
func TestUnsendableStoredHeaders(t *testing.T) {
	e := start(t, testenv.Options{})
	store(t, e, 0, fdbpq.Message{
		Value:   []byte("x"),
		Headers: map[string][]string{"no name": {"x"}},
	})
	push(t, e, "pq.jobs.push", nil, "good")

	for _, c := range [][2]string{
		{"pq.jobs.peek.min", "stays in"},
		{"pq.jobs.pop.min", "goes back into"},
		{"pq.jobs.pop.min", "goes back into"},
	} {
		want := "headers that NATS cannot carry; it " + c[1] + " the queue"
		if err := refused(t, e, 500, c[0], nil, nil); !strings.Contains(err.Text, want) {
			t.Errorf("%s: %v", c[0], err)
		}
		wantQueued(t, e, 2)
	}
	wantMetric(t, e.Bridge, `pq_given_back_total{reason="unsendable"}`, 2)

	// A lease ends at once, so the next one meets the same item.
	for n, options := range []string{
		`{"ack_wait":"1h"}`, `{"ack_wait":"1h","batch":2}`,
		`{"ack_wait":"1h","batch":2,"frames":true}`,
	} {
		err := refused(t, e, 500, "pq.jobs.pop.min", nil, []byte(options))
		if !strings.Contains(err.Text, "its lease ends") {
			t.Errorf("%s: %v", options, err)
		}
		wantQueued(t, e, 2)
		if n == 0 {
			wantMetric(t, e.Bridge, `pq_given_back_total{reason="unsendable"}`, 3)
		}
	}
	// Each batch had both items.
	wantMetric(t, e.Bridge, `pq_given_back_total{reason="unsendable"}`, 7)
	wantData(t, ok(t, e, "pq.jobs.pop.max", nil, ""), "good")
}

// The largest headers that NATS lets through come back, or are refused if they are too large for a
// reply.
func TestLargestHeaders(t *testing.T) {
	e := start(t, testenv.Options{})
	c := dialRaw(t, e)
	limit := int(e.Conn.MaxPayload()) - len("NATS/1.0\r\n: \r\n\r\n")

	for _, size := range []int{limit, limit - 1000} {
		for _, h := range [][2]string{
			{"a", strings.Repeat("x", size-1)},
			{strings.Repeat("x", size), ""},
			{"a", strings.Repeat("\x00", size-1)},
		} {
			m := c.request("pq.jobs.push", "NATS/1.0\r\n"+h[0]+": "+h[1]+"\r\n\r\n", "")
			if err := replyError(decoded(t, m.headers)); err != nil {
				if !errors.Is(err, errTooLarge) {
					t.Errorf("%.20q of %d bytes: %v", h[0], size, err)
				}
				continue
			}

			got := decoded(t, c.request("pq.jobs.pop.max", "", "").headers)[h[0]]
			if len(got) != 1 || got[0] != h[1] {
				t.Errorf("header %.20q of %d bytes differs", h[0], size)
			}
		}
	}
	wantLen(t, e, "pq", "jobs", 0)
}
