package bridge_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// ask sends a request and returns the subscription to its replies.
func ask(t *testing.T, nc *nats.Conn, subject, options string) *nats.Subscription {
	t.Helper()
	inbox := nats.NewInbox()
	replies, err := nc.SubscribeSync(inbox)
	if err == nil {
		err = errors.Join(nc.PublishRequest(subject, inbox, []byte(options)), nc.Flush())
	}
	if err != nil {
		t.Fatal(err)
	}
	return replies
}

// waiters waits until that many pops of a priority queue wait on a bridge: they have found
// nothing.
func waiters(t *testing.T, b *testenv.Bridge, queue string, n int) {
	t.Helper()
	testenv.Eventually(t, func() error {
		q, err := b.Dispatcher().Queue(subjects.Priority, queue)
		if err == nil && q.Waiters() != n {
			err = fmt.Errorf("%d pops wait for queue %s, want %d", q.Waiters(), queue, n)
		}
		return err
	})
}

// asked is ask on the environment's connection, and waits until the pop waits.
func asked(t *testing.T, e *testenv.Env, queue, verb, options string) *nats.Subscription {
	t.Helper()
	q, err := e.Bridge.Dispatcher().Queue(subjects.Priority, queue)
	if err != nil {
		t.Fatal(err)
	}
	// Its lane answers this once it has done with all that it answered before, so pops that have
	// got their items do not count.
	e.Request("pq."+queue+".len", nil, nil)
	before := q.Waiters()
	replies := ask(t, e.Conn, "pq."+queue+"."+verb, options)
	waiters(t, e.Bridge, queue, before+1)
	return replies
}

// got checks that the next reply is an item.
func got(t *testing.T, replies *nats.Subscription, want string) *nats.Msg {
	t.Helper()
	m := next(t, replies)
	if err := bridge.ErrorFromHeaders(m.Header); err != nil || string(m.Data) != want || m.Header.Get(subjects.HeaderID) == "" {
		t.Fatalf("got %q %v, %v: want item %q", m.Data, m.Header, err, want)
	}
	return m
}

// ended checks that the next reply ends a batch.
func ended(t *testing.T, replies *nats.Subscription, count int, code string) *nats.Msg {
	t.Helper()
	m := next(t, replies)
	if m.Header.Get(subjects.HeaderBatchCount) != fmt.Sprint(count) || m.Header.Get(subjects.HeaderErrorCode) != code || len(m.Data) > 0 {
		t.Fatalf("got %q %v: want the end of %d items with code %q", m.Data, m.Header, count, code)
	}
	return m
}

// silent checks that there is no further reply.
func silent(t *testing.T, e *testenv.Env, replies *nats.Subscription) {
	t.Helper()
	e.Request("pq.silence.len", nil, nil)
	if n, _, err := replies.Pending(); n > 0 || err != nil {
		t.Errorf("%d more replies, %v: %v", n, err, next(t, replies).Header)
	}
}

// A pop that waits gets what is pushed later, whoever pushes it, and the first to wait is the
// first to get something.
func TestWaitForAPush(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		first := asked(t, e, "jobs", "pop.min", `{"expires":"1h"}`)
		second := asked(t, e, "jobs", "pop.max", `{"expires":"1h","ack_wait":"1m"}`)
		wantMetric(t, e.Bridge, "pq_waiters", 2)
		other := e.Connect()
		for _, value := range []string{"a", "b"} {
			if err := other.Publish("pq.jobs.push.7", []byte(value)); err != nil {
				t.Fatal(err)
			}
		}
		if m := got(t, first, "a"); !strings.HasPrefix(m.Reply, "_PQ.") || m.Header.Get(subjects.HeaderPriority) != "7" {
			t.Errorf("%v, reply subject %q", m.Header, m.Reply)
		}
		acked(t, e, got(t, second, "b").Reply, "")
		fifo := ask(t, e.Conn, "q.jobs.dequeue", `{"expires":"1h"}`)
		wantMetric(t, e.Bridge, "pq_waiters", 1)
		push(t, e, "q.jobs.enqueue", nil, "c")
		got(t, fifo, "c")
		wantMetric(t, e.Bridge, "pq_waiters", 0)
		for _, replies := range []*nats.Subscription{first, second, fifo} {
			silent(t, e, replies)
		}
		consistent(t, e)
	})
}

// A pop that waits does so until its time is over, neither shorter nor much longer.
func TestWaitExpires(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	const wait = 300 * time.Millisecond
	began := time.Now()
	one := ask(t, e.Conn, "pq.jobs.pop.min", `{"expires":"300ms"}`)
	several := ask(t, e.Conn, "pq.jobs.pop.max", `{"expires":300000000,"batch":3}`)
	some := ask(t, e.Conn, "pq.other.pop.max", `{"expires":"300ms","batch":3,"ack_wait":"1m"}`)
	push(t, e, "pq.other.push", nil, "a")
	isError(t, 404, "one", next(t, one))
	ended(t, several, 0, "404")
	got(t, some, "a")
	ended(t, some, 1, "")
	if took := time.Since(began); took < wait || took > wait+testenv.Patience/2 {
		t.Errorf("the answer came after %v, want %v", took, wait)
	}
	for _, replies := range []*nats.Subscription{one, several, some} {
		silent(t, e, replies)
	}
	push(t, e, "pq.jobs.push", nil, "b") // nobody waits any more
	if m := e.Request("pq.jobs.pop.min", nil, []byte(`{"expires":"1h"}`)); string(m.Data) != "b" {
		t.Errorf("an item that is there: %q, %v", m.Data, m.Header)
	}
}

// A pop of several items sends them as they come, and ends when it has them all.
func TestWaitForSeveral(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		push(t, e, "pq.jobs.push", nil, "a")
		replies := asked(t, e, "jobs", "pop.min", `{"expires":"1h","batch":4}`)
		got(t, replies, "a")
		push(t, e, "pq.jobs.push", nil, "b")
		got(t, replies, "b")
		refused(t, e, 404, "pq.jobs.pop.min", nil, nil)
		for _, value := range []string{"c", "d", "e"} {
			publish(t, e, "pq.jobs.push", "", value)
		}
		got(t, replies, "c")
		got(t, replies, "d")
		ended(t, replies, 4, "")
		got(t, ask(t, e.Conn, "pq.jobs.pop.min", ""), "e")
		// max_bytes counts all of the batch: what exceeds it stays.
		replies = asked(t, e, "jobs", "pop.min", `{"expires":"1h","batch":4,"max_bytes":5}`)
		push(t, e, "pq.jobs.push", nil, "four")
		got(t, replies, "four")
		push(t, e, "pq.jobs.push", nil, "two")
		ended(t, replies, 1, "413")
		got(t, ask(t, e.Conn, "pq.jobs.pop.min", ""), "two")
		silent(t, e, replies)
	})
}

// With no_wait a pop waits only if there is nothing at first.
func TestWaitOnlyIfEmpty(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	const options = `{"expires":"1h","batch":2,"no_wait":true}`
	push(t, e, "pq.jobs.push", nil, "a")
	replies := ask(t, e.Conn, "pq.jobs.pop.min", options)
	got(t, replies, "a")
	ended(t, replies, 1, "")
	replies = asked(t, e, "jobs", "pop.min", options)
	push(t, e, "pq.jobs.push", nil, "b")
	got(t, replies, "b")
	waiters(t, e.Bridge, "jobs", 1)
	push(t, e, "pq.jobs.push", nil, "c")
	got(t, replies, "c")
	ended(t, replies, 2, "")
	replies = ask(t, e.Conn, "pq.jobs.pop.min", `{"batch":2,"no_wait":true}`)
	ended(t, replies, 0, "404")
	refused(t, e, 404, "pq.jobs.pop.min", nil, []byte(`{"no_wait":true}`))
	refused(t, e, 404, "pq.jobs.pop.min", nil, []byte(`{"expires":0,"idle_heartbeat":0}`))
}

// While a pop waits, its heartbeats say for how many items.
func TestWaitHeartbeats(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	began := time.Now()
	replies := ask(t, e.Conn, "pq.jobs.pop.min", `{"expires":"1h","idle_heartbeat":"100ms","batch":3}`)
	beat := func(wanted string) {
		t.Helper()
		m := next(t, replies)
		for len(m.Data) == 0 && m.Header.Get(subjects.HeaderHeartbeat) == "3" && wanted != "3" {
			m = next(t, replies) // from before the push
		}
		if m.Header.Get(subjects.HeaderHeartbeat) != wanted || len(m.Data) > 0 || len(m.Header) != 1 {
			t.Fatalf("got %q %v, want a heartbeat for %s items", m.Data, m.Header, wanted)
		}
	}
	beat("3")
	beat("3")
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("two heartbeats in %v", took)
	}
	push(t, e, "pq.jobs.push", nil, "a")
	m := next(t, replies)
	for m.Header.Get(subjects.HeaderHeartbeat) == "3" {
		m = next(t, replies)
	}
	if string(m.Data) != "a" || m.Header.Get(subjects.HeaderHeartbeat) != "" {
		t.Fatalf("got %q %v, want the item", m.Data, m.Header)
	}
	beat("2")
	beat("2")
}

// Whatever makes an item available wakes those that wait for it: the end of a lease or of a
// delay, an item given back.
func TestWaitForWhatComesBack(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		push(t, e, "pq.jobs.push", nil, "a")
		began := time.Now()
		leased(t, e, "pq.jobs.pop.min", `{"ack_wait":"200ms"}`, "a")
		m := got(t, asked(t, e, "jobs", "pop.min", `{"expires":"1h","ack_wait":"1h"}`), "a")
		if took := time.Since(began); took < 200*time.Millisecond {
			t.Errorf("the lease was over after %v", took)
		}
		for _, nak := range []struct {
			payload string
			least   time.Duration
		}{{"-NAK", 0}, {"-NAK 150ms", 150 * time.Millisecond}, {`-NAK {"snooze":true,"delay":"150ms"}`, 150 * time.Millisecond}} {
			replies := asked(t, e, "jobs", "pop.max", `{"expires":"1h","ack_wait":"1h"}`)
			began := time.Now()
			acked(t, e, m.Reply, nak.payload)
			m = got(t, replies, "a")
			if took := time.Since(began); took < nak.least {
				t.Errorf("%s: it came back after %v", nak.payload, took)
			}
		}
		if deliveries := m.Header.Get(subjects.HeaderDeliveries); deliveries != "4" {
			t.Errorf("%s deliveries, want 4, one of the five was snoozed", deliveries)
		}
	})
}

// +NXT with expires acknowledges at once, and then waits.
func TestWaitForTheNext(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	push(t, e, "pq.jobs.push", nil, "a")
	ack := leased(t, e, "pq.jobs.pop.min", `{"ack_wait":"1m"}`, "a")
	replies := ask(t, e.Conn, ack, `+NXT {"expires":"1h"}`)
	waiters(t, e.Bridge, "jobs", 1)
	isError(t, 409, ack, e.Request(ack, nil, nil))
	push(t, e, "pq.jobs.push", nil, "b")
	ack = got(t, replies, "b").Reply
	replies = ask(t, e.Conn, ack, `+NXT {"expires":"1h","batch":2}`)
	waiters(t, e.Bridge, "jobs", 1)
	push(t, e, "pq.jobs.push", nil, "c")
	again := got(t, replies, "c").Reply
	push(t, e, "pq.jobs.push", nil, "d")
	got(t, replies, "d")
	ended(t, replies, 2, "")
	// A token that is worth nothing does not wait.
	isError(t, 409, ack, e.Request(ack, nil, []byte(`+NXT {"expires":"1h"}`)))
	ended(t, ask(t, e.Conn, ack, `+NXT {"expires":"1h","batch":2}`), 0, "409")
	isError(t, 404, again, e.Request(again, nil, []byte(`+NXT {"expires":"1ms"}`)))
	isError(t, 409, again, e.Request(again, nil, nil))
}

// Bad options of waiting are refused and change nothing.
func TestBadWaits(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	push(t, e, "pq.jobs.push", nil, "a")
	push(t, e, "q.jobs.enqueue", nil, "a")
	for options, words := range map[string]string{
		`{"expires":"61m"}`:                         "1ms to 1h",
		`{"expires":-1}`:                            "1ms to 1h",
		`{"expires":1}`:                             "1ms to 1h",
		`{"expires":"30"}`:                          "such as 30s",
		`{"expires":null}`:                          "nanoseconds",
		`{"expires":"1s","expires":"1s"}`:           "given twice",
		`{"expires":"1s","idle_heartbeat":"99ms"}`:  "100ms to 1h",
		`{"expires":"1s","idle_heartbeat":"often"}`: "such as 30s",
		`{"idle_heartbeat":"1s"}`:                   "without expires",
		`{"expires":"1s","no_wait":"yes"}`:          "true or false",
	} {
		for _, subject := range []string{"pq.jobs.pop.min", "pq.jobs.pop.max", "q.jobs.dequeue"} {
			if err := refused(t, e, 400, subject, nil, []byte(options)); !strings.Contains(err.Text, words) {
				t.Errorf("%s: %v, want %q", options, err, words)
			}
		}
	}
	wantMetric(t, e.Bridge, "pq_waiters", 0)
	ack := leased(t, e, "pq.jobs.pop.min", `{"ack_wait":"1h"}`, "a")
	isError(t, 400, ack, e.Request(ack, nil, []byte(`+NXT {"expires":"2h"}`)))
	acked(t, e, ack, "")
	got(t, ask(t, e.Conn, "q.jobs.dequeue", ""), "a")
}

// More pops than may wait are refused, and so do not take an item.
func TestTooManyWaiters(t *testing.T) {
	e := testenv.New(t, testenv.Options{Bridge: func(o *bridge.Options) { o.MaxWaiters = 2 }})
	first := asked(t, e, "jobs", "pop.min", `{"expires":"1h"}`)
	asked(t, e, "other", "pop.min", `{"expires":"1h"}`)
	refused(t, e, 429, "pq.jobs.pop.min", nil, []byte(`{"expires":"1h"}`))
	ended(t, ask(t, e.Conn, "pq.third.pop.min", `{"expires":"1h","batch":2}`), 0, "429")
	push(t, e, "pq.third.push", nil, "x")
	got(t, ask(t, e.Conn, "pq.third.pop.min", ""), "x") // without waiting there is room
	push(t, e, "pq.jobs.push", nil, "a")
	got(t, first, "a")
	asked(t, e, "jobs", "pop.min", `{"expires":"1h"}`)
}

// Pops wait on while NATS is away, and what they get reaches clients that come back.
func TestWaitWhileNATSRestarts(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	one := asked(t, e, "jobs", "pop.min", `{"expires":"1h"}`)
	several := asked(t, e, "other", "pop.min", `{"expires":"1h","batch":2}`)
	e.NATS.Restart()
	testenv.Eventually(t, func() error { // both connections are back
		if !e.Conn.IsConnected() {
			return errors.New("the client is not connected")
		}
		return metricIs(e.Bridge, "pq_nats_connected", 1)
	})
	testenv.Eventually(t, func() error {
		_, err := e.Conn.Request("pq.jobs.len", nil, testenv.Patience)
		return err
	})
	push(t, e, "pq.jobs.push", nil, "a")
	got(t, one, "a")
	push(t, e, "pq.other.push", nil, "b")
	got(t, several, "b")
}

// A bridge that shuts down tells those that wait, and does not wait for them.
func TestShutdownEndsWaits(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		one := asked(t, e, "jobs", "pop.min", `{"expires":"1h"}`)
		several := asked(t, e, "other", "pop.max", `{"expires":"1h","batch":3}`)
		push(t, e, "pq.other.push", nil, "a")
		got(t, several, "a")
		began := time.Now()
		if err := e.Bridge.Stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > bridge.DefaultShutdownTimeout/2 {
			t.Errorf("the shutdown took %v", took)
		}
		if err := isError(t, 503, "one", next(t, one)); err.Unknown {
			t.Error(err)
		}
		ended(t, several, 1, "503")
	})
}

// A pop of several items that was not run has an end like any other.
func TestBatchThatIsNotRunEnds(t *testing.T) {
	e, s := stick(t, testenv.Options{Bridge: func(o *bridge.Options) { o.Lanes, o.MaxPending = 1, 1 }})
	first := ask(t, e.Conn, "pq.jobs.pop.min", `{"batch":2}`)
	<-s.entered
	ended(t, ask(t, e.Conn, "pq.jobs.pop.min", `{"batch":2}`), 0, "429")
	close(s.free)
	ended(t, first, 0, "404")
	// One whose options cannot be read is refused as a whole.
	if m := e.Request("pq.jobs.pop.min", nil, []byte(`{"batch":2,"x":1}`)); m.Header.Get(subjects.HeaderBatchCount) != "" {
		t.Errorf("%v", m.Header)
	}
}
