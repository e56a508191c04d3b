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
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// ask sends a request, whose payload is often its options, and returns the subscription to its
// replies.
func ask(t *testing.T, nc *nats.Conn, subject, options string) *nats.Subscription {
	t.Helper()
	inbox := nats.NewInbox()
	replies, err := nc.SubscribeSync(inbox)

	if err == nil {
		err = errors.Join(nc.PublishRequest(subject, inbox, []byte(options)),
			nc.FlushTimeout(testenv.Patience))
	}
	must(t, err)
	return replies
}

// waitForWaiters waits until that many pops of a priority queue wait on a bridge: they have found
// nothing.
func waitForWaiters(t *testing.T, b *testenv.Bridge, queue string, n int) {
	t.Helper()
	testenv.Eventually(t, func() error {
		if got := waitersOf(t, b, queue); got != n {
			return fmt.Errorf("%d pops wait for queue %s, want %d", got, queue, n)
		}
		return nil
	})
}

// askAndWait is ask on the environment's connection, and waits until the pop waits.
func askAndWait(t *testing.T, e *testenv.Env, queue, verb, options string) *nats.Subscription {
	t.Helper()
	// Its lane answers this once it has done with all that it answered before, so pops that have
	// got their items do not count.
	e.Request("pq."+queue+".len", nil, nil)
	return askOwnerAndWait(t, e, e.Bridge, queue, verb, options)
}

// wantNext checks that the next reply is the item with this value, and returns it.
func wantNext(t *testing.T, replies *nats.Subscription, want string) *nats.Msg {
	t.Helper()
	m := next(t, replies)
	err := replyError(m.Header)
	if err != nil || string(m.Data) != want || m.Header.Get(subjects.HeaderID) == "" {
		t.Fatalf("got %q %v, %v: want item %q", m.Data, m.Header, err, want)
	}

	return m
}

// wantEnd checks that the next reply ends a batch of count items, with this error code; "" is
// success.
func wantEnd(t *testing.T, replies *nats.Subscription, count int, code string) *nats.Msg {
	t.Helper()
	m := next(t, replies)
	if m.Header.Get(subjects.HeaderBatchCount) != fmt.Sprint(count) ||
		m.Header.Get(subjects.HeaderErrorCode) != code || len(m.Data) > 0 {
		t.Fatalf("got %q %v: want the end of %d items with code %q", m.Data, m.Header, count, code)
	}

	return m
}

// wantSilence checks that there is no further reply.
func wantSilence(t *testing.T, e *testenv.Env, replies *nats.Subscription) {
	t.Helper()
	e.Request("pq.silence.len", nil, nil)
	if n, _, err := replies.Pending(); n > 0 || err != nil {
		t.Errorf("%d more replies, %v: %v", n, err, next(t, replies).Header)
	}
}

// A pop that waits gets the next item, whoever pushes it, and the first to wait is the first
// served.
func TestWaitForAPush(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		first := askAndWait(t, e, "jobs", "pop.min", `{"expires":"1h"}`)
		second := askAndWait(t, e, "jobs", "pop.max", `{"expires":"1h","ack_wait":"1h"}`)
		wantMetric(t, e.Bridge, "pq_waiters", 2)

		other := e.Connect()
		for _, value := range []string{"a", "b"} {
			must(t, other.Publish("pq.jobs.push.7", []byte(value)))
		}

		m := wantNext(t, first, "a")
		if !strings.HasPrefix(m.Reply, "_PQ.") || m.Header.Get(subjects.HeaderPriority) != "7" {
			t.Errorf("%v, reply subject %q", m.Header, m.Reply)
		}

		acknowledge(t, e, wantNext(t, second, "b").Reply, "")
		fifo := ask(t, e.Conn, "q.jobs.pop", `{"expires":"1h"}`)
		wantMetric(t, e.Bridge, "pq_waiters", 1)

		push(t, e, "q.jobs.push", nil, "c")
		wantNext(t, fifo, "c")
		wantMetric(t, e.Bridge, "pq_waiters", 0)

		for _, replies := range []*nats.Subscription{first, second, fifo} {
			wantSilence(t, e, replies)
		}
		checkStore(t, e)
	})
}

// Pops wait on while NATS is away, and what they get reaches clients that come back.
func TestWaitWhileNATSRestarts(t *testing.T) {
	e := start(t, testenv.Options{})
	one := askAndWait(t, e, "jobs", "pop.min", `{"expires":"1h"}`)
	several := askAndWait(t, e, "other", "pop.min", `{"expires":"1h","batch":2}`)
	before := e.Conn.Stats().Reconnects
	e.NATS.Restart()

	waitUntil(t, "the client's connection",
		func() bool { return e.Conn.Stats().Reconnects > before })

	e.Bridge.WaitReady()
	testenv.Eventually(t, func() error {
		_, err := e.Conn.Request("pq.jobs.len", nil, testenv.Patience)
		return err
	})

	push(t, e, "pq.jobs.push", nil, "a")
	wantNext(t, one, "a")
	push(t, e, "pq.other.push", nil, "b")
	wantNext(t, several, "b")
}

// The reply to a pop of several items that was not run, or found none, has an end like any other. A
// pop whose options cannot be read is refused without one.
func TestBatchThatIsNotRunEnds(t *testing.T) {
	t.Parallel()

	// There is room for one request, which the store is stuck with.
	e, s := startStuck(t, testenv.Options{Bridge: func(o *bridge.Options) {
		o.Lanes = 1
		o.MaxPending = 1
	}})

	first := ask(t, e.Conn, "pq.jobs.pop.min", `{"batch":2}`)
	<-s.entered
	wantEnd(t, ask(t, e.Conn, "pq.jobs.pop.min", `{"batch":2}`), 0, "429")
	close(s.free)
	wantEnd(t, first, 0, "404")

	m := e.Request("pq.jobs.pop.min", nil, []byte(`{"batch":2,"x":1}`))
	if m.Header.Get(subjects.HeaderBatchCount) != "" {
		t.Errorf("%v", m.Header)
	}
}

// cancel cancels the pop with that id, and checks that the answer is empty.
func cancel(t *testing.T, e *testenv.Env, subject, id string) {
	t.Helper()
	m := e.Request(subject, nil, []byte(`{"cancel":"`+id+`"}`))
	if len(m.Data) > 0 || len(m.Header) > 0 {
		t.Errorf("a cancel is answered with %q %v", m.Data, m.Header)
	}
}

// A client can end a pop that waits. It is answered as if its time were over, and gets no more
// items.
func TestCancel(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		plain := askAndWait(t, e, "jobs", "pop.max", `{"expires":"1h","id":"plain"}`)
		leased := askAndWait(t, e, "jobs", "pop.min",
			`{"expires":"1h","ack_wait":"1h","id":"leased","idle_heartbeat":"1h"}`)
		batch := askAndWait(t, e, "jobs", "pop.min", `{"expires":"1h","batch":3,"id":"batch"}`)

		wantMetric(t, e.Bridge, "pq_waiters", 3)

		// Cancels in other queues end nothing.
		cancel(t, e, "pq.others.pop.min", "plain")
		cancel(t, e, "q.jobs.pop", "plain")
		wantMetric(t, e.Bridge, "pq_waiters", 3)

		cancel(t, e, "pq.jobs.pop.min", "plain") // whichever end it pops from
		wantError(t, 404, "a cancelled pop", next(t, plain))

		cancel(t, e, "pq.jobs.pop.min", "leased")
		wantError(t, 404, "a cancelled lease", next(t, leased))

		// A batch ends with what it has got. The second cancel has no effect.
		push(t, e, "pq.jobs.push", nil, "a")
		wantNext(t, batch, "a")
		cancel(t, e, "pq.jobs.pop.min", "batch")
		cancel(t, e, "pq.jobs.pop.min", "batch")
		wantEnd(t, batch, 1, "")
		empty := ask(t, e.Conn, "pq.jobs.pop.min", `{"expires":"1h","batch":3,"id":"again"}`)
		cancel(t, e, "pq.jobs.pop.min", "again") // it may wait already, or not
		wantEnd(t, empty, 0, "404")

		wantMetric(t, e.Bridge, "pq_waiters", 0)

		push(t, e, "pq.jobs.push", nil, "b")
		wantPopped(t, e, "pq.jobs.pop.min", "b")

		for _, replies := range []*nats.Subscription{plain, leased, batch, empty} {
			wantSilence(t, e, replies)
		}
	})
}

// A client can cancel the wait for the next item that its acknowledgement asked for. The
// acknowledgement counts all the same.
func TestCancelNext(t *testing.T) {
	e := start(t, testenv.Options{})
	acks := pushAndLease(t, e, "jobs", 1)
	replies := ask(t, e.Conn, acks[0], `+NXT {"expires":"1h","id":"next"}`)
	waitForWaiters(t, e.Bridge, "jobs", 1)
	cancel(t, e, "pq.jobs.pop.min", "next")

	wantError(t, 404, "a cancelled +NXT", next(t, replies))
	wantError(t, 409, "an acknowledgement", e.Request(acks[0], nil, nil))
}

// A cancel may come before the pop that it cancels. Two pops cannot wait under one id, which is
// free again when the first is served.
func TestCancelTooEarly(t *testing.T) {
	e := start(t, testenv.Options{})
	push(t, e, "pq.jobs.push", nil, "a")
	cancel(t, e, "pq.jobs.pop.min", "early")

	wantError(t, 404, "a pop that was cancelled before",
		e.Request("pq.jobs.pop.min", nil, []byte(`{"expires":"1h","id":"early"}`)))
	wantPopped(t, e, "pq.jobs.pop.min", "a")

	first := askAndWait(t, e, "jobs", "pop.min", `{"expires":"1h","id":"once"}`)
	wantError(t, 400, "a pop with the id of another",
		e.Request("pq.jobs.pop.min", nil, []byte(`{"expires":"1h","id":"once"}`)))

	push(t, e, "pq.jobs.push", nil, "b")
	wantNext(t, first, "b")
	again := askAndWait(t, e, "jobs", "pop.min", `{"expires":"1h","id":"once"}`)
	cancel(t, e, "pq.jobs.pop.min", "once")

	wantError(t, 404, "a cancelled pop", next(t, again))
}

// A flood of cancels of nothing does not keep out a later one.
func TestCancelsOfNothing(t *testing.T) {
	e := start(t, testenv.Options{})
	for i := range 10_000 {
		publish(t, e, "pq.jobs.pop.min", "nobody.there", fmt.Sprintf(`{"cancel":"nothing-%d"}`, i))
	}

	cancel(t, e, "pq.jobs.pop.min", "last")
	wantError(t, 404, "a pop that was cancelled before",
		e.Request("pq.jobs.pop.min", nil, []byte(`{"expires":"1h","id":"last"}`)))
}

// A pop that waits at one bridge ends, even if the other one is asked to cancel it.
func TestCancelAtAnotherBridge(t *testing.T) {
	eachPair(t, func(t *testing.T, e *testenv.Env, second *testenv.Bridge) {
		names, replies := waitOn(t, e, second, e.Bridge, 8,
			`{"expires":"1h","ack_wait":"1h","id":"secret"}`)
		for i, name := range names {
			cancel(t, e, "pq."+name+".pop.min", "secret")
			wantError(t, 404, "a cancelled pop", next(t, replies[i]))
		}

		// Without waiting until the pop has arrived: on the way to its bridge the cancel may
		// overtake it.
		for i := range harness.Times(30, 100) {
			id := fmt.Sprint("secret-", i)
			pop := ask(t, e.Conn, "pq."+names[0]+".pop.min", `{"expires":"1h","id":"`+id+`"}`)
			cancel(t, e, "pq."+names[0]+".pop.min", id)
			wantError(t, 404, "a cancelled pop", next(t, pop))
		}
	})
}
