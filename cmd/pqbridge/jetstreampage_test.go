package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// Everything in docs/jetstream.md works, in its order and with its programs.
func TestJetStreamPage(t *testing.T) {
	harness.OnlyNightly(t)
	g := newGuide(t)
	said := strings.Join(strings.Fields(g.sh("pq doctor\n")), " ") // whatever the width
	wantWords(t, said, "off, connected for JetStream's programs")

	g.follow("jetstream.md", func(b block, _ string) {
		switch b.kind {
		case "conf the server", "sh the bridge": // TestJetStreamOwnServer
		case "conf rights": // TestJetStreamRightsSuffice
		case "conf accounts": // TestJetStreamAnotherAccount
		default:
			t.Errorf("what is %q?", b.kind)
		}
	})
	g.stop() // Ctrl-C: its programs run in the foreground
}

// A server with the configuration in docs/jetstream.md works with a bridge that has the variables
// of its commands. Only the port differs.
func TestJetStreamOwnServer(t *testing.T) {
	commands := blockOf(t, "jetstream.md", "sh the bridge")
	assignment := regexp.MustCompile(`\b(PQ_[A-Z_]+)=(\S+)`)

	for _, m := range assignment.FindAllStringSubmatch(commands, -1) {
		t.Setenv(m[1], m[2])
	}

	c, err := loadConfig(false)
	must(t, err)
	documented := c.jetStreamOptions()

	config := testenv.ServerOptions(t, blockOf(t, "jetstream.md", "conf the server"))
	e := testenv.New(t, testenv.Options{JetStream: true,
		NATS: func(o *server.Options) {
			config(o)
			if o.LeafNode.Port != 7422 || documented.LeafURL != "nats-leaf://127.0.0.1:7422" {
				t.Errorf("the server has port %d, and the bridge connects to %s",
					o.LeafNode.Port, documented.LeafURL)
			}
		},
		Bridge: func(o *bridge.Options) {
			documented.LeafURL = o.JetStream.LeafURL
			o.JetStream = documented
		},
	})

	_, err = domain(t, natsUser{Conn: e.Conn}).Consumer(t.Context(), "jobs", "min")
	must(t, err)
}

// usersEnv runs a server with the users of a block of the page. Each password is the user's name.
// The leaf node of bridges is the user leafUser.
func usersEnv(t *testing.T, block, leafUser string) (*testenv.Env, *harness.Transcript) {
	t.Helper()
	for _, user := range []string{"bridge", "leaf", "owner", "workers", "worker", "app"} {
		t.Setenv(strings.ToUpper(user)+"_PASSWORD", user)
	}

	log := &harness.Transcript{}
	e := testenv.New(t, testenv.Options{JetStream: true, Stopped: true,
		NATS: testenv.ServerOptions(t, block),
		Bridge: func(o *bridge.Options) {
			o.NATSOptions = append(o.NATSOptions, nats.UserInfo("bridge", "bridge"))
			o.JetStream.Login = leaf.Login{User: leafUser, Password: leafUser}
			o.Logger = newLogger(&config{LogFormat: "text"}, log)
		},
	})

	e.NATS.Start()
	return e, log
}

// rightsEnv starts two bridges that forward requests to each other, with the rights of
// docs/jetstream.md. The queues jobs and other have items, and a consumer named own.
func rightsEnv(
	t *testing.T,
) (e *testenv.Env, bridges []*testenv.Bridge, log *harness.Transcript) {
	t.Helper()
	e, log = usersEnv(t, blockOf(t, "jetstream.md", "conf rights"), "leaf")
	bridges = []*testenv.Bridge{e.StartBridge(), e.StartBridge()}
	for _, b := range bridges {
		b.WaitReady()
		awaitMetric(t, b, "\npq_bridges 2\n", true)
	}

	js := domain(t, connectAs(t, e, "owner", strings.TrimSuffix(nats.InboxPrefix, ".")))
	for _, queue := range []string{"jobs", "other"} {
		for range 30 {
			_, err := js.Publish(t.Context(), "pq."+queue+".push.1", []byte("an item"))
			must(t, err)
		}

		_, err := js.CreateOrUpdateConsumer(t.Context(), queue,
			jetstream.ConsumerConfig{Durable: "own", AckPolicy: jetstream.AckExplicitPolicy})
		must(t, err)
	}
	return e, bridges, log
}

// The rights of docs/jetstream.md suffice for the owner of queues and for each kind of worker,
// whichever bridge gets a request: NATS refuses nothing, and the bridges warn of nothing.
func TestJetStreamRightsSuffice(t *testing.T) {
	e, bridges, log := rightsEnv(t)
	workers := connectAs(t, e, "workers", "_INBOX_worker")
	worker := connectAs(t, e, "worker", "_INBOX_worker")

	for range 10 { // either bridge gets a request
		takes(t, domain(t, workers), "jobs", "own")
		takes(t, domain(t, workers), "other", "max")
		takes(t, domain(t, worker), "jobs", "min")
	}

	for _, b := range bridges {
		wantWords(t, metricsOf(t, b), "\npq_nats_errors_total 0\n")
	}
	for _, level := range []string{"level=WARN", "level=ERROR"} {
		if strings.Contains(log.String(), level) {
			t.Errorf("the log has %s:\n%s", level, log)
		}
	}
}

// The rights of docs/jetstream.md let a worker of one consumer use nothing else, workers of all
// consumers change nothing, and nobody use the login of the bridges' leaf nodes.
func TestJetStreamRightsDenyTheRest(t *testing.T) {
	e, _, _ := rightsEnv(t)
	for user, subjects := range map[string][]string{
		"worker": {
			"$JS.pq.API.CONSUMER.MSG.NEXT.other.min",
			"$JS.pq.API.CONSUMER.MSG.NEXT.jobs.own",
			"$JS.ACK.pq.x.jobs.own.1.1.1.1.0.token",
			"$JS.pq.API.STREAM.PURGE.jobs",
			"pq.jobs.pop.min",
		},
		"workers": {
			"$JS.pq.API.CONSUMER.DELETE.jobs.own",
			"$JS.pq.API.STREAM.PURGE.jobs",
			"pq.jobs.push",
		},
	} {
		c := connectAs(t, e, user, "_INBOX_worker")
		for _, subject := range subjects {
			c.denied(t, func(nc *nats.Conn) error { return nc.Publish(subject, nil) })
		}
	}

	if nc, err := nats.Connect(e.NATS.URL(), nats.UserInfo("leaf", "leaf")); err == nil {
		nc.Close()
		t.Error("the leaf node's login is one for clients too")
	}
}

// A client in another account, as docs/jetstream.md sets it up, gets more than one answer to a
// request.
func TestJetStreamAnotherAccount(t *testing.T) {
	e, _ := usersEnv(t, blockOf(t, "jetstream.md", "conf accounts"), "bridge")
	e.StartBridge().WaitReady()
	js := domain(t, connectAs(t, e, "app", strings.TrimSuffix(nats.InboxPrefix, ".")))

	for _, subject := range []string{"pq.jobs.push", "pq.jobs.push.1"} {
		_, err := js.Publish(t.Context(), subject, []byte("an item"))
		must(t, err)
	}

	for range 2 {
		takes(t, js, "jobs", "min")
	}
}

// domain returns JetStream as the bridges serve it.
func domain(t *testing.T, user natsUser) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.NewWithDomain(user.Conn, "pq",
		jetstream.WithDefaultTimeout(testenv.Patience))
	must(t, err)
	return js
}

// takes takes an item with a consumer, and waits for the answer to its acknowledgement.
func takes(t *testing.T, js jetstream.JetStream, queue, consumer string) {
	t.Helper()
	c, err := js.Consumer(t.Context(), queue, consumer)
	must(t, err)
	job, err := c.Next(jetstream.FetchMaxWait(testenv.Patience))
	must(t, err)
	must(t, job.DoubleAck(t.Context()))
}

// With the line of docs/jetstream.md, a client that names no domain reaches the queues.
func TestDefaultDomain(t *testing.T) {
	line := regexp.MustCompile("`(default_js_domain: [^`]+)`").
		FindStringSubmatch(readFile(t, "docs", "jetstream.md"))
	if line == nil {
		t.Fatal("docs/jetstream.md has no default_js_domain")
	}

	const account = "accounts { ACC: { users: [ {user: bridge, password: bridge} ] } }\n"
	e, _ := usersEnv(t, account+line[1], "bridge")
	e.StartBridge().WaitReady()

	js, err := jetstream.New(
		connectAs(t, e, "bridge", strings.TrimSuffix(nats.InboxPrefix, ".")).Conn,
		jetstream.WithDefaultTimeout(testenv.Patience))
	must(t, err)
	_, err = js.Publish(t.Context(), "pq.jobs.push", []byte("an item"))
	must(t, err)

	takes(t, js, "jobs", "min")
}
