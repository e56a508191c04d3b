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
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// recipeEnv starts a NATS server with the documented access control, but without the bridge's
// permissions for the subjects in missing. It starts no bridge.
func recipeEnv(t *testing.T, missing ...string) *testenv.Env {
	t.Helper()
	users := usersOfRecipe(t)
	bridges := slices.IndexFunc(users, func(u *server.User) bool { return u.Username == "bridge" })
	may := users[bridges].Permissions

	for _, p := range []*server.SubjectPermission{may.Publish, may.Subscribe} {
		p.Allow = slices.DeleteFunc(p.Allow,
			func(s string) bool { return slices.Contains(missing, s) })
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

// NATS refuses whatever the recipe does not allow a client, and the queues stay as they were.
func TestDeniedChangesNothing(t *testing.T) {
	e := recipeEnv(t)
	e.StartBridge().WaitReady()
	admin := connectAdmin(t, e)

	for _, subject := range []string{
		"pq.jobs.push",
		"pq.other.push",
		"q.jobs.push",
		"q.other.push",
	} {
		admin.request(t, subject, "stays")
	}

	before := lengths(t, admin)

	may := map[string][]string{
		"producer": {"pq.jobs.push", "pq.jobs.push.7"},
		"worker": {"pq.jobs.pop.min", "pq.jobs.pop.max", "pq.jobs.peek.min", "pq.jobs.peek.max",
			"pq.jobs.len"},
	}

	for user, allowed := range may {
		c := connectAs(t, e, user, "_INBOX_"+user)
		for _, kind := range []string{"pq", "q"} {
			for _, queue := range []string{"jobs", "other"} {
				for _, verb := range []string{
					"push", "push.7", "pop.min", "pop.max", "peek.min", "peek.max", "len", "pop",
					"peek",
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

// Bridges without permission to talk to each other work as if they were alone, and say so in the
// log.
func TestBridgesThatMayNotTalk(t *testing.T) {
	e := recipeEnv(t, "_pqbridge.>")
	var log harness.Transcript
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

	awaitLog(t, &log, "allow this user to publish and subscribe to _pqbridge.>")
}

// The bridge needs every permission in the recipe, and says which one is missing.
func TestBridgeNeedsItsPermissions(t *testing.T) {
	for _, subject := range []string{"pq.>", "q.>"} {
		t.Run(subject, func(t *testing.T) {
			b := recipeEnv(t, subject).StartBridge()
			testenv.Eventually(t, func() error {
				_, reasons, err := b.Ready()
				if err == nil &&
					!strings.Contains(fmt.Sprint(reasons), "Subscription to "+subject+" ") {
					err = fmt.Errorf("reasons %q", reasons)
				}

				return err
			})
		})
	}
	for _, missing := range []string{"_INBOX.>", "$SRV.>", "_PQ.>"} {
		t.Run(missing, func(t *testing.T) {
			e := recipeEnv(t, missing)
			b := e.StartBridge()
			b.WaitReady()
			admin := connectAdmin(t, e)
			must(t, admin.PublishRequest("pq.jobs.len", admin.NewInbox(), nil))

			awaitMetric(t, b, "\npq_nats_errors_total 0\n", false)
		})
	}
}
