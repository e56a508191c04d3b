package bridge_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

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
	must(t, err)
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
	must(t, err)
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
			must(t, other.Publish("pq.jobs.push.7", []byte(value)))
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
