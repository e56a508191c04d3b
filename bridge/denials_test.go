package bridge_test

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/testenv"
)

// An operator takes permissions away while the bridge runs, and gives them back. NATS does not make the subscriptions
// again that it has ended.
func TestPermissionsComeBack(t *testing.T) {
	users := func(p *server.Permissions) func(*server.Options) {
		return func(o *server.Options) { restricted(p, testenv.Options{}).NATS(o) }
	}
	e := testenv.New(t, restricted(inboxesOnly(), testenv.Options{}))
	push(t, e, "pq.jobs.push", nil, "a")

	less := inboxesOnly()
	less.Subscribe = &server.SubjectPermission{Deny: []string{"pq.>", "_PQ.>"}}
	e.NATS.Change(users(less))
	e.NATS.Reload()
	wantReady := func(want bool) {
		t.Helper()
		testenv.Eventually(t, func() error {
			ready, reasons, err := e.Bridge.Ready()
			if err == nil && ready != want {
				err = fmt.Errorf("ready: %t, reasons %v", ready, reasons)
			}
			return err
		})
	}
	wantReady(false)
	push(t, e, "q.jobs.enqueue", nil, "served as ever")
	e.Bridge.AskAgain() // before it is permitted
	wantReady(false)

	e.NATS.Change(users(inboxesOnly()))
	e.NATS.Reload()
	e.Bridge.AskAgain()
	wantReady(true)
	wantPopped(t, e, "pq.jobs.pop.min", "a")
	push(t, e, "pq.jobs.push", nil, "b")
	publish(t, e, "pq.jobs.pop.min", nats.NewInbox(), "")
	wantMetric(t, e.Bridge, noResponders, 1)
	wantPopped(t, e, "pq.jobs.pop.min", "b")
	if serving, _ := e.Bridge.Subscriptions(); !allValid(serving) {
		t.Error("the bridge still counts on subscriptions that have ended")
	}
}

func allValid(subscriptions []*nats.Subscription) bool {
	for _, s := range subscriptions {
		if !s.IsValid() {
			return false
		}
	}
	return true
}
