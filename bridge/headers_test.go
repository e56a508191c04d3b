package bridge_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// A push with a header that NATS would act on is refused, whatever its case. Headers that NATS adds
// on the way are not stored.
func TestHeadersThatNATSActsOn(t *testing.T) {
	e := start(t, testenv.Options{})
	for name, values := range harness.NATSActsOn {
		for _, name := range []string{name, strings.ToLower(name), strings.ToUpper(name)} {
			for _, subject := range []string{"pq.jobs.push", "q.jobs.push"} {
				h := nats.Header{name: values, "Other": {"x"}}
				err := refused(t, e, 400, subject, h, []byte("x"))
				if !strings.Contains(err.Text, name) {
					t.Errorf("%s with %s: %v", subject, name, err)
				}
			}
		}
	}
	wantLen(t, e, "pq", "jobs", 0)
	wantLen(t, e, "q", "jobs", 0)

	for name, values := range harness.NATSAdds {
		for _, name := range []string{name, strings.ToLower(name)} {
			push(t, e, "pq.jobs.push", nats.Header{name: values, "Other": {"x"}}, "x")
			wantHeaders(t, ok(t, e, "pq.jobs.pop.min", nil, ""), nats.Header{"Other": {"x"}})
		}
	}

	// Requests that store nothing may have them: they concern the request alone.
	for name, values := range harness.NATSActsOn {
		if !strings.HasPrefix(name, "Nats-Trace") {
			ok(t, e, "pq.jobs.len", nats.Header{name: values}, "")
		}
	}
}

// wantHeaders compares the headers of an item, without our own.
func wantHeaders(t *testing.T, m *nats.Msg, want nats.Header) {
	t.Helper()
	for _, name := range []string{
		subjects.HeaderID, subjects.HeaderPlace, subjects.HeaderPriority, subjects.HeaderPushedAt,
	} {
		m.Header.Del(name)
	}
	if fmt.Sprint(m.Header) != fmt.Sprint(want) {
		t.Errorf("%s came with headers %v, want %v", m.Data, m.Header, want)
	}
}

// Items that another program stored with such headers are sent without them, and NATS does nothing
// because of them.
func TestStoredHeadersThatNATSActsOn(t *testing.T) {
	e := start(t, testenv.Options{})
	seen := subscribe(t, e.Conn, "pq.other.>")

	for _, headers := range []nats.Header{harness.NATSActsOn, harness.NATSAdds} {
		for name, values := range headers {
			h := map[string][]string{
				name:                  values,
				strings.ToLower(name): values,
				"Other":               {"x"},
				"Nats-Msg-Id":         {"7"},
			}

			h["Nats-Trace-Dest"] = []string{"pq.other.push"}
			store(t, e, 0, fdbpq.Message{Value: []byte(name), Headers: h})

			for _, subject := range []string{"pq.jobs.peek.min", "pq.jobs.pop.max"} {
				wantHeaders(t, ok(t, e, subject, nil, ""),
					nats.Header{"Other": {"x"}, "Nats-Msg-Id": {"7"}})
			}
		}
	}

	// An item as large as the server carries comes without our headers, and without
	// those.
	large := fdbpq.Message{
		Value: make([]byte, e.Conn.MaxPayload()-40),
		Headers: map[string][]string{
			"Nats-Trace-Dest": {"pq.other.push"},
			"Traceparent":     {"00-a-b-01"},
			"A":               {"b"},
		},
	}

	store(t, e, 0, large)
	m := ok(t, e, "pq.jobs.pop.min", nil, "")
	m.Data = nil

	wantHeaders(t, m, nats.Header{"A": {"b"}})

	if n, _, err := seen.Pending(); n > 0 || err != nil {
		t.Errorf("NATS published %d messages for the items, %v", n, err)
	}
	wantLen(t, e, "pq", "other", 0)
}

// A trace context comes back with its item. Where the account reports such messages,
// the server neither reports the reply nor refuses it because the bridge may not
// publish the report.
func TestTraceContext(t *testing.T) {
	e := withAccounts(t, `
		accounts { A {
			msg_trace: { dest: "traces" }
			users = [
				{ user: bridge, password: p, permissions: { publish: ["_INBOX.>", "_pqbridge.>"] } }
				{ user: client, password: p }
			]
		} }`)

	traces := subscribe(t, e.Conn, "traces")
	for _, name := range []string{"traceparent", "Traceparent", "TRACEPARENT"} {
		h := nats.Header{
			name:         {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
			"tracestate": {"a=b"},
		}

		push(t, e, "pq.jobs.push", h, "x")
		want := nats.Header{
			"tracestate":             h["tracestate"],
			name:                     h[name],
			subjects.HeaderTraceDest: {subjects.TraceDisabled},
		}
		for _, subject := range []string{"pq.jobs.peek.min", "pq.jobs.pop.min"} {
			wantHeaders(t, ok(t, e, subject, nil, ""), want)
		}

		// A worker that forwards what it received causes no trace, and is not refused.
		push(t, e, "pq.jobs.push", want, "x")
		wantHeaders(t, ok(t, e, "pq.jobs.pop.max", nil, ""), want)
	}
	wantMetric(t, e.Bridge, "pq_nats_errors_total", 0)

	for range 3 { // one for each push that was sampled
		m, err := traces.NextMsg(testenv.Patience)
		must(t, err)
		if !strings.Contains(string(m.Data), `"subj":"pq.jobs.push"`) {
			t.Errorf("trace %s", m.Data)
		}
	}
	if n, _, err := traces.Pending(); n > 0 || err != nil {
		t.Errorf("%d more traces, %v", n, err)
	}
}

// Header blocks are refused if the client cannot parse them, in which case NATS delivers them as if
// there were none, or if a NATS server may parse them differently.
func TestHeaderBlocks(t *testing.T) {
	e := start(t, testenv.Options{})
	c := dialRaw(t, e)
	const begin, end = "NATS/1.0\r\n", "\r\n"

	for block, good := range map[string]bool{
		begin + end:                                      true,
		begin + "a: b\r\nc: d\r\n" + end:                 true,
		begin + "a:b\r\nc:d\r\n" + end:                   true,
		begin + "a: b \t \r\nc: d  \r\n" + end:           true,
		begin + "a:\r\nb:\r\n" + end:                     true,
		begin + "a: \r\nb: \r\n" + end:                   true,
		begin + "a: b\r\na: c\r\nA: d\r\n" + end:         true,
		begin + "a:b\r\nNats-Request-Info: {}\r\n" + end: true, // the server writes a space
		begin + "Nmqtt-Pub:1\r\nNmqtt-Subject:x\r\nNats-Request-Info: {}\r\n" + end: true,

		begin + "a: b\nc: d\r\n" + end:                 false,
		begin + "a: b\r\nc: d\n" + end:                 false,
		begin + "a: b\nc: d\n\n":                       false,
		"NATS/1.0\na: b\r\nc: d\r\n" + end:             false,
		begin + "a: b\r\nc: d\r\n" + "\n":              false,
		"NATS/1.0\n\n":                                 false,
		begin + ": b\r\n" + end:                        false,
		begin + "no name: b\r\n" + end:                 false,
		begin + "Pq-Priority: 5\r\nno colon\r\n" + end: false,
		begin:                             false,
		"NATS/1.0 5\r\n" + end:            false,
		"HTTP/1.1\r\n" + end:              false,
		end:                               false,
		begin + "a: b\r\n: c\r\n" + end:   false,
		begin + ":\r\n" + end:             false,
		begin + "a:  b\r\n" + end:         false,
		begin + "a: b\r\n c: d\r\n" + end: false,
		begin + "a : b\r\n" + end:         false,
		begin + "a\t: b\r\n" + end:        false,
		begin + "Pq-Ack : +ACK\r\n" + end: false,
		begin + "a: b\rc\r\n" + end:       false,
		begin + "a: b\r\r\n" + end:        false,
		begin + "a: b\r\n" + end + "Nats-Trace-Dest: x\r\n" + end:        false,
		"NATS/1.0 503\r\n" + end:                                         false,
		"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 1\r\n" + end: false,

		// A header that only one of them sees is refused or has no effect.
		begin + "a: b\nNats-Trace-Dest: pq.other.push\r\n" + end: false,
		begin + "a:b\nNats-Trace-Dest:  pq.other.push\r\n" + end: false,
		"NATS/1.0\nNats-Trace-Dest: pq.other.push\n\n":           false,
	} {
		for _, subject := range []string{"pq.jobs.push", "pq.jobs.len"} {
			m := c.request(subject, block, "")
			err := replyError(decoded(t, m.headers))

			// A push is refused a header that servers add, which may hide a missing CR elsewhere.
			harmless := subject == "pq.jobs.len" && strings.Contains(block, "\nNats-Trace-Dest:")
			if err == nil && harmless {
				continue
			}
			if good != (err == nil) || err != nil && !errors.Is(err, errBadRequest) {
				t.Errorf("%s with %q: %v", subject, block, err)
			}

			// Until the subject is read, the request may be a push.
			if text := m.payload; !good && !strings.Contains(text, `{"error":{"code":400,`) {
				t.Errorf("%s with %q: payload %q", subject, block, text)
			}
		}
		if good {
			ok(t, e, "pq.jobs.pop.min", nil, "")
		}
	}
	wantLen(t, e, "pq", "jobs", 0)
	wantLen(t, e, "pq", "other", 0)
}

// Replies do not go to subjects of NATS itself, where they would act with the
// permissions of the bridge.
func TestRepliesToNATS(t *testing.T) {
	e := start(t, testenv.Options{})
	seen := subscribe(t, e.Conn, "$>")

	replies := []string{
		"$JS.API.STREAM.PURGE.S", "$KV.bucket.key", "$SYS.REQ.SERVER.PING", "$SRV.PING",
		"$JS.FC.S.C.x", "$", "$x", "$JS.ACKS.x",
	}

	push(t, e, "pq.jobs.push", nil, "stays")
	for _, reply := range replies {
		for _, subject := range []string{
			"pq.jobs.push", "pq.jobs.peek.min", "pq.jobs.pop.min", "pq.jobs.len",
			"pq.jobs.nonsense", "$SRV.PING",
		} {
			publish(t, e, subject, reply, "")
		}
	}
	wantLen(t, e, "pq", "jobs", 1)

	for n, _, err := seen.Pending(); n > 0; n, _, err = seen.Pending() {
		m, nextErr := seen.NextMsg(testenv.Patience)
		if err = errors.Join(err, nextErr); err != nil {
			t.Fatal(err)
		}
		if m.Subject != "$SRV.PING" || m.Reply == "" {
			t.Errorf("reply to %s", m.Subject)
		}
	}
	wantMetric(t, e.Bridge, "pq_unanswered_total", float64(5*len(replies)))
}

// Any request with very many headers is refused, because they take long to read and to store.
func TestTooManyHeaders(t *testing.T) {
	e := start(t, testenv.Options{})
	c := dialRaw(t, e)
	block := func(lines int) string {
		return "NATS/1.0\r\n" + strings.Repeat("#:\r\n", lines) + "\r\n"
	}
	batch := func(lines int) string {
		return frames(subjects.Frame{Headers: []byte(block(lines)), Value: []byte("b")})
	}

	for _, request := range []struct{ subject, headers, payload string }{
		{"pq.jobs.push", block(subjects.MaxHeaders), "a"},
		{"pq.jobs.push.batch", "", batch(subjects.MaxHeaders)},
		{"pq.jobs.len", block(subjects.MaxHeaders), ""},
	} {
		m := c.request(request.subject, request.headers, request.payload)
		if err := replyError(decoded(t, m.headers)); err != nil {
			t.Errorf("%s: %v", request.subject, err)
		}
	}

	const many = 150_000
	for _, lines := range []int{subjects.MaxHeaders + 1, many} {
		for _, request := range []struct{ subject, headers, payload string }{
			{"pq.jobs.push", block(lines), "x"},
			{"pq.jobs.push.batch", "", batch(lines)},
			{"pq.jobs.push.batch", block(lines), batch(0)},
			{"pq.jobs.pop.min", block(lines), ""},
			{"pq.jobs.len", block(lines), ""},
		} {
			m := c.request(request.subject, request.headers, request.payload)

			err := replyError(decoded(t, m.headers))
			want := fmt.Sprintf("%d header lines: want at most 1000", lines)
			if !errors.Is(err, errTooLarge) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s with %d headers: %v", request.subject, lines, err)
			}
		}
	}

	m := ok(t, e, "pq.jobs.pop.min", nil, "")
	if string(m.Data) != "a" || len(m.Header["#"]) != subjects.MaxHeaders {
		t.Errorf("popped %q with %d headers", m.Data, len(m.Header["#"]))
	}
}

// A batch of pushes with very many headers in all is refused, though no item has too many.
func TestTooManyHeadersOfABatch(t *testing.T) {
	e := start(t, testenv.Options{})
	block := "NATS/1.0\r\n" + strings.Repeat("#:\r\n", subjects.MaxHeaders) + "\r\n"
	items := slices.Repeat([]subjects.Frame{{Headers: []byte(block)}},
		subjects.MaxBatchHeaders/subjects.MaxHeaders)

	ok(t, e, "pq.jobs.push.batch", nil, frames(items...))
	tooMany := append(items, subjects.Frame{Headers: []byte("NATS/1.0\r\na: b\r\n\r\n")})

	err := refused(t, e, 413, "pq.jobs.push.batch", nil, []byte(frames(tooMany...)))

	if !strings.Contains(err.Text, "more than 50000 header lines in all") {
		t.Errorf("the answer is %q", err.Text)
	}
	wantLen(t, e, "pq", "jobs", len(items))
}
