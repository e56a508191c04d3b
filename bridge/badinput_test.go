package bridge_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// A bad request is told what would be right, stores nothing, and harms no other request.
func TestBadInput(t *testing.T) {
	e := start(t, testenv.Options{})
	priority := func(values ...string) nats.Header {
		return nats.Header{subjects.HeaderPriority: values}
	}
	payload := []byte("x")

	tests := []struct {
		name    string
		subject string
		headers nats.Header
		payload []byte
		text    string // part of the error's text
		is      error
	}{
		{
			"priority is no number", "pq.jobs.push", priority("high"), payload, "decimal",
			subjects.ErrPriority,
		},
		{
			"subject and header differ", "pq.jobs.push.1", priority("2"), payload, "1 and 2",
			subjects.ErrPriority,
		},
		{"priority of a pop", "pq.jobs.pop.min", priority("1"), nil, "only a push", errBadRequest},
		{
			"priority of a FIFO queue", "q.jobs.push", priority("1"), payload,
			"only a push to a priority queue", errBadRequest,
		},
		{
			"name too long", "pq." + strings.Repeat("a", 129) + ".push", nil, payload, "129 bytes",
			subjects.ErrQueueName,
		},
		{"no verb", "pq.jobs", nil, nil, "too short", subjects.ErrVerb},
		{"unknown verb", "pq.jobs.pop", nil, nil, "pop.min", subjects.ErrVerb},
		{
			"unknown verb of a FIFO queue", "q.jobs.enqueue", nil, payload,
			"want one of push, push.batch, pop, peek, len", subjects.ErrVerb,
		},
		{
			"peek of a FIFO queue with another payload", "q.jobs.peek", nil, payload,
			"want a JSON object", errBadRequest,
		},
		{
			"group of a pop from a FIFO queue", "q.jobs.pop", nats.Header{"Pq-Group": {"a"}}, nil,
			"header Pq-Group with pop:", errBadRequest,
		},
		{
			"pop with a payload", "pq.jobs.pop.min", nil, payload, "want a JSON object",
			errBadRequest,
		},
		{"len with a payload", "pq.jobs.len", nil, payload, "want none", errBadRequest},
		{
			"unknown Pq- header", "pq.jobs.push", nats.Header{"Pq-Deadline": {"5s"}}, payload,
			"push takes only these, spelled like this: Pq-Priority, ", errBadRequest,
		},
		{
			"unknown Pq- header, FIFO", "q.jobs.push", nats.Header{"Pq-A": {"b"}}, payload,
			"push takes only these, spelled like this: Pq-Delay, ", errBadRequest,
		},
		{
			"unknown Pq- header of a pop", "q.jobs.pop", nats.Header{"Pq-Wait": {"5s"}}, nil,
			`unknown header "Pq-Wait": pop takes no headers that begin with Pq-`, errBadRequest,
		},
		{
			"delay without a unit", "pq.jobs.push", nats.Header{"Pq-Delay": {"5"}}, payload,
			"with a unit", subjects.ErrTiming,
		},
		{
			"two delays", "pq.jobs.push", nats.Header{"Pq-Delay": {"1s", "1s"}}, payload, "once",
			errBadRequest,
		},
		{
			"delay of a pop", "pq.jobs.pop.min", nats.Header{"Pq-Delay": {"5s"}}, nil,
			"only a push", errBadRequest,
		},
		{
			"delay of a batch", "pq.jobs.push.batch", nats.Header{"Pq-Delay": {"5s"}}, payload,
			"only a push", errBadRequest,
		},
		{
			"TTL that is no duration", "pq.jobs.push", nats.Header{"Nats-TTL": {"soon"}}, payload,
			"never", subjects.ErrTiming,
		},
		{
			"delay and schedule", "pq.jobs.push",
			nats.Header{"Pq-Delay": {"0s"}, "Nats-Schedule": {"@at 2026-11-21T12:00:10Z"}}, payload,
			"one of them", errBadRequest,
		},
		{
			"delay of a joiner", "pq.jobs.push",
			nats.Header{"Pq-Join": {"1h"}, "Pq-Delay": {"0s"}}, payload,
			"headers Pq-Delay and Pq-Join: want one of them", errBadRequest,
		},
		{
			"keep without a unit", "pq.jobs.push", nats.Header{"Pq-Keep": {"60"}}, payload,
			`header Pq-Keep: bad time: "60": want a duration with a unit`, subjects.ErrTiming,
		},
		{
			"keep for less than a second", "pq.jobs.push", nats.Header{"Pq-Keep": {"999ms"}},
			payload, "from 1s to 87600h0m0s", subjects.ErrTiming,
		},
		{
			"keep for more than ten years", "pq.jobs.push", nats.Header{"Pq-Keep": {"87601h"}},
			payload, "from 1s to 87600h0m0s", subjects.ErrTiming,
		},
		{
			"two keeps", "pq.jobs.push", nats.Header{"Pq-Keep": {"1h", "1h"}}, payload,
			"header Pq-Keep given twice", errBadRequest,
		},
		{
			"keep in lower case", "pq.jobs.push", nats.Header{"pq-keep": {"1h"}}, payload,
			"spelled like this", errBadRequest,
		},
		{
			"keep of a pop", "pq.jobs.pop.min", nats.Header{"Pq-Keep": {"1h"}}, nil,
			"only a push", errBadRequest,
		},
		{
			"keep of a batch", "pq.jobs.push.batch", nats.Header{"Pq-Keep": {"1h"}}, payload,
			"only a push", errBadRequest,
		},
		{
			"keep of an item in a batch", "pq.jobs.push.batch", nil,
			[]byte(frames(frame(0, "Pq-Keep: soon\r\n", ""))), "item 0: header Pq-Keep",
			subjects.ErrTiming,
		},
		{
			"keep of a schedule", "pq.jobs.schedule", nil,
			[]byte(`{"id":"s","every":"1h","headers":{"Pq-Keep":["1h 30m"]}}`),
			`header Pq-Keep: bad time: "1h 30m": want a duration`, errBadRequest,
		},
		{
			"acknowledgement in a push", "pq.jobs.push", nats.Header{"Pq-Ack": {"+ACK"}}, payload,
			"header Pq-Ack with push: only an acknowledgement has one", errBadRequest,
		},
		{
			"frames of a pop", "pq.jobs.pop.min", nats.Header{"Pq-Frames": {"1"}}, nil,
			"header Pq-Frames with pop.min: only an acknowledgement", errBadRequest,
		},
		{
			"Pq- header in lower case", "pq.jobs.push", nats.Header{"pq-priority": {"5"}}, payload,
			subjects.HeaderPriority, errBadRequest,
		},
		{
			"two unique keys", "q.jobs.push", nats.Header{"Pq-Unique": {"a", "a"}}, payload,
			"Pq-Unique is given 2 times: want one", subjects.ErrKey,
		},
		{
			"empty group", "pq.jobs.push", nats.Header{"Pq-Group": {""}}, payload,
			"bad Pq-Group: want 1 to 128 bytes of UTF-8 in one line, once", subjects.ErrGroup,
		},
		{
			"group in lower case", "pq.jobs.push", nats.Header{"pq-group": {"a"}}, payload,
			"spelled like this", errBadRequest,
		},
		{
			"group of a pop", "pq.jobs.pop.min", nats.Header{"Pq-Group": {"a"}}, nil,
			"only a push has one", errBadRequest,
		},
		{
			"weight 0", "pq.jobs.push",
			nats.Header{"Pq-Group": {"a"}, "Pq-Weight": {"0"}}, payload,
			`bad Pq-Weight "0": want an integer from 1 to 100, beside Pq-Group`, subjects.ErrWeight,
		},
		{
			"error header", "pq.jobs.push", nats.Header{"Nats-Service-Error": {"no"}}, payload,
			"take it for an error", errBadRequest,
		},
		{
			"no responders header", "pq.jobs.push", nats.Header{"Status": {"503"}}, nil,
			"no responders", errBadRequest,
		},
		{
			"header of a pull that ends", "pq.jobs.push", nats.Header{"Status": {"404"}}, nil,
			"header Status without a value", errBadRequest,
		},
		{
			"header of any status in a batch", "pq.jobs.push.batch", nil,
			[]byte(frames(frame(0, "Status: 7\r\n", ""))), "item 0: bad request: header Status",
			errBadRequest,
		},
	}

	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := refused(t, e, 400, test.subject, test.headers, test.payload)
			if !strings.Contains(err.Text, test.text) {
				t.Errorf("text %q: want it to say %q", err.Text, test.text)
			}
			if !errors.Is(err, test.is) {
				t.Errorf("%v is not %v", err, test.is)
			}
		})
	}

	// Nothing was stored, and the bridge keeps working.
	wantLen(t, e, "pq", "jobs", 0)
	wantLen(t, e, "q", "jobs", 0)
	wantMetric(t, e.Bridge, `pq_errors_total{code="400",operation="fifo-push"}`, 3)
}

// Requests whose answer nobody could receive do nothing, and are counted.
func TestNoReplySubject(t *testing.T) {
	e := start(t, testenv.Options{})
	push(t, e, "pq.jobs.push", nil, "stays")
	publish(t, e, "pq.jobs.push", "pq.jobs.push", "reply subject is a request")
	publish(t, e, "pq.jobs.push", "q.other.push", "reply subject is a request")
	publish(t, e, "pq.jobs.pop.min", "", "")
	publish(t, e, "pq.jobs.len", "", "")
	publish(t, e, "pq.jobs.push.high", "", "x")
	publish(t, e, "pq.jobs.nonsense", "", "x")

	// A correct push needs none.
	publish(t, e, "pq.jobs.push.1", "", "second")

	wantLen(t, e, "pq", "jobs", 2)
	wantLen(t, e, "q", "other", 0)
	wantMetric(t, e.Bridge, "pq_unanswered_total", 6)
	wantMetric(t, e.Bridge, "pq_pending_requests", 0)
}

// Neither errors nor the log repeat the token of a lease that holds: anybody who reads it could
// acknowledge the item.
func TestTokensAreNotRepeated(t *testing.T) {
	log := &syncLog{}
	e := start(t, testenv.Options{Bridge: func(o *bridge.Options) { o.Logger = log.logger() }})
	push(t, e, "pq.jobs.push", nil, "x")
	ack := leaseOne(t, e, "pq.jobs.pop.min", `{"ack_wait":"1h"}`, "x")
	token := ack[strings.LastIndexByte(ack, '.')+1:]

	for _, subject := range []string{
		ack + ".x", ack + "x", ack[:len(ack)-1], "pq.jobs.Ack." + token, "pq.jobs.push." + token,
	} {
		err := replyError(e.Request(subject, nil, []byte("+ACK")).Header)
		if err == nil || strings.Contains(err.Error(), token[:13]) {
			t.Errorf("%s: %v", subject, err)
		}
	}

	err := refused(t, e, 400, "pq.jobs.push", nats.Header{subjects.HeaderPriority: {token}}, nil)
	if strings.Contains(err.Error(), token[:13]) {
		t.Errorf("in header %s: %v", subjects.HeaderPriority, err)
	}

	for _, subject := range []string{"pq.jobs.len", "pq.jobs.push", ack + ".x"} {
		publish(t, e, subject, ack, "x")
	}

	publish(t, e, "pq.jobs.push."+token, "", "x")
	wantMetric(t, e.Bridge, "pq_unanswered_total", 4)

	text := log.String()
	if strings.Contains(text, token) || !strings.Contains(text, `pq.jobs.ack.`+token[:4]+"...") {
		t.Errorf("token %s is in the log:\n%s", token, text)
	}

	acknowledge(t, e, ack, "")
}

// A message too large for a transaction is refused without affecting others.
func TestTooLarge(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine testenv.Engine) {
		e := testenv.New(t, testenv.Options{Engine: engine, NATS: func(o *server.Options) {
			o.MaxPayload = 12 << 20
			o.MaxPending = 64 << 20
		}})

		err := refused(t, e, 413, "pq.jobs.push", nil, make([]byte, 10<<20))
		if !errors.Is(err, errTooLarge) {
			t.Errorf("%v", err)
		}

		push(t, e, "pq.jobs.push", nil, strings.Repeat("x", 8<<20))
		if reply := ok(t, e, "pq.jobs.pop.min", nil, ""); len(reply.Data) != 8<<20 {
			t.Errorf("%d bytes came back", len(reply.Data))
		}
	})
}

// Headers sent without spaces grow on their way back; if that makes them too large for
// a reply, the push is refused.
func TestHeadersThatGrow(t *testing.T) {
	e := start(t, testenv.Options{NATS: func(o *server.Options) { o.MaxPayload = 4096 }})
	headers := "NATS/1.0\r\n" + strings.Repeat("a:b\r\n", 10) + "\r\n"
	c := dialRaw(t, e)

	reply := c.request("pq.jobs.push", headers, strings.Repeat("x", 4096-len(headers)))
	if !strings.Contains(reply.headers, "Nats-Service-Error-Code: 413") {
		t.Errorf("reply %q", reply)
	}

	reply = c.request("pq.jobs.push", headers, strings.Repeat("x", 4096-len(headers)-10))
	if !strings.Contains(reply.payload, `"queue":"jobs"`) {
		t.Errorf("reply %q", reply)
	}

	got := ok(t, e, "pq.jobs.pop.min", nil, "")
	if len(got.Header["a"]) != 10 || len(got.Data) != 4096-len(headers)-10 {
		t.Errorf("%d bytes, headers %v", len(got.Data), got.Header)
	}
}

// An item stored when max_payload was larger is refused with 413, and is not lost.
func TestMaxPayloadLowered(t *testing.T) {
	e := start(t, testenv.Options{})
	push(t, e, "pq.jobs.push.3", nil, strings.Repeat("x", 10_000))
	e.NATS.Change(func(o *server.Options) { o.MaxPayload = 4096 })
	e.NATS.Restart()
	e.Bridge.WaitReady()

	testenv.Eventually(t, e.Conn.Flush)

	for _, subject := range []string{"pq.jobs.peek.min", "pq.jobs.pop.min"} {
		err := refused(t, e, 413, subject, nil, nil)
		if !strings.Contains(err.Text, "max_payload was larger") {
			t.Errorf("%v", err)
		}
	}
	wantQueued(t, e, 1)
	wantMetric(t, e.Bridge, "pq_reply_failures_total", 2)
	wantMetric(t, e.Bridge, `pq_errors_total{code="413",operation="pop-min"}`, 1)

	e.NATS.Change(func(o *server.Options) { o.MaxPayload = 1 << 20 })
	e.NATS.Restart()
	e.Bridge.WaitReady()

	testenv.Eventually(t, e.Conn.Flush)

	got := ok(t, e, "pq.jobs.pop.min", nil, "")
	if len(got.Data) != 10_000 || got.Header.Get(subjects.HeaderPriority) != "3" {
		t.Errorf("%d bytes with %v came back", len(got.Data), got.Header)
	}
}
