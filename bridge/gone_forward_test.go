package bridge_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/race"
)

// ownedBy returns the name of an empty queue that a bridge owns and another does not.
func ownedBy(t *testing.T, e *testenv.Env, owner, other *testenv.Bridge) string {
	t.Helper()
	names, replies := waitOn(t, e, owner, other, 1, `{"expires":"1h"}`)
	push(t, e, "pq."+names[0]+".push", nil, "probe")
	got(t, replies[0], "probe")
	waiters(t, owner, names[0], 0)
	return names[0]
}

// forwardedTo is ask, and waits until the pop waits on the owner of its queue.
func forwardedTo(t *testing.T, e *testenv.Env, owner *testenv.Bridge, queue, verb, options string) *nats.Subscription {
	t.Helper()
	before := waitersOf(t, owner, queue)
	replies := ask(t, e.Conn, "pq."+queue+"."+verb, options)
	waiters(t, owner, queue, before+1)
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
	return pushedIDs(t, queue, len(values), ok(t, e, "pq."+queue+".push.batch", nil, frames(list...)).Data)
}

// wantInPlace checks that a queue has these items in this order with the ids they were pushed
// with, and pops them.
func wantInPlace(t *testing.T, e *testenv.Env, queue string, ids []string, values ...string) {
	t.Helper()
	for i, value := range values {
		m := e.Request("pq."+queue+".pop.min", nil, nil)
		if string(m.Data) != value || m.Header.Get(subjects.HeaderID) != ids[i] {
			t.Errorf("%s: popped %q %v, want %q with id %s", queue, m.Data, m.Header, value, ids[i])
		}
	}
	wantPopped(t, e, "pq."+queue+".pop.min")
}

// forgotten checks that a bridge remembers no pop that it forwarded and that waits.
func forgotten(t *testing.T, b *testenv.Bridge) {
	t.Helper()
	testenv.Eventually(t, func() error {
		if n := b.ForwardedWaiters(); n > 0 {
			return fmt.Errorf("%d forwarded pops seem to wait", n)
		}
		return nil
	})
}

// settled checks that neither bridge has a pop that waits or remembers one, and that the store
// is consistent.
func settled(t *testing.T, e *testenv.Env, owner *testenv.Bridge) {
	t.Helper()
	for _, b := range []*testenv.Bridge{e.Bridge, owner} {
		wantMetric(t, b, "pq_waiters", 0)
		wantMetric(t, b, "pq_lost_items_total", 0)
	}
	testenv.Eventually(t, func() error {
		if n := owner.UnansweredForwards(); n > 0 {
			return fmt.Errorf("%d pops were not answered", n)
		}
		return nil
	})
	forgotten(t, e.Bridge)
	consistent(t, e)
}

// A pop that was forwarded, waits, and has no receiver any more ends with its first item, and
// the bridge that forwarded it learns that. The items are back at their places.
func TestGoneForwardedWaiter(t *testing.T) {
	eachPair(t, func(t *testing.T, e *testenv.Env, second *testenv.Bridge) {
		name := ownedBy(t, e, second, e.Bridge)
		back := 0.0
		for _, options := range []string{`{"expires":"1h"}`, `{"expires":"1h","no_wait":true}`} {
			leave(t, e, forwardedTo(t, e, second, name, "pop.min", options))
			ids := pushTogether(t, e, name, "a", "b", "c")
			back++
			wantMetric(t, second, noResponders, back)
			settled(t, e, second)
			wantInPlace(t, e, name, ids, "a", "b", "c")
		}
		// One that has received an item keeps that. What comes later goes back.
		gone := forwardedTo(t, e, second, name, "pop.min", `{"expires":"1h","batch":9}`)
		push(t, e, "pq."+name+".push", nil, "received")
		got(t, gone, "received")
		leave(t, e, gone)
		ids := pushTogether(t, e, name, "a", "b", "c")
		back += 3
		wantMetric(t, second, noResponders, back)
		settled(t, e, second)
		wantInPlace(t, e, name, ids, "a", "b", "c")
	})
}

// Pops whose receivers are gone keep no place of those that may wait, however often.
func TestGoneForwardedWaitersFreeTheirPlaces(t *testing.T) {
	const most = 3
	rounds := race.Times(50, 12)
	limits := func(o *bridge.Options) { o.MaxPending, o.MaxWaiters = 4, most } // few pending, so it reports each at once
	e := testenv.New(t, testenv.Options{NATS: withForwardedOnly, Bridge: limits})
	second := e.StartBridge(forwardedOnly)
	together(t, e.Bridge, second)
	name := ownedBy(t, e, second, e.Bridge)
	settled(t, e, second)
	for round := range rounds {
		var gone []*nats.Subscription
		for range most {
			gone = append(gone, forwardedTo(t, e, second, name, "pop.min", `{"expires":"1h"}`))
		}
		refused(t, e, 429, "pq."+name+".pop.min", nil, []byte(`{"expires":"1h"}`))
		for _, s := range gone {
			leave(t, e, s)
		}
		ids := pushTogether(t, e, name, "a", "b")
		wantMetric(t, second, noResponders, float64(most*(round+1))) // one item each
		settled(t, e, second)
		wantInPlace(t, e, name, ids, "a", "b")
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
}

// The owner of the queues stops just as its pops turn out to have no receivers. No item is
// lost, and the bridge that takes its place serves what is asked next.
func TestGoneForwardedWaitersOfABridgeThatLeaves(t *testing.T) {
	eachPair(t, func(t *testing.T, e *testenv.Env, second *testenv.Bridge) {
		names, replies := waitOn(t, e, second, e.Bridge, 8, `{"expires":"1h"}`)
		for _, r := range replies[1:] {
			leave(t, e, r)
		}
		ids := map[string][]string{}
		for _, name := range names[1:] {
			ids[name] = pushTogether(t, e, name, "a", "b")
		}
		began := time.Now()
		must(t, second.Stop())
		if took := time.Since(began); took > bridge.DefaultShutdownTimeout/2 {
			t.Errorf("the shutdown took %v", took)
		}
		if err := isError(t, 503, "the one that is there", next(t, replies[0])); err.Unknown {
			t.Error(err)
		}
		takesItsPlace(t, e, names)
		for name, pushed := range ids {
			wantInPlace(t, e, name, pushed, "a", "b")
		}
	})
}

// takesItsPlace checks that after the second bridge is gone the first remembers nothing of it, and
// that pops wait on the two of them again when another takes its place.
func takesItsPlace(t *testing.T, e *testenv.Env, names []string) {
	t.Helper()
	wantMetric(t, e.Bridge, "pq_bridges", 1)
	forgotten(t, e.Bridge)
	third := e.StartBridge(forwardedOnly)
	together(t, e.Bridge, third)
	for _, name := range names {
		again := ask(t, e.Conn, "pq."+name+"-next.pop.min", `{"expires":"1h"}`)
		push(t, e, "pq."+name+"-next.push", nil, name)
		got(t, again, name)
	}
	settled(t, e, third)
}
