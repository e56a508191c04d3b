package bridge_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// A pause lets nobody have items, and those who wait for them get them when it ends. Pushes, peeks and
// acknowledgements go on.
func TestPause(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		for _, kind := range kinds {
			push(t, e, kind.push, nil, "a")
			token := leased(t, e, kind.pop, `{"ack_wait":"1m"}`, "a")
			until := time.Now().Add(time.Hour).UTC().Format(subjects.TimeLayout)
			setting := fmt.Sprintf(`{"pause_until":%q}`, until)
			configured(t, e, kind.queue, setting, setting)
			push(t, e, kind.push, nil, "b")
			for _, payload := range []string{``, `{"ack_wait":"1m"}`, `{"batch":5}`, `{"expires":"1ms"}`} {
				err := refused(t, e, 404, kind.pop, nil, []byte(payload))
				if !strings.Contains(err.Text, "paused until ") {
					t.Errorf("%s %s: %v", kind.pop, payload, err)
				}
			}
			wantData(t, ok(t, e, kind.peek, nil, ""), "b")
			isError(t, 404, token, e.Request(token, nil, []byte("+NXT")))
			isError(t, 409, token, e.Request(token, nil, []byte("+ACK")))

			waits := func() chan *nats.Msg {
				got := make(chan *nats.Msg, 1)
				go func() { got <- e.Request(kind.pop, nil, []byte(`{"expires":"1m"}`)) }()
				return got
			}
			lifted := waits()
			configured(t, e, kind.queue, `{"pause_until":null}`, `{}`)
			wantData(t, <-lifted, "b")
			soon := time.Now().Add(200 * time.Millisecond)
			ok(t, e, kind.queue+".config", nil, fmt.Sprintf(`{"pause_until":%q}`, soon.Format(time.RFC3339Nano)))
			over := waits()
			push(t, e, kind.push, nil, "c")
			if m := <-over; string(m.Data) != "c" || time.Now().Before(soon) {
				t.Errorf("%v before the end, a pop that waited got %q, %v", time.Until(soon), m.Data, m.Header)
			}
		}
	})
}

// A push that the queue has no room for gets 429, a batch of pushes as a whole, until items leave it.
func TestMaxItems(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		const refusals = `pq_refused_total{reason="max_items"}`
		wantMetric(t, e.Bridge, refusals, 0)
		for _, kind := range kinds {
			configured(t, e, kind.queue, `{"max_items":3}`, `{"max_items":3}`)
			pushAll(t, e, kind.push, "a", "b")
			batch := frames(frame(0, "", "x"), frame(0, "", "y"))
			err := refused(t, e, 429, kind.push+".batch", nil, []byte(batch))
			if want := "it has 2 items, with those that are leased or delayed, and max_items is 3"; !strings.Contains(err.Text, want) {
				t.Errorf("%v: want %q", err, want)
			}
			token := leased(t, e, kind.pop, `{"ack_wait":"1m"}`, "a")
			push(t, e, kind.push, nil, "c")
			refused(t, e, 429, kind.push, nil, []byte("d"))
			acked(t, e, token, "")
			push(t, e, kind.push, nil, "d")
			wantPopped(t, e, kind.pop, "b", "c", "d")
			ok(t, e, kind.push+".batch", nil, batch)
			for _, bad := range []string{`{"max_items":-1}`, `{"max_items":1000000001}`, `{"max_items":"5"}`, `{"max_leased":0.5}`} {
				refused(t, e, 400, kind.queue+".config", nil, []byte(bad))
			}
		}
		wantMetric(t, e.Bridge, refusals, 4)
	})
}

// Bytes are limited as items are. With discard "old" the push is done, and others go; a waiting pop gets what is
// pushed, and a batch is done as a whole or not at all.
func TestMaxBytesAndDiscard(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		for _, metric := range []string{`pq_refused_total{reason="max_bytes"}`, "pq_discarded_total"} {
			wantMetric(t, e.Bridge, metric, 0)
		}
		for _, kind := range kinds {
			push(t, e, kind.push, nil, "abc") // before the setting
			configured(t, e, kind.queue, `{"max_bytes":5}`, `{"max_bytes":5}`)
			err := refused(t, e, 429, kind.push, nil, []byte("def"))
			if want := "have 3 bytes, with those that are leased or delayed, no room for 3 more, and max_bytes is 5"; !strings.Contains(err.Text, want) {
				t.Errorf("%v: want %q", err, want)
			}
			refused(t, e, 429, kind.push+".batch", nil, []byte(frames(frame(0, "", "d"), frame(0, "", "ef"))))
			configured(t, e, kind.queue, `{"discard":"old"}`, `{"max_bytes":5,"discard":"old"}`)
			refused(t, e, 429, kind.push, nil, []byte("longer"))
			if kind.queue == "pq.jobs" {
				refused(t, e, 429, kind.push, nil, []byte("def")) // at the same priority, so it would have to go
				push(t, e, kind.push, nats.Header{"Pq-Priority": {"-1"}}, "def")
			} else {
				push(t, e, kind.push, nil, "def")
			}
			wantData(t, ok(t, e, kind.pop, nil, ""), "def")
			over := make(chan *nats.Msg, 1)
			go func() { over <- e.Request(kind.pop, nil, []byte(`{"expires":"1m"}`)) }()
			push(t, e, kind.push, nil, "wake")
			wantData(t, <-over, "wake")
			for _, bad := range []string{`{"max_bytes":-1}`, `{"max_bytes":0.5}`, `{"discard":"oldest"}`, `{"discard":1}`} {
				refused(t, e, 400, kind.queue+".config", nil, []byte(bad))
			}
		}
		wantMetric(t, e.Bridge, "pq_discarded_total", 2)
	})
}

// Leases beyond max_leased get 429, or wait and get the places that become free.
func TestMaxLeased(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		for _, kind := range kinds {
			configured(t, e, kind.queue, `{"max_leased":2}`, `{"max_leased":2}`)
			pushAll(t, e, kind.push, "a", "b", "c", "d", "e")
			several := ask(t, e.Conn, kind.pop, `{"batch":5,"ack_wait":"1m"}`)
			a := got(t, several, "a").Reply
			b := got(t, several, "b").Reply
			ended(t, several, 2, "429")
			refused(t, e, 429, kind.pop, nil, []byte(`{"ack_wait":"1m"}`))
			ended(t, ask(t, e.Conn, kind.pop, `{"batch":5,"ack_wait":"1m"}`), 0, "429")
			err := refused(t, e, 404, kind.pop, nil, []byte(`{"ack_wait":"1m","expires":"10ms"}`))
			if !strings.Contains(err.Text, "as many items are leased") {
				t.Error(err)
			}
			waits := ask(t, e.Conn, kind.pop, `{"ack_wait":"1m","expires":"1m"}`)
			wantData(t, ok(t, e, kind.pop, nil, ""), "c")
			ok(t, e, kind.queue+".len", nil, "") // its batch has ended, so the line waits for places again
			wantData(t, acked(t, e, a, "+NXT"), "d")
			acked(t, e, b, "")
			got(t, waits, "e")
		}
		wantMetric(t, e.Bridge, `pq_refused_total{reason="max_leased"}`, 6)
	})
}

// A purge ends any number of leases, and all that wait for their places get them.
func TestPurgeFreesPlaces(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		const places = 20
		configured(t, e, "pq.jobs", `{"max_leased":20}`, `{"max_leased":20}`)
		pushNumbers(t, e, "pq.jobs.push", 2*places)
		leased := ask(t, e.Conn, "pq.jobs.pop.min", `{"batch":20,"ack_wait":"1h"}`)
		for i := range places {
			got(t, leased, fmt.Sprint(i))
		}
		var waits []*nats.Subscription
		for range places {
			waits = append(waits, asked(t, e, "jobs", "pop.min", `{"ack_wait":"1h","expires":"1h"}`))
		}
		ok(t, e, "pq.jobs.purge", nil, `{"state":"leased"}`)
		for i, w := range waits {
			got(t, w, fmt.Sprint(places+i))
		}
	})
}

// An item counts towards max_bytes as docs/protocol.md says, and one that exceeds it is refused with that reason.
func TestBytesOfAnItem(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	for _, test := range []struct {
		what    string
		headers nats.Header
		want    int
	}{
		{"a value", nil, len("value")},
		{"two headers", nats.Header{"A": {"bc"}, "Name": {""}}, len("value") + len("Abc") + 4 + len("Name") + 4},
		{"a message id and a key", nats.Header{"Nats-Msg-Id": {"number-1"}, "Pq-Unique": {"k"}}, len("value") + len("number-1") + 2 + len("k") + 2},
		{"an expiry", nats.Header{"Nats-TTL": {"1h"}}, len("value") + len("Nats-TTL1h") + 4 + 9},
	} {
		push(t, e, "pq.jobs.push", test.headers, "value")
		popsWith(t, e, test.what, "pq.jobs.pop.min", test.want)
	}

	push(t, e, "pq.jobs.push", nil, "value")
	acked(t, e, ok(t, e, "pq.jobs.pop.min", nil, `{"ack_wait":"1m"}`).Reply, "+TERM why")
	popsWith(t, e, "a dead letter", "pq.jobs-dead.pop.min", len("value")+len("jobs")+len("why")+38)
}

// popsWith pops an item with that many bytes, after a pop with one byte less was refused.
func popsWith(t *testing.T, e *testenv.Env, what, subject string, bytes int) {
	t.Helper()
	options := func(n int) string { return fmt.Sprintf(`{"max_bytes":%d}`, n) }

	refusal := refused(t, e, 413, subject, nil, []byte(options(bytes-1)))
	if !strings.Contains(refusal.Text, "exceeds max_bytes") {
		t.Errorf("%s: the reason is %q", what, refusal.Text)
	}
	ok(t, e, subject, nil, options(bytes))
}
