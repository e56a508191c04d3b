package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

func newJetStream(t *testing.T, e *testenv.Env) (jetstream.JetStream, context.Context) {
	t.Helper()
	js, err := jetstream.New(e.Conn)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	t.Cleanup(cancel)

	return js, ctx
}

// A JetStream publisher can push, and reads the reply as if a stream had sent it.
func TestJetStreamPublish(t *testing.T) {
	e := start(t, testenv.Options{})
	js, ctx := newJetStream(t, e)

	check := func(what, queue string, ack *jetstream.PubAck, err error) {
		t.Helper()
		if err != nil || ack.Stream != queue || ack.Sequence == 0 || ack.Sequence >= 1<<53 ||
			ack.Duplicate {
			t.Errorf("%s: %+v, %v", what, ack, err)
		}
	}

	ack, err := js.Publish(ctx, "pq.jobs.push", []byte("a"))
	check("Publish", "jobs", ack, err)

	ack, err = js.Publish(ctx, "pq.jobs.push.5", []byte("c"), jetstream.WithExpectStream("jobs"))
	check("expected stream", "jobs", ack, err)

	m := &nats.Msg{
		Subject: "pq.jobs.push",
		Header:  nats.Header{subjects.HeaderPriority: {"7"}, "a": {"b"}},
		Data:    []byte("d"),
	}

	ack, err = js.PublishMsg(ctx, m, jetstream.WithMsgID("id"), jetstream.WithExpectStream("jobs"))
	check("PublishMsg", "jobs", ack, err)

	again, err := js.PublishMsg(ctx, m)
	if err != nil || !again.Duplicate || again.Sequence != ack.Sequence {
		t.Errorf("a duplicate: %+v, %v", again, err)
	}

	ack, err = js.Publish(ctx, "q.mail.push", []byte("a"), jetstream.WithExpectStream("mail"))
	check("FIFO", "mail", ack, err)

	ack, err = js.Publish(ctx, "pq.jobs.push.batch",
		[]byte(frames(frame(1, "", "b"), frame(9, "", "e"))))
	check("batch", "jobs", ack, err)

	future, err := js.PublishAsync("pq.jobs.push.10", []byte("f"),
		jetstream.WithExpectStream("jobs"))
	must(t, err)

	select {
	case ack := <-future.Ok():
		check("PublishAsync", "jobs", ack, nil)
	case err := <-future.Err():
		t.Errorf("PublishAsync: %v", err)
	case <-ctx.Done():
		t.Error("PublishAsync: no reply")
	}

	ack, err = js.Publish(ctx, "pq.later.push", []byte("g"),
		jetstream.WithScheduleAt(time.Now().Add(time.Hour)))
	check("schedule", "later", ack, err)
	refused(t, e, 404, "pq.later.pop.min", nil, nil)

	for _, want := range []string{"a", "b", "c", "d", "e", "f"} {
		m := ok(t, e, "pq.jobs.pop.min", nil, "")
		if string(m.Data) != want || m.Header.Get(subjects.HeaderExpectedStream) != "" {
			t.Errorf("popped %q with %v, want %q", m.Data, m.Header, want)
		}
	}
}

// The sequence number of a reply is the time of the push that pops report.
func TestPushSequence(t *testing.T) {
	e := start(t, testenv.Options{})
	pushed := push(t, e, "pq.jobs.push", nil, "x")

	info, err := subjects.ParseItemHeaders(ok(t, e, "pq.jobs.pop.min", nil, "").Header)
	if err != nil || uint64(info.PushedAt.UnixMicro()) != pushed.Seq || pushed.Stream != "jobs" {
		t.Errorf("pushed %+v, popped %+v, %v", pushed, info, err)
	}
}

// A JetStream publisher that asks for something that queues lack is refused, in a form that it
// reads.
func TestJetStreamPublishRefused(t *testing.T) {
	e := start(t, testenv.Options{})
	js, ctx := newJetStream(t, e)

	for _, test := range []struct {
		subject string
		option  jetstream.PublishOpt
		text    string
	}{
		{
			"pq.jobs.push", jetstream.WithExpectStream("orders"),
			`the stream "orders" is expected, and the queue is jobs: want that name`,
		},
		{"pq.jobs.push", jetstream.WithExpectStream("JOBS"), `the stream "JOBS" is expected`},
		{"q.jobs.push", jetstream.WithExpectStream("orders"), `the stream "orders" is expected`},
		{
			"pq.jobs.push", jetstream.WithExpectLastSequence(5),
			"it is a condition that only a stream can check",
		},
		{"pq.jobs.psuh", jetstream.WithMsgID("x"), "unknown verb"},
		{"pq.jobs.push.batch", jetstream.WithExpectStream("jobs"), "items in it"},
	} {
		_, err := js.Publish(ctx, test.subject, []byte("x"), test.option)
		var told *jetstream.APIError
		if !errors.As(err, &told) || told.Code != 400 ||
			!strings.Contains(told.Description, test.text) {
			t.Errorf("%s: %v: want it to say %q", test.subject, err, test.text)
		}
	}
	wantLen(t, e, "pq", "jobs", 0)
	wantLen(t, e, "q", "jobs", 0)
}

// Only pushes, and requests that may be meant as one, have the error in the payload as well:
// other replies with a payload are items.
func TestErrorPayloads(t *testing.T) {
	e := start(t, testenv.Options{})
	for subject, payload := range map[string]bool{
		"pq.jobs.push.x":     true,
		"pq.jobs.push.batch": true,
		"q.jobs.push.batch":  true,
		"pq.jobs.nonsense":   true,
		"pq.jobs.pop.min":    false,
		"pq.jobs.peek.max":   false,
		"q.jobs.pop":         false,
		"pq.jobs.ack.x":      false,
	} {
		m := e.Request(subject, nil, nil)
		err, ok := replyError(m.Header).(*refusal)
		if !ok {
			t.Errorf("%s: no error", subject)
			continue
		}

		want := ""
		if payload {
			want = fmt.Sprintf(`{"error":{"code":%d,"description":`, err.Code)
		}
		if !strings.HasPrefix(string(m.Data), want) || want == "" && len(m.Data) > 0 {
			t.Errorf("%s: payload %q", subject, m.Data)
		}
	}
}

// The second push with a message id or unique key gets the reply of the first, marked as a
// duplicate. Both headers come back with the item.
func TestDuplicates(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		for _, kind := range kinds {
			both := nats.Header{"Nats-Msg-Id": {"1"}, "Pq-Unique": {"k"}, "Other": {"x"}}
			first := push(t, e, kind.push, both, "v")
			want := first
			want.Duplicate = true

			for _, h := range []nats.Header{
				both,
				{"Nats-Msg-Id": {"1"}},
				{"Pq-Unique": {"k"}},
				{"Nats-Msg-Id": {"2"}, "Pq-Unique": {"k"}},
			} {
				got := push(t, e, kind.push, h, "v")
				if first.Duplicate || !reflect.DeepEqual(got, want) {
					t.Errorf("%s: %v: %+v, want %+v", kind.push, h, got, want)
				}
			}
			for _, subject := range []string{kind.peek, kind.pop} {
				wantHeaders(t, ok(t, e, subject, nil, ""), both)
			}

			batch := frames(
				frame(0, "Nats-Msg-Id: 1\r\n", "v"),
				frame(0, "Pq-Unique: k\r\n", "v"),
				frame(0, "", ""),
				frame(0, "Pq-Unique: k\r\nNats-Msg-Id: 3\r\n", "v"),
			)
			reply, err := subjects.ParsePushedBatch(ok(t, e, kind.push+".batch", nil, batch).Data)
			if err != nil || !slices.Equal(reply.Duplicates, []int{0, 3}) ||
				reply.IDs[0] != first.ID || reply.IDs[3] != reply.IDs[1] || reply.Seq == first.Seq {
				t.Errorf("%s: %+v, %v", kind.push, reply, err)
			}

			configure(t, e, kind.queue, `{"duplicate_window":"0"}`, `{"duplicate_window":"0s"}`)
			ok(t, e, kind.push, nats.Header{"Nats-Msg-Id": {"4"}}, "")
			if got := push(t, e, kind.push, nats.Header{"Nats-Msg-Id": {"4"}}, "v"); got.Duplicate {
				t.Errorf("a duplicate without a window: %+v", got)
			}

			configure(t, e, kind.queue, `{"duplicate_window":"100ms"}`,
				`{"duplicate_window":"100ms"}`)
			configure(t, e, kind.queue, `{"duplicate_window":null}`, `{}`)
		}
		wantMetric(t, e.Bridge, "pq_duplicates_total", 12)
	})
}
