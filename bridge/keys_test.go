package bridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// pushOnce pushes and returns the reply.
func pushOnce(t *testing.T, e *testenv.Env, subject string, h nats.Header) (p subjects.Pushed) {
	t.Helper()
	if err := json.Unmarshal(ok(t, e, subject, h, "v").Data, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// The second push with a message id or unique key says so, with what the first one's reply said, and
// the headers come back as they were pushed.
func TestDuplicates(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		for _, kind := range kinds {
			both := nats.Header{"Nats-Msg-Id": {"1"}, "Pq-Unique": {"k"}, "Other": {"x"}}
			first := pushOnce(t, e, kind.push, both)
			want := first
			want.Duplicate = true
			for _, h := range []nats.Header{both, {"Nats-Msg-Id": {"1"}}, {"Pq-Unique": {"k"}}, {"Nats-Msg-Id": {"2"}, "Pq-Unique": {"k"}}} {
				if got := pushOnce(t, e, kind.push, h); first.Duplicate || fmt.Sprintf("%+v", deref(got)) != fmt.Sprintf("%+v", deref(want)) {
					t.Errorf("%s: %v: %+v, want %+v", kind.push, h, got, want)
				}
			}
			for _, subject := range []string{kind.peek, kind.pop} {
				wantHeaders(t, ok(t, e, subject, nil, ""), both)
			}
			batch := frames(frame(0, "Nats-Msg-Id: 1\r\n", "v"), frame(0, "Pq-Unique: k\r\n", "v"), frame(0, "", ""), frame(0, "Pq-Unique: k\r\nNats-Msg-Id: 3\r\n", "v"))
			reply, err := subjects.ParsePushedBatch(ok(t, e, kind.push+".batch", nil, batch).Data)
			if err != nil || !slices.Equal(reply.Duplicates, []int{0, 3}) || reply.IDs[0] != first.ID || reply.IDs[3] != reply.IDs[1] || reply.Seq == first.Seq {
				t.Errorf("%s: %+v, %v", kind.push, reply, err)
			}
			configured(t, e, kind.queue, `{"duplicate_window":"0"}`, `{"duplicate_window":"0s"}`)
			ok(t, e, kind.push, nats.Header{"Nats-Msg-Id": {"4"}}, "")
			if got := pushOnce(t, e, kind.push, nats.Header{"Nats-Msg-Id": {"4"}}); got.Duplicate {
				t.Errorf("a duplicate without a window: %+v", got)
			}
			configured(t, e, kind.queue, `{"duplicate_window":"100ms"}`, `{"duplicate_window":"100ms"}`)
			configured(t, e, kind.queue, `{"duplicate_window":null}`, `{}`)
		}
		wantMetric(t, e.Bridge, "pq_duplicates_total", 12)
	})
}

// deref makes the replies comparable as text.
func deref(p subjects.Pushed) (flat struct {
	subjects.Pushed
	priority int64
}) {
	if flat.Pushed = p; p.Priority != nil {
		flat.priority, flat.Pushed.Priority = *p.Priority, nil
	}
	return flat
}

// Message ids and unique keys that are none are refused, and so are unique keys on other requests.
func TestBadKeys(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	long := strings.Repeat("x", 513)
	for _, test := range []struct {
		subject string
		headers nats.Header
		text    string
	}{
		{"pq.jobs.push", nats.Header{"Nats-Msg-Id": {""}}, "Nats-Msg-Id has 0 bytes: want 1 to 512"},
		{"pq.jobs.push", nats.Header{"Nats-Msg-Id": {long}}, "Nats-Msg-Id has 513 bytes: want 1 to 512"},
		{"pq.jobs.push", nats.Header{"Pq-Unique": {long}}, "Pq-Unique has 513 bytes"},
		{"q.jobs.enqueue", nats.Header{"Pq-Unique": {"a", "a"}}, "Pq-Unique is given 2 times: want one"},
		{"q.jobs.enqueue", nats.Header{"Nats-Msg-Id": {"a", "b", "c"}}, "Nats-Msg-Id is given 3 times: want one"},
		{"pq.jobs.push", nats.Header{"nats-msg-id": {"a"}}, "want it spelled Nats-Msg-Id"},
		{"pq.jobs.push", nats.Header{"pq-unique": {"a"}}, "only these are known, spelled like this: Pq-Priority, Pq-Delay, Pq-Unique"},
		{"pq.jobs.pop.min", nats.Header{"Pq-Unique": {"a"}}, "Pq-Unique with pop.min: only a push has one"},
		{"pq.jobs.push.batch", nats.Header{"Pq-Unique": {"a"}}, "Pq-Unique with push.batch: only a push has one"},
	} {
		if err := refused(t, e, 400, test.subject, test.headers, nil); !strings.Contains(err.Text, test.text) {
			t.Errorf("%s %v: %v: want it to say %q", test.subject, test.headers, err, test.text)
		}
	}
	batch := frames(frame(0, "", "good"), frame(0, "Pq-Unique: "+long+"\r\n", ""))
	if err := refused(t, e, 400, "pq.jobs.push.batch", nil, []byte(batch)); !strings.Contains(err.Text, "item 1: bad key: header Pq-Unique has 513") {
		t.Error(err)
	}
	if n := e.Request("pq.jobs.len", nil, nil); string(n.Data) != `{"queue":"jobs","len":0}` {
		t.Errorf("something was pushed: %s", n.Data)
	}
	if err := refused(t, e, 400, "pq.jobs.config", nil, []byte(`{"duplicate_window":"1ms"}`)); !strings.Contains(err.Text, "duplicate_window: \"1ms\": want 100ms to 87600h0m0s") {
		t.Error(err)
	}
}

// JetStream's publishers learn of duplicates as from a stream.
func TestJetStreamDuplicates(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	js, err := jetstream.New(e.Conn)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, want := range []bool{false, true} {
		ack, err := js.Publish(ctx, "pq.jobs.push.5", []byte("v"), jetstream.WithMsgID("1"))
		if err != nil || ack.Duplicate != want {
			t.Errorf("%+v, %v: want a duplicate: %t", ack, err, want)
		}
	}
}
