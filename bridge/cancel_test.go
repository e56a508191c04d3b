package bridge_test

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/testenv"
)

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

// What an acknowledgement asks for can be cancelled, too. The acknowledgement counts.
func TestCancelNext(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	acks := leasedMany(t, e, "jobs", 1)
	replies := ask(t, e.Conn, acks[0], `+NXT {"expires":"1h","id":"next"}`)
	waiters(t, e.Bridge, "jobs", 1)
	cancel(t, e, "pq.jobs.pop.min", "next")
	isError(t, 404, "a cancelled +NXT", next(t, replies))
	isError(t, 409, "an acknowledgement", e.Request(acks[0], nil, nil))
}

// A cancel may come before what it cancels. The same id twice at a time is an error.
func TestCancelTooEarly(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
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
	e := testenv.New(t, testenv.Options{})
	for i := range 10_000 {
		publish(t, e, "pq.jobs.pop.min", "nobody.there", fmt.Sprintf(`{"cancel":"nothing-%d"}`, i))
	}
	cancel(t, e, "pq.jobs.pop.min", "last")
	if n := e.Bridge.EarlyCancels(); n > 4096 {
		t.Errorf("the bridge remembers %d cancels", n)
	}
	isError(t, 404, "a pop that was cancelled before", e.Request("pq.jobs.pop.min", nil, []byte(`{"expires":"1h","id":"last"}`)))
}

// A pop that waits at one bridge ends, whichever bridge is asked to cancel it.
func TestCancelAtAnotherBridge(t *testing.T) {
	eachPair(t, func(t *testing.T, e *testenv.Env, second *testenv.Bridge) {
		names, replies := waitOn(t, e, second, e.Bridge, 8, `{"expires":"1h","ack_wait":"1h","id":"secret"}`)
		for i, name := range names {
			cancel(t, e, "pq."+name+".pop.min", "secret")
			isError(t, 404, "a cancelled pop", next(t, replies[i]))
		}

		// Without waiting until the pop has arrived: on the way to its bridge the cancel may overtake it.
		for i := range 100 {
			id := fmt.Sprint("secret-", i)
			pop := ask(t, e.Conn, "pq."+names[0]+".pop.min", `{"expires":"1h","id":"`+id+`"}`)
			cancel(t, e, "pq."+names[0]+".pop.min", id)
			isError(t, 404, "a cancelled pop", next(t, pop))
		}
	})
}
