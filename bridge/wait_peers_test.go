package bridge_test

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
)

// Pops that wait on a bridge that dies are answered, and the next ones wait elsewhere.
func TestWaitersOfABridgeThatDies(t *testing.T) {
	eachShared(t, func(t *testing.T, engine testenv.Engine) {
		e := testenv.New(t, testenv.Options{Engine: engine, NATS: withForwardedOnly})
		w := newWire(t, e)
		second := e.StartBridge(w.use, forwardedOnly)
		waitForPeers(t, e.Bridge, second)
		names, replies := waitOn(t, e, second, e.Bridge, 8, `{"expires":"1h"}`)
		several := ask(t, e.Conn, "pq."+names[0]+".pop.max", `{"expires":"1h","batch":3}`)
		waitForWaiters(t, second, names[0], 2)
		waitForHeartbeats(t, e.Conn, 2, 2) // the first bridge knows that they arrived
		w.kill()

		for _, r := range replies {
			same(t, "unknown", wantError(t, 503, "a pop that waits", next(t, r)).Unknown, true)
		}

		wantEnd(t, several, 0, "503")
		wantMetric(t, e.Bridge, "pq_bridges", 1)

		again := askAndWait(t, e, names[0], "pop.min", `{"expires":"1h"}`)
		push(t, e, "pq."+names[0]+".push", nil, "a")
		wantNext(t, again, "a")
		_ = second.Stop() // it is dead, and reports the requests that it could not answer
	})
}

// A bridge that shuts down answers the pops that wait on it at once, and nobody answers them
// twice. They delay neither its shutdown nor the shutdown of the bridge that forwarded them.
func TestWaitersOfABridgeThatLeaves(t *testing.T) {
	eachPair(t, func(t *testing.T, e *testenv.Env, second *testenv.Bridge) {
		names, replies := waitOn(t, e, second, e.Bridge, 8, `{"expires":"1h"}`)
		must(t, stopBridge(t, second))

		for _, r := range replies {
			if err := wantError(t, 503, "a pop that waits", next(t, r)); err.Unknown {
				t.Error(err)
			}
		}
		wantMetric(t, e.Bridge, "pq_bridges", 1)

		for i, r := range replies {
			wantSilence(t, e, r)
			replies[i] = askAndWait(t, e, names[i], "pop.min", `{"expires":"1h"}`)
		}
	})
}

// A bridge can leave while pops that it forwarded wait elsewhere. Leases go on waiting. Pops
// without a lease come back through it, so it ends them.
func TestWaitersOfABridgeThatForwarded(t *testing.T) {
	t.Parallel()

	e, second := pair(t, testenv.Mem())
	names, replies := waitOn(t, e, second, e.Bridge, 4, `{"expires":"1h","ack_wait":"1h"}`)
	plain := askOwnerAndWait(t, e, second, names[0], "pop.min", `{"expires":"1h"}`)
	newBridge(e)

	wantMetric(t, second, "pq_bridges", 3)
	must(t, stopBridge(t, e.Bridge))

	same(t, "unknown", wantError(t, 503, "a pop without a lease", next(t, plain)).Unknown, false)

	for i, name := range names {
		push(t, e, "pq."+name+".push", nil, "a")
		wantNext(t, replies[i], "a")
		wantSilence(t, e, replies[i])
	}
}

// Pops that wait stay where they are when another bridge comes to own their queue.
func TestWaitersWhenABridgeJoins(t *testing.T) {
	eachShared(t, func(t *testing.T, engine testenv.Engine) {
		const n = 32
		e := testenv.New(t, testenv.Options{Engine: engine})
		var replies []*nats.Subscription
		name := func(i int) string { return fmt.Sprintf("jobs-%d", i) }

		for i := range n {
			replies = append(replies, askAndWait(t, e, name(i), "pop.min", `{"expires":"1h"}`))
		}

		second := newBridge(e)
		waitForPeers(t, e.Bridge, second)

		for i := range n { // by either bridge
			push(t, e, "pq."+name(i)+".push", nil, name(i))
			wantNext(t, replies[i], name(i))
		}

		// From now on they wait where the queue belongs.
		for i := range n {
			replies[i] = ask(t, e.Conn, "pq."+name(i)+".pop.min", `{"expires":"1h"}`)
		}
		testenv.Eventually(t, func() error {
			a, b := e.Bridge.Dispatcher().Waiters(), second.Dispatcher().Waiters()
			if a == 0 || b == 0 || a+b != n {
				return fmt.Errorf("%d and %d pops wait", a, b)
			}

			return nil
		})

		for i := range n {
			push(t, e, "pq."+name(i)+".push", nil, name(i))
			wantNext(t, replies[i], name(i))
		}
	})
}

// Pops that wait on a peer have a bound of their own, and take no room of other pops.
func TestForwardedWaitersAreNotPending(t *testing.T) {
	limits := func(o *bridge.Options) { o.MaxPending, o.MaxWaiters = 4, 40 }
	e := start(t, testenv.Options{NATS: withForwardedOnly, Bridge: limits})
	second := e.StartBridge(forwardedOnly)
	waitForPeers(t, e.Bridge, second)
	names, replies := waitOn(t, e, second, e.Bridge, 1, `{"expires":"1h"}`)

	for range 39 {
		replies = append(replies, ask(t, e.Conn, "pq."+names[0]+".pop.min", `{"expires":"1h"}`))
		waitForWaiters(t, second, names[0], len(replies))
	}
	refused(t, e, 429, "pq."+names[0]+".pop.min", nil, []byte(`{"expires":"1h"}`))
	wantMetric(t, second, "pq_pending_requests", 0)
	// The line is served in order; nobody comes before it.
	refused(t, e, 404, "pq."+names[0]+".pop.min", nil, nil)

	for i, r := range replies {
		push(t, e, "pq."+names[0]+".push", nil, fmt.Sprint(i))
		wantNext(t, r, fmt.Sprint(i))
	}
	// Once the other bridge has said so, there is room again.
	waitUntil(t, "room", func() bool {
		again := ask(t, e.Conn, "pq."+names[0]+".pop.min", `{"expires":"1ms"}`)
		return next(t, again).Header.Get(subjects.HeaderErrorCode) != "429"
	})
}

// ownedBy returns the name of an empty queue that a bridge owns and another does not.
func ownedBy(t *testing.T, e *testenv.Env, owner, other *testenv.Bridge) string {
	t.Helper()
	names, replies := waitOn(t, e, owner, other, 1, `{"expires":"1h"}`)
	push(t, e, "pq."+names[0]+".push", nil, "probe")
	wantNext(t, replies[0], "probe")
	waitForWaiters(t, owner, names[0], 0)

	return names[0]
}

// askOwnerAndWait is ask, and waits until the pop waits on the owner of its queue.
func askOwnerAndWait(
	t *testing.T, e *testenv.Env, owner *testenv.Bridge, queue, verb, options string,
) *nats.Subscription {
	t.Helper()
	// The lane answers this once it has done with all that it answered before, so pops that have
	// got their items do not count.
	q, err := owner.Dispatcher().Queue(subjects.Priority, queue)
	must(t, err)
	_, err = owner.Dispatcher().Do(t.Context(), q, []fdbpq.Op{{Kind: fdbpq.OpLen}})
	must(t, err)

	before := q.Waiters()
	replies := ask(t, e.Conn, "pq."+queue+"."+verb, options)
	waitForWaiters(t, owner, queue, before+1)

	return replies
}

// pushTogether pushes items in one transaction, so that a pop cannot come between them, and
// returns their ids.
func pushTogether(t *testing.T, e *testenv.Env, queue string, values ...string) []string {
	t.Helper()
	var list []subjects.Frame
	for _, value := range values {
		list = append(list, frame(0, "", value))
	}

	return pushedIDs(t, queue, len(values),
		ok(t, e, "pq."+queue+".push.batch", nil, frames(list...)).Data)
}

// wantAllSettled checks that neither bridge has a pop that waits, and that the store is consistent.
func wantAllSettled(t *testing.T, e *testenv.Env, owner *testenv.Bridge) {
	t.Helper()
	for _, b := range []*testenv.Bridge{e.Bridge, owner} {
		wantMetric(t, b, "pq_waiters", 0)
		wantMetric(t, b, "pq_lost_items_total", 0)
	}
	checkStore(t, e)
}

// A pop that was forwarded, waits, and has no receiver any more ends with its first item, or
// frames. The items are back at their places.
func TestGoneForwardedWaiter(t *testing.T) {
	eachPair(t, func(t *testing.T, e *testenv.Env, second *testenv.Bridge) {
		name := ownedBy(t, e, second, e.Bridge)
		back := 0.0

		for options, n := range map[string]float64{
			`{"expires":"1h"}`:                                         1,
			`{"expires":"1h","no_wait":true}`:                          1,
			`{"expires":"1h","batch":9,"frames":true}`:                 5,
			`{"expires":"1h","batch":5,"frames":true,"ack_wait":"1h"}`: 5,
		} {
			values := largeValues(5)
			leave(t, e, askOwnerAndWait(t, e, second, name, "pop.min", options))
			ids := pushTogether(t, e, name, values...)

			back += n
			wantMetric(t, second, noResponders, back)

			wantAllSettled(t, e, second)
			wantFirst(t, e, name, ids, values)
			wantPopped(t, e, "pq."+name+".pop.min", values...)
		}

		// One that has received an item keeps that. What comes later goes back.
		gone := askOwnerAndWait(t, e, second, name, "pop.min", `{"expires":"1h","batch":9}`)
		push(t, e, "pq."+name+".push", nil, "received")
		wantNext(t, gone, "received")
		leave(t, e, gone)
		ids := pushTogether(t, e, name, "a", "b", "c")

		back += 3
		wantMetric(t, second, noResponders, back)

		wantAllSettled(t, e, second)
		wantFirst(t, e, name, ids, []string{"a", "b", "c"})
	})
}
