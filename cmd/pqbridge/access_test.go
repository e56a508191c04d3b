package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/testenv"
)

// recipeEnv starts a NATS server with the documented access control, after change has
// edited it. It starts no bridge.
func recipeEnv(t *testing.T, change func(user *server.User)) *testenv.Env {
	t.Helper()
	users := usersOfRecipe(t)
	for _, user := range users {
		change(user)
	}
	e := testenv.New(t, testenv.Options{
		Stopped: true,
		NATS:    func(o *server.Options) { o.Users = users },
		Bridge: func(o *bridge.Options) {
			o.NATSOptions = append(o.NATSOptions, nats.UserInfo("bridge", "bridge"))
		},
	})
	e.NATS.Start()
	return e
}

func unchanged(*server.User) {}

// newRecipe is recipeEnv with a bridge and an admin.
func newRecipe(t *testing.T, change func(*server.User)) (*testenv.Env, *testenv.Bridge, natsUser) {
	t.Helper()
	e := recipeEnv(t, change)
	b := e.StartBridge()
	b.WaitReady()
	return e, b, connectAdmin(t, e)
}

// without removes subjects from what the bridge may publish and subscribe to.
func without(subjects ...string) func(*server.User) {
	return func(user *server.User) {
		if user.Username != "bridge" {
			return
		}
		for _, p := range []*server.SubjectPermission{user.Permissions.Publish, user.Permissions.Subscribe} {
			p.Allow = slices.DeleteFunc(p.Allow, func(s string) bool { return slices.Contains(subjects, s) })
		}
	}
}

func connectAdmin(t *testing.T, e *testenv.Env) natsUser {
	t.Helper()
	return connectAs(t, e, "admin", strings.TrimSuffix(nats.InboxPrefix, "."))
}

// lengths lists the length of every queue that the tests use.
func lengths(t *testing.T, admin natsUser) string {
	t.Helper()
	var b strings.Builder
	for _, queue := range []string{"pq.jobs", "pq.other", "q.jobs", "q.other"} {
		fmt.Fprintf(&b, "%s\n", request(t, admin.Conn, queue+".len", "").Data)
	}
	return b.String()
}

// TestDeniedChangesNothing: NATS refuses whatever the recipe does not allow a client, and
// the queues stay as they were.
func TestDeniedChangesNothing(t *testing.T) {
	e, _, admin := newRecipe(t, unchanged)
	for _, subject := range []string{"pq.jobs.push", "pq.other.push", "q.jobs.enqueue", "q.other.enqueue"} {
		admin.request(t, subject, "stays")
	}
	before := lengths(t, admin)

	may := map[string][]string{
		"producer": {"pq.jobs.push", "pq.jobs.push.7"},
		"worker":   {"pq.jobs.pop.min", "pq.jobs.pop.max", "pq.jobs.peek.min", "pq.jobs.peek.max", "pq.jobs.len"},
	}
	for user, allowed := range may {
		c := connectAs(t, e, user, "_INBOX_"+user)
		for _, kind := range []string{"pq", "q"} {
			for _, queue := range []string{"jobs", "other"} {
				for _, verb := range []string{
					"push", "push.7", "pop.min", "pop.max", "peek.min", "peek.max", "len", "enqueue", "dequeue", "peek",
				} {
					subject := kind + "." + queue + "." + verb
					if !slices.Contains(allowed, subject) {
						c.denied(t, func(nc *nats.Conn) error { return nc.Publish(subject, nil) })
					}
				}
			}
		}
	}
	if after := lengths(t, admin); after != before {
		t.Errorf("before:\n%safter:\n%s", before, after)
	}
	connectAs(t, e, "producer", "_INBOX_producer").request(t, "pq.jobs.push.7", "new")
	connectAs(t, e, "worker", "_INBOX_worker").request(t, "pq.jobs.pop.max", "")
}

// TestRepliesCarryNoRights: a client cannot choose a reply subject that makes the bridge
// do what NATS would refuse the client.
func TestRepliesCarryNoRights(t *testing.T) {
	e, _, admin := newRecipe(t, unchanged)
	admin.request(t, "pq.jobs.push", "an id")
	before := lengths(t, admin)
	worker := connectAs(t, e, "worker", "_INBOX_worker")
	for _, reply := range []string{"pq.other.push", "q.other.enqueue", "_pqbridge.members", "_PQ.bridge.1", "$SRV.PING"} {
		must(t, worker.PublishRequest("pq.jobs.peek.min", reply, nil))
	}
	worker.request(t, "pq.jobs.len", "") // by now the bridge has handled the others
	if after := lengths(t, admin); after != before {
		t.Errorf("before:\n%safter:\n%s", before, after)
	}
}

// TestBridgesThatMayNotTalk: bridges without permission to talk to each other work as if
// they were alone, and say so in the log.
func TestBridgesThatMayNotTalk(t *testing.T) {
	e := recipeEnv(t, without("_pqbridge.>"))
	var log testenv.Transcript
	quiet := func(o *bridge.Options) { o.Logger = newLogger(&config{LogFormat: "text"}, &log) }
	bridges := []*testenv.Bridge{e.StartBridge(quiet)}
	admin := connectAdmin(t, e)
	for range 2 {
		bridges[len(bridges)-1].WaitReady()
		for i := range 50 {
			value := fmt.Sprint(i)
			admin.request(t, "pq.jobs.push", value)
			pops(t, admin.Conn, "pq.jobs.pop.min", value)
		}
		bridges = append(bridges, e.StartBridge(quiet))
	}
	if !strings.Contains(log.String(), "allow this user to publish and subscribe to _pqbridge.>") {
		t.Errorf("the log does not say what is missing:\n%s", log.String())
	}
}

// TestReceiversThatAreGone: with the documented permissions an item that nobody receives is
// back; without the one for that, only that does not work, and the log says so.
func TestReceiversThatAreGone(t *testing.T) {
	for missing, want := range map[string]string{"nothing": "a", "_PQ.>": "b"} {
		t.Run(missing, func(t *testing.T) {
			e := recipeEnv(t, without(missing))
			var log testenv.Transcript
			b := e.StartBridge(func(o *bridge.Options) { o.Logger = newLogger(&config{LogFormat: "text"}, &log) })
			b.WaitReady()
			admin := connectAdmin(t, e)
			admin.request(t, "pq.jobs.push", "a")
			admin.request(t, "pq.jobs.push", "b")
			worker := connectAs(t, e, "worker", "_INBOX_worker")
			must(t, worker.PublishRequest("pq.jobs.pop.min", worker.NewInbox(), nil))
			worker.request(t, "pq.jobs.len", "")
			testenv.Eventually(t, func() error {
				if back := !strings.Contains(metricsOf(t, b), "\npq_given_back_total{reason=\"no_responders\"} 0\n"); back != (want == "a") {
					return fmt.Errorf("an item is back: %t", back)
				}
				return nil
			})
			pops(t, worker.Conn, "pq.jobs.pop.min", want)
			if said := strings.Contains(log.String(), "allow this user to subscribe to _PQ.>"); said != (want == "b") {
				t.Errorf("the log:\n%s", log.String())
			}
		})
	}
}

// TestBridgeNeedsItsPermissions: the bridge needs every permission in the recipe, and says
// which one is missing.
func TestBridgeNeedsItsPermissions(t *testing.T) {
	for _, subject := range []string{"pq.>", "q.>"} {
		t.Run(subject, func(t *testing.T) {
			b := recipeEnv(t, without(subject)).StartBridge()
			testenv.Eventually(t, func() error {
				_, reasons, err := b.Ready()
				if err == nil && !strings.Contains(fmt.Sprint(reasons), fmt.Sprintf("Subscription to %q", subject)) {
					err = fmt.Errorf("reasons %q", reasons)
				}
				return err
			})
		})
	}
	for _, missing := range []string{"_INBOX.>", "$SRV.>", "_PQ.>"} {
		t.Run(missing, func(t *testing.T) {
			_, b, admin := newRecipe(t, without(missing))
			must(t, admin.PublishRequest("pq.jobs.len", admin.NewInbox(), nil))
			testenv.Eventually(t, func() error {
				if strings.Contains(metricsOf(t, b), "\npq_nats_errors_total 0\n") {
					return fmt.Errorf("NATS refused nothing without %s", missing)
				}
				return nil
			})
		})
	}
}
