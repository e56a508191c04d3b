package jetstream

import (
	"errors"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
)

func newTestDomains(t testing.TB) domains {
	t.Helper()
	d, err := newDomains(map[subjects.Kind]string{subjects.Priority: "pq", subjects.FIFO: "q"},
		"store")
	must(t, err)
	return d
}

// There has to be a domain, and each is one token.
func TestNewDomains(t *testing.T) {
	for _, names := range []map[subjects.Kind]string{nil, {subjects.Priority: "team.pq"}} {
		if _, err := newDomains(names, "store"); err == nil {
			t.Errorf("%v: no error", names)
		}
	}
}

// The hash in subjects depends on the store alone, and has eight characters.
func TestStoreHash(t *testing.T) {
	a, b := newTestDomains(t), newTestDomains(t)
	same(t, "the hash of the same store", a.hash, b.hash)
	same(t, "its length", len(a.hash), 8)

	other, err := newDomains(a.names, "other")
	must(t, err)
	if other.hash == a.hash {
		t.Error("two stores have the same hash")
	}
}

// The subject of an acknowledgement is read back as the consumer and the token of the lease. It has
// twelve tokens, one of which names this store, and anything else is refused.
func TestAckSubjects(t *testing.T) {
	d := newTestDomains(t)
	consumer := consumerKey{stream{subjects.FIFO, "jobs"}, "w"}
	token := fdbpq.Token{ID: fdbpq.ID{Count: 7}, Fence: 5}
	const numbers = "1.2.3.5000000006.4" // deliveries, sequences, time and pending: for clients
	subject := "$JS.ACK.q." + d.hash + ".jobs.w." + numbers + "." + token.String()

	gotConsumer, gotToken, err := d.parseAck(subject)

	must(t, err)
	same(t, "consumer", gotConsumer, consumer)
	same(t, "token", gotToken, token)

	for _, wrong := range []string{
		"", "$JS.ACK.q", strings.Replace(subject, d.hash, "other", 1),
		strings.Replace(subject, ".q.", ".x.", 1), subject + ".more",
		strings.Replace(subject, ".jobs.", ".j*bs.", 1), strings.Replace(subject, "$JS", "$XX", 1),
	} {
		if _, _, err := d.parseAck(wrong); !errors.Is(err, errAck) {
			t.Errorf("%s: got %v", wrong, err)
		}
	}
	if _, _, err := d.parseAck(subject + "x"); !errors.Is(err, fdbpq.ErrToken) {
		t.Errorf("a token that is too long: got %v", err)
	}
}

// The subject of a call has the domain, the call's name, and its arguments after that. A call that
// does not exist has no name, and a subject outside the domains is no call.
func TestCallSubjects(t *testing.T) {
	d := newTestDomains(t)
	for subject, want := range map[string]string{
		"$JS.pq.API.INFO":                           "INFO",
		"$JS.pq.API.STREAM.INFO.jobs":               "STREAM.INFO jobs",
		"$JS.q.API.CONSUMER.CREATE.jobs.w.q.jobs.x": "CONSUMER.CREATE jobs w q jobs x",
		"$JS.pq.API.CONSUMER.CREATE.DURABLE":        "CONSUMER.CREATE DURABLE",
		"$JS.pq.API.CONSUMER.DURABLE.CREATE.jobs.w": "CONSUMER.DURABLE.CREATE jobs w",
		"$JS.pq.API.CONSUMER.MSG.NEXT.jobs.min":     "CONSUMER.MSG.NEXT jobs min",
		"$JS.pq.API.STREAM.INFO.":                   "STREAM.INFO ",
		"$JS.pq.API.STREAM.OTHER.jobs":              "none",
		"$JS.pq.API.":                               "none",
	} {
		c, ok := d.parse(subject, nil)
		got := "none"

		if c.row != nil {
			got = strings.Join(append([]string{c.row.name}, c.args...), " ")
		}
		same(t, subject, got, want)
		same(t, subject, ok, true)
	}

	for _, subject := range []string{
		"", "$JS.API.INFO", "$JS.x.API.INFO", "pq.API.INFO", "$JS.pq.INFO", "X$JS.pq.API.INFO",
	} {
		if _, ok := d.parse(subject, nil); ok {
			t.Errorf("%q is taken for a call", subject)
		}
	}
}

// A status is the first line of a header block, with a text and headers after it if there are any.
func TestStatusHeader(t *testing.T) {
	same(t, "alone", string(statusHeader(503, "")), "NATS/1.0 503\r\n\r\n")
	same(t, "with headers", string(statusHeader(408, "Request Timeout", "Nats-Pending-Messages",
		"1", "Nats-Pending-Bytes", "0")),
		"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 1\r\nNats-Pending-Bytes: 0\r\n\r\n")
}
