package bridge_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq/fdbpqtest"
	"github.com/pqbridge/pqbridge/testenv"
)

// rounds is how many rounds it takes to retire a queue that is no longer used: the one
// in which it was last used, one without use, and two checks.
const rounds = 4

func retireRounds(t *testing.T, r *dispatch.Retirer, n int) {
	t.Helper()
	for range n {
		if err := r.Round(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// wantQueues checks how many queues the lists have, and the invariants of everything
// stored.
func wantQueues(t *testing.T, e *testenv.Env, want int) {
	t.Helper()
	contents, err := fdbpqtest.CheckInvariants(t.Context(), e.DB, "pq", "q")
	if err != nil || contents.Queues != want {
		t.Errorf("%d queues are listed, want %d; error %v", contents.Queues, want, err)
	}
}

// Names that were used once cost nothing in the end; a queue with items stays.
func TestDisposableNames(t *testing.T) {
	each(t, func(t *testing.T, e *testenv.Env) {
		const names = 500 // more than a page
		for i := range names {
			push(t, e, fmt.Sprintf("pq.once-%d.push", i), nil, "x")
			e.Request(fmt.Sprintf("pq.once-%d.pop.min", i), nil, nil)
		}
		push(t, e, "q.once.enqueue", nil, "x")
		e.Request("q.once.dequeue", nil, nil)
		e.Request("pq.never.pop.min", nil, nil)
		kept := push(t, e, "pq.kept.push", nil, "kept")
		wantQueues(t, e, names+2)

		retireRounds(t, e.Bridge.Dispatcher().NewRetirer(false), rounds)
		wantQueues(t, e, 1)
		if n := e.Bridge.Dispatcher().Queues(); n != 0 {
			t.Errorf("%d queues are still in memory", n)
		}
		_, body, err := e.Bridge.Get("/metrics")
		if err != nil || strings.Count(string(body), "pq_queue_length{") != 1 {
			t.Errorf("%v, metrics:\n%s", err, body)
		}
		wantItem(t, e, "pq.kept.pop.min", "kept", kept)
		push(t, e, "pq.once-1.push", nil, "again")
		wantQueues(t, e, 2)
	})
}

// A queue in use stays in memory and in the list.
func TestRetirerLeavesUsedQueues(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	r := e.Bridge.Dispatcher().NewRetirer(false)
	for range 3 * rounds {
		push(t, e, "pq.jobs.push", nil, "x")
		e.Request("pq.jobs.pop.min", nil, nil)
		retireRounds(t, r, 1)
	}
	wantQueues(t, e, 1)
	if n := e.Bridge.Dispatcher().Queues(); n != 1 {
		t.Errorf("%d queues are in memory, want the one in use", n)
	}
}

// Names of bridges that ended, or that had no room for them, are found in the list.
func TestRetirerFindsForgottenNames(t *testing.T) {
	e := testenv.New(t, testenv.Options{})
	other := e.StartBridge()
	other.WaitReady()
	use := func(name string) {
		for range 20 { // both bridges get some
			push(t, e, "pq."+name+".push", nil, "x")
			e.Request("pq."+name+".pop.min", nil, nil)
		}
	}
	use("first")
	if err := other.Stop(); err != nil {
		t.Fatal(err)
	}
	e.Bridge.BeginStop()
	<-e.Bridge.Done()
	wantQueues(t, e, 1)

	e.Bridge = e.StartBridge()
	e.Bridge.WaitReady()
	r := e.Bridge.Dispatcher().NewRetirer(true)
	retireRounds(t, r, 2)
	wantQueues(t, e, 0)
}
