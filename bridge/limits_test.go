package bridge_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// During a pause nobody gets items. Pops that wait get them when it ends. Pushes, peeks and
// acknowledgements go on.
func TestPause(t *testing.T) {
	clock := newSteppedClock()
	e := start(t, testenv.Options{Bridge: clock.options})

	for _, kind := range kinds {
		push(t, e, kind.push, nil, "a")
		token := leaseOne(t, e, kind.pop, `{"ack_wait":"2h"}`, "a")
		setting := fmt.Sprintf(`{"pause_until":%q}`, clock.after(time.Hour))
		configure(t, e, kind.queue, setting, setting)
		push(t, e, kind.push, nil, "b")

		for _, payload := range []string{
			``, `{"ack_wait":"1h"}`, `{"batch":5}`, `{"expires":"1ms"}`,
		} {
			err := refused(t, e, 404, kind.pop, nil, []byte(payload))
			if !strings.Contains(err.Text, "paused until ") {
				t.Errorf("%s %s: %v", kind.pop, payload, err)
			}
		}
		wantData(t, ok(t, e, kind.peek, nil, ""), "b")
		wantError(t, 404, token, e.Request(token, nil, []byte("+NXT")))
		wantError(t, 409, token, e.Request(token, nil, []byte("+ACK")))

		waits := ask(t, e.Conn, kind.pop, `{"expires":"1h"}`)
		configure(t, e, kind.queue, `{"pause_until":null}`, `{}`)
		wantNext(t, waits, "b")
	}
}

// A push that the queue has no room for gets 429, a batch of pushes as a whole, until items leave
// it.
func TestMaxItems(t *testing.T) {
	e := start(t, testenv.Options{})
	const refusals = `pq_refused_total{reason="max_items"}`
	wantMetric(t, e.Bridge, refusals, 0)

	for _, kind := range kinds {
		configure(t, e, kind.queue, `{"max_items":3}`, `{"max_items":3}`)
		pushAll(t, e, kind.push, "a", "b")
		batch := frames(frame(0, "", "x"), frame(0, "", "y"))

		err := refused(t, e, 429, kind.push+".batch", nil, []byte(batch))
		want := "it has 2 items, including leased and delayed ones, and max_items is 3"
		if !strings.Contains(err.Text, want) {
			t.Errorf("%v: want %q", err, want)
		}

		push(t, e, kind.push, nil, "c")
		refused(t, e, 429, kind.push, nil, []byte("d"))
		wantPopped(t, e, kind.pop, "a", "b", "c")

		err = refused(t, e, 413, kind.push+".batch", nil,
			[]byte(frames(slices.Repeat([]subjects.Frame{frame(0, "", "x")}, 4)...)))
		want = "4 items, and max_items of the queue is 3: push fewer"
		if !strings.Contains(err.Text, want) {
			t.Errorf("%v: want %q", err, want)
		}

		ok(t, e, kind.push+".batch", nil, batch)
	}
	wantMetric(t, e.Bridge, refusals, 4)
}

// Leases beyond max_leased get 429, or wait and get the places that become free.
func TestMaxLeased(t *testing.T) {
	e := start(t, testenv.Options{})
	for _, kind := range kinds {
		configure(t, e, kind.queue, `{"max_leased":2}`, `{"max_leased":2}`)
		pushAll(t, e, kind.push, "a", "b", "c", "d")
		several := ask(t, e.Conn, kind.pop, `{"batch":5,"ack_wait":"1h"}`)
		a := wantNext(t, several, "a").Reply
		wantNext(t, several, "b")
		wantEnd(t, several, 2, "429")

		refused(t, e, 429, kind.pop, nil, []byte(`{"ack_wait":"1h"}`))

		wantEnd(t, ask(t, e.Conn, kind.pop, `{"batch":5,"ack_wait":"1h"}`), 0, "429")
		err := refused(t, e, 404, kind.pop, nil, []byte(`{"ack_wait":"1h","expires":"10ms"}`))
		if !strings.Contains(err.Text, "as many items are leased") {
			t.Error(err)
		}

		waits := ask(t, e.Conn, kind.pop, `{"ack_wait":"1h","expires":"1h"}`)
		wantData(t, ok(t, e, kind.pop, nil, ""), "c")

		acknowledge(t, e, a, "")
		wantNext(t, waits, "d")
	}
	wantMetric(t, e.Bridge, `pq_refused_total{reason="max_leased"}`, 6)
}

// An item counts towards max_bytes as docs/protocol.md says, and one that exceeds it is refused
// with that reason.
func TestBytesOfAnItem(t *testing.T) {
	e := start(t, testenv.Options{})
	popsWith := func(what, subject string, bytes int) {
		t.Helper()
		options := func(n int) string { return fmt.Sprintf(`{"max_bytes":%d}`, n) }
		refusal := refused(t, e, 413, subject, nil, []byte(options(bytes-1)))
		if !strings.Contains(refusal.Text, "exceeds max_bytes") {
			t.Errorf("%s: the reason is %q", what, refusal.Text)
		}

		ok(t, e, subject, nil, options(bytes))
	}

	for _, test := range []struct {
		what    string
		headers nats.Header
		want    int
	}{
		{"a value", nil, len("value")},
		{
			"two headers",
			nats.Header{"A": {"bc"}, "Name": {""}},
			len("value") + len("Abc") + 4 + len("Name") + 4,
		},
		{
			"a message id and a key",
			nats.Header{"Nats-Msg-Id": {"number-1"}, "Pq-Unique": {"k"}},
			len("value") + len("number-1") + 2 + len("k") + 2,
		},
		{"an expiry", nats.Header{"Nats-TTL": {"1h"}}, len("value") + len("Nats-TTL1h") + 4 + 9},
	} {
		push(t, e, "pq.jobs.push", test.headers, "value")
		popsWith(test.what, "pq.jobs.pop.min", test.want)
	}

	push(t, e, "pq.jobs.push", nil, "value")
	acknowledge(t, e, ok(t, e, "pq.jobs.pop.min", nil, `{"ack_wait":"1h"}`).Reply, "+TERM why")
	popsWith("a dead letter", "pq.jobs-dead.pop.min", len("value")+len("jobs")+len("why")+38+50)
}

// Bytes are limited as items are. With discard "old" the push is done, and others go; a batch is
// done as a whole or not at all.
func TestMaxBytesAndDiscard(t *testing.T) {
	e := start(t, testenv.Options{})
	for _, metric := range []string{`pq_refused_total{reason="max_bytes"}`, "pq_discarded_total"} {
		wantMetric(t, e.Bridge, metric, 0)
	}

	for _, kind := range kinds {
		push(t, e, kind.push, nil, "abc") // before the setting
		configure(t, e, kind.queue, `{"max_bytes":5}`, `{"max_bytes":5}`)
		err := refused(t, e, 429, kind.push, nil, []byte("def"))

		const want = "have 3 bytes, including leased and delayed ones: no room for 3 more, " +
			"because max_bytes is 5"
		if !strings.Contains(err.Text, want) {
			t.Errorf("%v: want %q", err, want)
		}
		refused(t, e, 429, kind.push+".batch", nil,
			[]byte(frames(frame(0, "", "d"), frame(0, "", "ef"))))

		for _, test := range []struct{ batch, text string }{
			{
				frames(frame(0, "", "d"), frame(0, "", "longer")),
				"item 1: the message is too large: it has 6 bytes as an item, and max_bytes of " +
					"the queue is 5",
			},
			{
				frames(frame(0, "", "ab"), frame(0, "", "cd"), frame(0, "", "ef")),
				"3 items have 6 bytes, and max_bytes of the queue is 5: push fewer",
			},
		} {
			err := refused(t, e, 413, kind.push+".batch", nil, []byte(test.batch))
			if !strings.Contains(err.Text, test.text) {
				t.Errorf("%v: want %q", err, test.text)
			}
		}

		configure(t, e, kind.queue, `{"discard":"old"}`, `{"max_bytes":5,"discard":"old"}`)
		refused(t, e, 413, kind.push, nil, []byte("longer"))

		var more nats.Header
		if kind.queue == "pq.jobs" {
			// At the same priority, so it would have to go.
			refused(t, e, 429, kind.push, nil, []byte("def"))
			more = nats.Header{"Pq-Priority": {"-1"}}
		}

		push(t, e, kind.push, more, "def")
		wantPopped(t, e, kind.pop, "def")
	}
	wantMetric(t, e.Bridge, "pq_discarded_total", 2)
}
