package bridge_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/testenv"
)

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
