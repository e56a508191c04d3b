package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

func TestBadInput(t *testing.T) {
	e := start(t, testenv.Options{})
	priority := func(values ...string) nats.Header { return nats.Header{subjects.HeaderPriority: values} }
	payload := []byte("x")
	tests := []struct {
		name    string
		subject string
		headers nats.Header
		payload []byte
		text    string // part of the error's text
		is      error
	}{
		{"priority is no number", "pq.jobs.push", priority("high"), payload, "decimal", subjects.ErrPriority},
		{"subject and header differ", "pq.jobs.push.1", priority("2"), payload, "1 and 2", subjects.ErrPriority},
		{"priority of a pop", "pq.jobs.pop.min", priority("1"), nil, "only a push", bridge.ErrBadRequest},
		{"priority of a FIFO queue", "q.jobs.enqueue", priority("1"), payload, "only a push to a priority queue", bridge.ErrBadRequest},
		{"name too long", "pq." + strings.Repeat("a", 129) + ".push", nil, payload, "129 bytes", subjects.ErrQueueName},
		{"no verb", "pq.jobs", nil, nil, "too short", subjects.ErrVerb},
		{"unknown verb", "pq.jobs.pop", nil, nil, "pop.min", subjects.ErrVerb},
		{"pop with a payload", "pq.jobs.pop.min", nil, payload, "want a JSON object", bridge.ErrBadRequest},
		{"len with a payload", "pq.jobs.len", nil, payload, "want none", bridge.ErrBadRequest},
		{"unknown Pq- header", "pq.jobs.push", nats.Header{"Pq-Deadline": {"5s"}}, payload, "Pq-Deadline", bridge.ErrBadRequest},
		{"delay without a unit", "pq.jobs.push", nats.Header{"Pq-Delay": {"5"}}, payload, "with a unit", subjects.ErrTiming},
		{"two delays", "pq.jobs.push", nats.Header{"Pq-Delay": {"1s", "1s"}}, payload, "once", bridge.ErrBadRequest},
		{"delay of a pop", "pq.jobs.pop.min", nats.Header{"Pq-Delay": {"5s"}}, nil, "only a push", bridge.ErrBadRequest},
		{"delay of a batch", "pq.jobs.push.batch", nats.Header{"Pq-Delay": {"5s"}}, payload, "only a push", bridge.ErrBadRequest},
		{"TTL that is no duration", "pq.jobs.push", nats.Header{"Nats-TTL": {"soon"}}, payload, "never", subjects.ErrTiming},
		{"delay and schedule", "pq.jobs.push", nats.Header{"Pq-Delay": {"0s"}, "Nats-Schedule": {"@at 2026-11-21T12:00:10Z"}}, payload, "one of them", bridge.ErrBadRequest},
		{"Pq- header in lower case", "pq.jobs.push", nats.Header{"pq-priority": {"5"}}, payload, subjects.HeaderPriority, bridge.ErrBadRequest},
		{"two unique keys", "q.jobs.enqueue", nats.Header{"Pq-Unique": {"a", "a"}}, payload, "Pq-Unique is given 2 times: want one", subjects.ErrKey},
		{"empty group", "pq.jobs.push", nats.Header{"Pq-Group": {""}}, payload, "bad Pq-Group: want 1 to 128 bytes in one line, once", subjects.ErrGroup},
		{"group in lower case", "pq.jobs.push", nats.Header{"pq-group": {"a"}}, payload, "spelled like this", bridge.ErrBadRequest},
		{"group of a pop", "pq.jobs.pop.min", nats.Header{"Pq-Group": {"a"}}, nil, "only a push has one", bridge.ErrBadRequest},
		{"weight 0", "pq.jobs.push", nats.Header{"Pq-Group": {"a"}, "Pq-Weight": {"0"}}, payload, `bad Pq-Weight "0": want an integer from 1 to 100, beside Pq-Group`, subjects.ErrWeight},
		{"error header", "pq.jobs.push", nats.Header{"Nats-Service-Error": {"no"}}, payload, "take it for an error", bridge.ErrBadRequest},
		{"no responders header", "pq.jobs.push", nats.Header{"Status": {"503"}}, nil, "no responders", bridge.ErrBadRequest},
		{"header of a pull that ends", "pq.jobs.push", nats.Header{"Status": {"404"}}, nil, "header Status without a value", bridge.ErrBadRequest},
		{"header of any status in a batch", "pq.jobs.push.batch", nil, []byte(frames(frame(0, "Status: 7\r\n", ""))), "item 0: bad request: header Status", bridge.ErrBadRequest},
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
	wantMetric(t, e.Bridge, `pq_errors_total{code="400",operation="enqueue"}`, 2)
}

// Requests whose answer nobody could receive are counted, and do nothing.
func TestNoReplySubject(t *testing.T) {
	e := start(t, testenv.Options{})
	push(t, e, "pq.jobs.push", nil, "stays")
	publish(t, e, "pq.jobs.push", "pq.jobs.push", "reply subject is a request")
	publish(t, e, "pq.jobs.push", "q.other.enqueue", "reply subject is a request")
	publish(t, e, "pq.jobs.pop.min", "", "")
	publish(t, e, "pq.jobs.len", "", "")
	publish(t, e, "pq.jobs.push.high", "", "x")
	publish(t, e, "pq.jobs.nonsense", "", "x")
	// A correct push without a reply subject.
	publish(t, e, "pq.jobs.push.1", "", "second")
	wantLen(t, e, "pq", "jobs", 2)
	wantLen(t, e, "q", "other", 0)
	wantMetric(t, e.Bridge, "pq_unanswered_total", 6)
	wantMetric(t, e.Bridge, "pq_pending_requests", 0)
}

// Neither errors nor the log repeat the token of a lease that holds: anybody who reads it could acknowledge the item.
func TestTokensAreNotRepeated(t *testing.T) {
	log := &syncLog{}
	e := start(t, testenv.Options{Bridge: func(o *bridge.Options) { o.Logger = log.logger() }})
	push(t, e, "pq.jobs.push", nil, "x")
	ack := leased(t, e, "pq.jobs.pop.min", `{"ack_wait":"1h"}`, "x")
	token := ack[strings.LastIndexByte(ack, '.')+1:]
	for _, subject := range []string{ack + ".x", ack + "x", ack[:len(ack)-1], "pq.jobs.Ack." + token, "pq.jobs.push." + token} {
		err := bridge.ErrorFromHeaders(e.Request(subject, nil, []byte("+ACK")).Header)
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
	if text := log.String(); strings.Contains(text, token) || !strings.Contains(text, `pq.jobs.ack.`+token[:4]+"...") {
		t.Errorf("token %s is in the log:\n%s", token, text)
	}
	acked(t, e, ack, "")
}

// A message too large for a transaction is refused without affecting others.
func TestTooLarge(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine testenv.Engine) {
		e := testenv.New(t, testenv.Options{Engine: engine, NATS: func(o *server.Options) {
			o.MaxPayload = 12 << 20
			o.MaxPending = 64 << 20
		}})
		if err := refused(t, e, 413, "pq.jobs.push", nil, make([]byte, 10<<20)); !errors.Is(err, bridge.ErrTooLarge) {
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
	if got := ok(t, e, "pq.jobs.pop.min", nil, ""); len(got.Header["a"]) != 10 || len(got.Data) != 4096-len(headers)-10 {
		t.Errorf("%d bytes, headers %v", len(got.Data), got.Header)
	}
}

// An item stored when max_payload was larger is answered 413, and is not lost.
func TestMaxPayloadLowered(t *testing.T) {
	e := start(t, testenv.Options{})
	push(t, e, "pq.jobs.push.3", nil, strings.Repeat("x", 10_000))
	e.NATS.Change(func(o *server.Options) { o.MaxPayload = 4096 })
	e.NATS.Restart()
	e.Bridge.WaitReady()
	testenv.Eventually(t, e.Conn.Flush)
	for _, subject := range []string{"pq.jobs.peek.min", "pq.jobs.pop.min"} {
		if err := refused(t, e, 413, subject, nil, nil); !strings.Contains(err.Text, "max_payload was larger") {
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
	if got := ok(t, e, "pq.jobs.pop.min", nil, ""); len(got.Data) != 10_000 || got.Header.Get(subjects.HeaderPriority) != "3" {
		t.Errorf("%d bytes with %v came back", len(got.Data), got.Header)
	}
}

// Each error that a batch can end with reaches the client with its code, and
// comes back as the same error.
func TestErrorsOverTheWire(t *testing.T) {
	var current atomic.Pointer[error]
	fail := func(context.Context) error {
		if err := current.Load(); err != nil {
			return fmt.Errorf("made to fail: %w", *err)
		}
		return nil
	}
	e := start(t, testenv.Options{Wrap: (&hooked{begin: fail, read: fail}).wrap})
	// Some mean that a request is tried again until its time is over.
	impatient := testenv.New(t, testenv.Options{
		Wrap:   (&hooked{begin: fail, read: fail}).wrap,
		Bridge: func(o *bridge.Options) { o.RequestTimeout = 50 * time.Millisecond },
	})
	internal := bridge.WireError{Err: io.ErrUnexpectedEOF, Code: 500}
	for _, row := range append(bridge.WireErrors(), internal) {
		t.Run(row.Err.Error(), func(t *testing.T) {
			current.Store(&row.Err)
			e := e
			if row.Code == 503 {
				e = impatient
			}
			var err *bridge.Error
			testenv.Eventually(t, func() error { // its time may be over at any point
				if err = refused(t, e, row.Code, "pq.jobs.push", nil, []byte("x")); err.Unknown != row.Unknown {
					return fmt.Errorf("%v: unknown outcome: %t", err, err.Unknown)
				}
				return nil
			})
			if row != internal && !errors.Is(err, row.Err) {
				t.Errorf("%v is not %v", err, row.Err)
			}
			refused(t, e, row.Code, "pq.jobs.peek.min", nil, nil)
			for _, other := range bridge.WireErrors() {
				same := other.Code == row.Code && other.Unknown == row.Unknown
				if errors.Is(err, other.Err) != same {
					t.Errorf("%v is %v: %t", err, other.Err, !same)
				}
			}
			if !slices.Contains(subjects.Codes(), subjects.Code(row.Code)) {
				t.Errorf("no metric for %d", row.Code)
			}
		})
	}
	current.Store(nil)
	wantSettled(t, e)
	wantLen(t, e, "pq", "jobs", 0)
	push(t, e, "pq.jobs.push", nil, "x")
}
