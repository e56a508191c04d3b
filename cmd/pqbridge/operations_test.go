package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/fdbpq/kv/pebblekv"
	"github.com/pqbridge/pqbridge/testenv"
)

// usersOfRecipe returns the users in the document's access control. Each password is the
// user's name.
func usersOfRecipe(t *testing.T) []*server.User {
	t.Helper()
	for _, user := range []string{"bridge", "producer", "worker", "viewer", "operator", "admin"} {
		t.Setenv(strings.ToUpper(user)+"_PASSWORD", user)
	}

	path := filepath.Join(t.TempDir(), "nats.conf")
	must(t, os.WriteFile(path, []byte(blockOf(t, "access.md", "conf")), 0o600))
	o, err := server.ProcessConfigFile(path)
	must(t, err)

	return o.Users
}

// With the document's access control, two bridges and a client of each kind can do their work, and
// no more.
func TestAccessControlRecipe(t *testing.T) {
	env := recipeEnv(t)
	bridges := []*testenv.Bridge{env.StartBridge(), env.StartBridge()}

	for _, b := range bridges {
		b.WaitReady()
	}

	producer := connectAs(t, env, "producer", "_INBOX_producer")
	worker := connectAs(t, env, "worker", "_INBOX_worker")

	// Until one bridge has forwarded a pop to the other.
	testenv.Eventually(t, func() error {
		producer.request(t, "pq.jobs.push", "an item")
		producer.request(t, "pq.jobs.push.-1", "an item")
		worker.request(t, "pq.jobs.peek.min", "")
		worker.request(t, "pq.jobs.pop.max", "")
		worker.request(t, "pq.jobs.pop.min", "")
		worker.request(t, "pq.jobs.len", "")
		worker.request(t, "pq.jobs.info", "")

		for _, b := range bridges {
			if !strings.Contains(metricsOf(t, b), "\npq_passed_total 0\n") {
				return nil
			}
		}

		return errors.New("no pop was forwarded")
	})

	viewer := connectAs(t, env, "viewer", "_INBOX_viewer")
	operator := connectAs(t, env, "operator", "_INBOX_operator")

	for _, kind := range []string{"pq", "q"} {
		operator.request(t, kind+".jobs.schedule", `{"id":"nightly","cron":"@daily"}`)
		operator.request(t, kind+".jobs.schedules", "")
		viewer.request(t, kind+".jobs.schedules", "")
		operator.request(t, kind+".jobs.unschedule", `{"id":"nightly"}`)
	}

	admin := connectAdmin(t, env)
	admin.request(t, "$SRV.PING.pqbridge", "")
	for _, b := range bridges {
		wantWords(t, metricsOf(t, b), "\npq_nats_errors_total 0\n") // NATS refused nothing
	}

	producer.denied(t, func(nc *nats.Conn) error { return nc.Publish("_pqbridge.members", nil) })
	for _, subject := range []string{"pq.jobs.schedule", "q.jobs.schedule", "pq.jobs.unschedule"} {
		for _, user := range []natsUser{producer, worker, viewer} {
			user.denied(t, func(nc *nats.Conn) error { return nc.Publish(subject, nil) })
		}
	}

	for _, subject := range []string{"_INBOX_producer.>", "_INBOX.>", "pq.>"} {
		worker.denied(t,
			func(nc *nats.Conn) error { _, err := nc.SubscribeSync(subject); return err })
	}
}

// natsUser is a connection that collects its errors.
type natsUser struct {
	*nats.Conn
	errors chan error
}

func connectAs(t *testing.T, env *testenv.Env, user, inbox string) natsUser {
	c := natsUser{errors: make(chan error, 1)}
	c.Conn = env.Connect(nats.UserInfo(user, user), nats.CustomInboxPrefix(inbox),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { c.errors <- err }))
	return c
}

// request fails the test if there is no reply, or one with an error.
func (c natsUser) request(t *testing.T, subject, payload string) {
	t.Helper()
	request(t, c.Conn, subject, payload)
}

// denied fails the test unless NATS refuses what try does.
func (c natsUser) denied(t *testing.T, try func(*nats.Conn) error) {
	t.Helper()
	must(t, try(c.Conn))
	select {
	case err := <-c.errors:
		if !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("want a permission violation: %v", err)
		}
	case <-time.After(testenv.Patience):
		t.Error("it was allowed")
	}
}

func metricsOf(t *testing.T, b *testenv.Bridge) string {
	t.Helper()
	_, body, err := b.Get("/metrics")
	must(t, err)
	return string(body)
}

// awaitMetric waits until a bridge's metrics have a text, or no longer have it.
func awaitMetric(t *testing.T, b *testenv.Bridge, text string, has bool) {
	t.Helper()
	testenv.Eventually(t, func() error {
		if strings.Contains(metricsOf(t, b), text) != has {
			return fmt.Errorf("%q among the metrics: %t", text, !has)
		}
		return nil
	})
}

// withAllMetrics has a bridge with the metrics that only some have: about JetStream, a source, and
// the disk of a store that was backed up.
func withAllMetrics(t *testing.T) *testenv.Env {
	t.Helper()
	db, err := pebblekv.Open(t.TempDir(), pebblekv.Options{})
	must(t, err)
	t.Cleanup(func() { db.Close() })
	must(t, db.Backup(t.Context(), filepath.Join(t.TempDir(), "copy")))

	space := func(o *bridge.Options) { o.Space = db }
	env := testenv.New(t, testenv.Options{JetStream: true, Bridge: space})
	env.Request("pq.jobs.push", nil, nil)
	env.Request("pq.jobs.config", nil, []byte(`{"source":{"stream":"ORDERS"}}`))
	awaitMetric(t, env.Bridge, "pq_source_lag{", true)

	return env
}

// The page of metrics has all that a bridge has, and no page for operators names another.
func TestMetricsPageIsComplete(t *testing.T) {
	env := withAllMetrics(t)
	env.Request("$JS.pq.API.INFO", nil, nil) // is counted
	var want []string
	help := regexp.MustCompile(`(?m)^# HELP (pq_\w+)`)

	for _, found := range help.FindAllStringSubmatch(metricsOf(t, env.Bridge), -1) {
		want = append(want, found[1])
	}

	for _, page := range []string{"metrics", "oncall", "embedded", "cluster", "access", "install"} {
		text := readFile(t, "docs", page+".md")
		named := regexp.MustCompile(`\bpq_[a-z_]+\b`).FindAllString(text, -1)

		for _, name := range want {
			if page == "metrics" && !slices.Contains(named, name) {
				t.Errorf("%s is not on the page", name)
			}
		}

		for _, name := range named {
			if !slices.Contains(want, name) {
				t.Errorf("%s.md: there is no metric %s", page, name)
			}
		}
	}
}
