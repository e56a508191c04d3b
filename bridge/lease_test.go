package bridge_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// leased pops with options, and returns the item and the subject of its acknowledgements.
func leased(t *testing.T, e *testenv.Env, subject, options, want string) (ack string) {
	t.Helper()
	m := e.Request(subject, nil, []byte(options))
	if err := bridge.ErrorFromHeaders(m.Header); err != nil || string(m.Data) != want {
		t.Fatalf("%s %s: got %q, %v: want %q", subject, options, m.Data, err, want)
	}
	until, err := time.Parse(subjects.TimeLayout, m.Header.Get(subjects.HeaderLeaseUntil))
	if err != nil || m.Header.Get(subjects.HeaderDeliveries) == "" || !strings.Contains(m.Reply, ".ack.") {
		t.Fatalf("%s: headers %v, reply subject %q, %v", subject, m.Header, m.Reply, err)
	}
	if left := time.Until(until); left <= 0 || left > 12*time.Hour {
		t.Errorf("%s: leased for %v", subject, left)
	}
	return m.Reply
}

// acked sends an acknowledgement and checks that it is accepted.
func acked(t *testing.T, e *testenv.Env, ack, payload string) *nats.Msg {
	t.Helper()
	m := e.Request(ack, nil, []byte(payload))
	if err := bridge.ErrorFromHeaders(m.Header); err != nil {
		t.Fatalf("%s %q: %v", ack, payload, err)
	}
	return m
}

// A worker's day: leases, acknowledgements of all kinds, redelivery at the old place.
func TestLeases(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		for _, kind := range kinds {
			pushAll(t, e, kind.push, "a", "b", "c")
			a := leased(t, e, kind.pop, `{"ack_wait":"1m"}`, "a")
			if m := acked(t, e, a, "+WPI"); m.Header.Get(subjects.HeaderLeaseUntil) == "" {
				t.Errorf("+WPI: %v", m.Header)
			}
			acked(t, e, a, "-NAK")
			isError(t, 409, a, e.Request(a, nil, nil))
			b := leased(t, e, kind.pop, `{"ack_wait":"1m"}`, "a") // at its old place
			// Acknowledge and take the next in one request.
			m := e.Request(b, nil, []byte("+NXT"))
			if string(m.Data) != "b" || m.Header.Get(subjects.HeaderDeliveries) != "1" {
				t.Errorf("+NXT: got %q, %v", m.Data, m.Header)
			}
			isError(t, 409, b, e.Request(b, nil, []byte("+NXT")))
			acked(t, e, m.Reply, "+ACK")
			isError(t, 409, m.Reply, e.Request(m.Reply, nil, []byte("+ACK")))
			// Published acknowledgements count as well.
			c := leased(t, e, kind.pop, `{"ack_wait":0}`, "c")
			must(t, e.Conn.Publish(c, nil))
			testenv.Eventually(t, func() error {
				if err := bridge.ErrorFromHeaders(e.Request(c, nil, []byte("+WPI")).Header); err == nil {
					return errors.New("the lease still holds")
				}
				return nil
			})
			refused(t, e, 404, kind.pop, nil, []byte(`{"ack_wait":"1s"}`))
			consistent(t, e)
		}
	})
}

// A lease that runs out, or an item that was given back with a delay, comes back at its time.
func TestLeaseEnds(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	push(t, e, "pq.jobs.push", nil, "a")
	began := time.Now()
	first := leased(t, e, "pq.jobs.pop.min", `{"ack_wait":"200ms"}`, "a")
	refused(t, e, 404, "pq.jobs.pop.min", nil, nil)
	var again *nats.Msg
	testenv.Eventually(t, func() error {
		again = e.Request("pq.jobs.pop.max", nil, []byte(`{"ack_wait":"1h"}`))
		return bridge.ErrorFromHeaders(again.Header)
	})
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("it came back after %v", took)
	}
	if again.Header.Get(subjects.HeaderDeliveries) != "2" {
		t.Errorf("headers %v", again.Header)
	}
	isError(t, 409, first, e.Request(first, nil, nil))
	began = time.Now()
	acked(t, e, again.Reply, `-NAK {"delay":"150ms","snooze":true}`)
	testenv.Eventually(t, func() error {
		again = e.Request("pq.jobs.pop.min", nil, []byte(`{"ack_wait":"1h"}`))
		return bridge.ErrorFromHeaders(again.Header)
	})
	if took := time.Since(began); took < 150*time.Millisecond || again.Header.Get(subjects.HeaderDeliveries) != "2" {
		t.Errorf("after %v: headers %v", took, again.Header)
	}
}

// Options and acknowledgements that are wrong change nothing, and say what would be right.
func TestBadLeaseRequests(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	push(t, e, "pq.jobs.push", nil, "a")
	for _, options := range []string{`x`, `[]`, `{"batch":0}`, `{"batch":1001}`, `{"ack_wait":"1ms"}`, `{"unknown":1}`, `{"batch":1} ` + "\x00"} {
		refused(t, e, 400, "pq.jobs.pop.min", nil, []byte(options))
	}
	ack := leased(t, e, "pq.jobs.pop.min", `{"ack_wait":"1m"}`, "a")
	for _, payload := range []string{"ACK", "+ACK please", "-NAK never", "+NXT 0", `-NAK {"delay":-1}`} {
		isError(t, 400, ack, e.Request(ack, nil, []byte(payload)))
	}
	for _, subject := range []string{"pq.jobs.ack.x", "pq.jobs.ack." + strings.Repeat("x", 80), "q.jobs.ack.-"} {
		refused(t, e, 400, subject, nil, nil)
	}
	refused(t, e, 400, "pq.jobs.ack", nil, nil)
	refused(t, e, 400, ack, nats.Header{"Pq-Priority": {"5"}}, nil)
	// A token of another queue, and one that was never given.
	refused(t, e, 409, strings.Replace(ack, "pq.jobs.", "pq.other.", 1), nil, nil)
	refused(t, e, 409, "pq.jobs.ack."+fdbpq.Token{Fence: 7}.String(), nil, nil)
	acked(t, e, ack, "")
}

// What a program stores under the protocol's own names is not sent: an item is never taken for
// the end of a batch.
func TestReservedHeadersOfStoredItems(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	store(t, e, 1, fdbpq.Message{Value: []byte("x"), Headers: map[string][]string{
		"Pq-Batch-Count": {"1"}, "pq-deliveries": {"7"}, "Kept": {"yes"},
	}})
	m := e.Request("pq.jobs.pop.min", nil, nil)
	if string(m.Data) != "x" || m.Header.Get(subjects.HeaderBatchCount) != "" || len(m.Header["pq-deliveries"]) > 0 || m.Header.Get("Kept") != "yes" {
		t.Errorf("got %q, %v", m.Data, m.Header)
	}
}
