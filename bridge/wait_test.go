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

// ask sends a request and returns the subscription to its replies.
func ask(t *testing.T, nc *nats.Conn, subject, options string) *nats.Subscription {
	t.Helper()
	inbox := nats.NewInbox()
	replies, err := nc.SubscribeSync(inbox)
	if err == nil {
		err = errors.Join(nc.PublishRequest(subject, inbox, []byte(options)), nc.FlushTimeout(testenv.Patience))
	}
	must(t, err)
	return replies
}

// waiters waits until that many pops of a priority queue wait on a bridge: they have found
// nothing.
func waiters(t *testing.T, b *testenv.Bridge, queue string, n int) {
	t.Helper()
	testenv.Eventually(t, func() error {
		if got := waitersOf(t, b, queue); got != n {
			return fmt.Errorf("%d pops wait for queue %s, want %d", got, queue, n)
		}
		return nil
	})
}

// asked is ask on the environment's connection, and waits until the pop waits.
func asked(t *testing.T, e *testenv.Env, queue, verb, options string) *nats.Subscription {
	t.Helper()
	// Its lane answers this once it has done with all that it answered before, so pops that have
	// got their items do not count.
	e.Request("pq."+queue+".len", nil, nil)
	return forwardedTo(t, e, e.Bridge, queue, verb, options)
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

// A pop that waits gets what anybody pushes later. The first to wait is the first to get something.
func TestWaitForAPush(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		first := asked(t, e, "jobs", "pop.min", `{"expires":"1h"}`)
		second := asked(t, e, "jobs", "pop.max", `{"expires":"1h","ack_wait":"1h"}`)
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
	e := start(t, testenv.Options{})
	one := asked(t, e, "jobs", "pop.min", `{"expires":"1h"}`)
	several := asked(t, e, "other", "pop.min", `{"expires":"1h","batch":2}`)
	before := e.Conn.Stats().Reconnects
	e.NATS.Restart()
	comes(t, "the client's connection", func() bool { return e.Conn.Stats().Reconnects > before })
	e.Bridge.WaitReady()
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
	t.Parallel()
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

// cancel cancels the pop of that id. The answer says nothing.
func cancel(t *testing.T, e *testenv.Env, subject, id string) {
	t.Helper()
	if m := e.Request(subject, nil, []byte(`{"cancel":"`+id+`"}`)); len(m.Data) > 0 || len(m.Header) > 0 {
		t.Errorf("a cancel is answered with %q %v", m.Data, m.Header)
	}
}

// A client ends a pop that waits, which is answered as if its time were over. Nothing is taken for it any more.
func TestCancel(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		plain := asked(t, e, "jobs", "pop.max", `{"expires":"1h","id":"plain"}`)
		leased := asked(t, e, "jobs", "pop.min", `{"expires":"1h","ack_wait":"1h","id":"leased","idle_heartbeat":"1h"}`)
		batch := asked(t, e, "jobs", "pop.min", `{"expires":"1h","batch":3,"id":"batch"}`)
		wantMetric(t, e.Bridge, "pq_waiters", 3)

		cancel(t, e, "pq.others.pop.min", "plain") // of another queue
		cancel(t, e, "q.jobs.dequeue", "plain")
		wantMetric(t, e.Bridge, "pq_waiters", 3)

		cancel(t, e, "pq.jobs.pop.min", "plain") // whichever end it pops from
		isError(t, 404, "a cancelled pop", next(t, plain))
		cancel(t, e, "pq.jobs.pop.min", "leased")
		isError(t, 404, "a cancelled lease", next(t, leased))
		push(t, e, "pq.jobs.push", nil, "a")
		got(t, batch, "a")
		cancel(t, e, "pq.jobs.pop.min", "batch")
		cancel(t, e, "pq.jobs.pop.min", "batch")
		ended(t, batch, 1, "")
		empty := ask(t, e.Conn, "pq.jobs.pop.min", `{"expires":"1h","batch":3,"id":"again"}`)
		cancel(t, e, "pq.jobs.pop.min", "again") // it may wait already, or not
		ended(t, empty, 0, "404")

		wantMetric(t, e.Bridge, "pq_waiters", 0)
		push(t, e, "pq.jobs.push", nil, "b")
		wantPopped(t, e, "pq.jobs.pop.min", "b")
		for _, replies := range []*nats.Subscription{plain, leased, batch, empty} {
			silent(t, e, replies)
		}
	})
}

// The next item that an acknowledgement asks for can be cancelled. The acknowledgement counts.
func TestCancelNext(t *testing.T) {
	e := start(t, testenv.Options{})
	acks := leasedMany(t, e, "jobs", 1)
	replies := ask(t, e.Conn, acks[0], `+NXT {"expires":"1h","id":"next"}`)
	waiters(t, e.Bridge, "jobs", 1)
	cancel(t, e, "pq.jobs.pop.min", "next")
	isError(t, 404, "a cancelled +NXT", next(t, replies))
	isError(t, 409, "an acknowledgement", e.Request(acks[0], nil, nil))
}

// A cancel may come before what it cancels. The same id twice at a time is an error.
func TestCancelTooEarly(t *testing.T) {
	e := start(t, testenv.Options{})
	push(t, e, "pq.jobs.push", nil, "a")
	cancel(t, e, "pq.jobs.pop.min", "early")
	isError(t, 404, "a pop that was cancelled before", e.Request("pq.jobs.pop.min", nil, []byte(`{"expires":"1h","id":"early"}`)))
	wantPopped(t, e, "pq.jobs.pop.min", "a")

	first := asked(t, e, "jobs", "pop.min", `{"expires":"1h","id":"once"}`)
	isError(t, 400, "a pop with the id of another", e.Request("pq.jobs.pop.min", nil, []byte(`{"expires":"1h","id":"once"}`)))
	push(t, e, "pq.jobs.push", nil, "b")
	got(t, first, "b")
	again := asked(t, e, "jobs", "pop.min", `{"expires":"1h","id":"once"}`)
	cancel(t, e, "pq.jobs.pop.min", "once")
	isError(t, 404, "a cancelled pop", next(t, again))
}

// A flood of cancels of nothing takes little memory, and keeps out none that comes later.
func TestCancelsOfNothing(t *testing.T) {
	e := start(t, testenv.Options{})
	for i := range 10_000 {
		publish(t, e, "pq.jobs.pop.min", "nobody.there", fmt.Sprintf(`{"cancel":"nothing-%d"}`, i))
	}
	cancel(t, e, "pq.jobs.pop.min", "last")
	if n := e.Bridge.EarlyCancels(); n > 4096 {
		t.Errorf("the bridge remembers %d cancels", n)
	}
	isError(t, 404, "a pop that was cancelled before", e.Request("pq.jobs.pop.min", nil, []byte(`{"expires":"1h","id":"last"}`)))
}

// A pop that waits at one bridge ends, even if the other one is asked to cancel it.
func TestCancelAtAnotherBridge(t *testing.T) {
	eachPair(t, func(t *testing.T, e *testenv.Env, second *testenv.Bridge) {
		names, replies := waitOn(t, e, second, e.Bridge, 8, `{"expires":"1h","ack_wait":"1h","id":"secret"}`)
		for i, name := range names {
			cancel(t, e, "pq."+name+".pop.min", "secret")
			isError(t, 404, "a cancelled pop", next(t, replies[i]))
		}

		// Without waiting until the pop has arrived: on the way to its bridge the cancel may overtake it.
		for i := range harness.Times(30, 100) {
			id := fmt.Sprint("secret-", i)
			pop := ask(t, e.Conn, "pq."+names[0]+".pop.min", `{"expires":"1h","id":"`+id+`"}`)
			cancel(t, e, "pq."+names[0]+".pop.min", id)
			isError(t, 404, "a cancelled pop", next(t, pop))
		}
	})
}
