package bridge_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// natsServer starts a server with a configuration file, on a port that the system chooses.
func natsServer(t testing.TB, config string) *server.Server {
	t.Helper()
	o := &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT}
	testenv.ServerOptions(t, config)(o)
	testenv.PatientLogins(o)
	s, err := server.NewServer(o)
	must(t, err)

	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(testenv.Patience) {
		t.Fatal("the server did not start")
	}

	return s
}

// leafPort is what lets a bridge in.
const leafPort = "leafnodes { listen: \"127.0.0.1:-1\" }\n"

// leafURLOf returns the leaf node port of a server, with a user and a password if that is not
// empty.
func leafURLOf(t testing.TB, s *server.Server, login string) string {
	t.Helper()
	v, err := s.Varz(nil)
	must(t, err)
	return fmt.Sprintf("nats-leaf://%s127.0.0.1:%d", login, v.LeafNode.Port)
}

// clientURLOf is leafURLOf for clients.
func clientURLOf(s *server.Server, login string) string {
	return strings.Replace(s.ClientURL(), "://", "://"+login, 1)
}

// landscape is NATS servers, and where the bridge and a client connect to them.
type landscape struct {
	natsURL, leafURL, clientURL string
	otherLeafURL                string // of a second bridge; empty for the same one
	// The server does not tell leaf nodes of the client's inboxes.
	hidden bool
	prefix string
}

// start starts a bridge there and returns a client.
func (l *landscape) start(
	t testing.TB, changes ...func(*bridge.Options),
) (*testenv.Env, *nats.Conn) {
	t.Helper()
	e := testenv.New(t, testenv.Options{Stopped: true, Bridge: func(o *bridge.Options) {
		o.NATSURL, o.JetStream.LeafURL = l.natsURL, l.leafURL
		for _, change := range changes {
			change(o)
		}
	}})

	e.Bridge = newBridge(e)
	e.Conn = dial(t, l.clientURL)
	return e, e.Conn
}

// dial returns a client's connection.
func dial(t testing.TB, url string, options ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, append(options, nats.Timeout(testenv.Patience))...)
	must(t, err)
	t.Cleanup(nc.Close)

	return nc
}

// alone is a single server, without accounts.
func alone(t testing.TB, config string) *landscape {
	s := natsServer(t, config+leafPort)
	return &landscape{
		natsURL:   s.ClientURL(),
		leafURL:   leafURLOf(t, s, ""),
		clientURL: s.ClientURL(),
	}
}

// withJetStream is the configuration of a server with a JetStream of its own.
func withJetStream(t testing.TB, domain string) string {
	return fmt.Sprintf("jetstream { store_dir: %q, max_mem: 1MB, max_file: 8MB%s }\n", t.TempDir(),
		domain)
}

// Wherever two bridges and their clients are, a worker takes items in order. One of the bridges
// serves the queue, and the other forwards to it what it gets.
func TestJetStreamTopologies(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		build func(t *testing.T) *landscape
	}{
		{"no JetStream", func(t *testing.T) *landscape { return alone(t, "") }},
		{"JetStream", func(t *testing.T) *landscape { return alone(t, withJetStream(t, "")) }},
		{"JetStream with a domain", func(t *testing.T) *landscape {
			return alone(t, withJetStream(t, ", domain: hub"))
		}},
		{"cluster", acrossCluster},
		{"gateway", acrossGateway},
		{"edge", behindEdge},
		{"export", byExport},
		{"leaf node of another account", leafOfAccount},
		{"default domain", defaultDomain},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()

			l := test.build(t)
			e, nc := l.start(t)
			js := l.jetStream(t, nc)

			bridges := []*testenv.Bridge{e.Bridge, newBridge(e, func(o *bridge.Options) {
				o.JetStream.LeafURL = cmp.Or(l.otherLeafURL, l.leafURL)
			})}
			for _, b := range bridges {
				wantMetric(t, b, "pq_bridges", 2)
			}

			for range harness.Times(4, 10) { // any of the bridges gets a request
				worksAsJetStream(t, js)
			}

			waitsAsJetStream(t, l, bridges, js)
			one := count(t, bridges[0], "pq_deliveries_total")
			other := count(t, bridges[1], "pq_deliveries_total")
			if one > 0 && other > 0 {
				t.Errorf("the bridges delivered %v and %v", one, other)
			}
		})
	}
}

// acrossCluster has the client, and the second bridge's leaf node, at the other server.
func acrossCluster(t *testing.T) *landscape {
	const listen = "cluster { name: c, listen: \"127.0.0.1:-1\"%s }\n"
	here := natsServer(t, fmt.Sprintf(listen, "")+leafPort)

	there := natsServer(t, fmt.Sprintf(listen,
		fmt.Sprintf(", routes: [ %q ]", "nats-route://"+here.ClusterAddr().String()))+leafPort)
	testenv.Eventually(t, func() error {
		if here, there := here.NumRoutes(), there.NumRoutes(); here == 0 || here != there {
			return fmt.Errorf("%d and %d routes", here, there)
		}
		return nil
	})

	return &landscape{
		natsURL:      here.ClientURL(),
		leafURL:      leafURLOf(t, here, ""),
		otherLeafURL: leafURLOf(t, there, ""),
		clientURL:    there.ClientURL(),
	}
}

// acrossGateway has the client in another cluster.
func acrossGateway(t *testing.T) *landscape {
	const listen = "accounts { SYS {} }, system_account: SYS\n" +
		"gateway { name: %s, listen: \"127.0.0.1:-1\"%s }\n"
	here := natsServer(t, fmt.Sprintf(listen, "A", "")+leafPort)
	remote := fmt.Sprintf(", gateways: [ { name: A, url: %q } ]",
		"nats://"+here.GatewayAddr().String())

	there := natsServer(t, fmt.Sprintf(listen, "B", remote))
	testenv.Eventually(t, func() error {
		if here.NumOutboundGateways() == 0 || there.NumOutboundGateways() == 0 {
			return errors.New("no gateway")
		}
		return nil
	})

	return &landscape{
		natsURL:   here.ClientURL(),
		leafURL:   leafURLOf(t, here, ""),
		clientURL: there.ClientURL(),
		hidden:    true,
	}
}

// behindEdge has the client behind a leaf node server with a domain of its own.
func behindEdge(t *testing.T) *landscape {
	hub := natsServer(t, withJetStream(t, ", domain: hub")+leafPort)
	leaf := natsServer(t, withJetStream(t, ", domain: edge")+
		fmt.Sprintf("server_name: edge\nleafnodes { remotes: [ { url: %q } ] }",
			leafURLOf(t, hub, "")))
	testenv.Eventually(t, func() error {
		if leaf.NumLeafNodes() == 0 || hub.NumLeafNodes() == 0 {
			return errors.New("no leaf node")
		}
		return nil
	})

	return &landscape{
		natsURL:   hub.ClientURL(),
		leafURL:   leafURLOf(t, hub, ""),
		clientURL: leaf.ClientURL(),
	}
}

// accounts has an account for the bridge and one for its clients.
const accounts = `
accounts {
	PQ { users: [ { user: bridge, password: x } ]
		%s }
	APP { users: [ { user: app, password: x }, { user: leaf, password: x } ]
		%s }
}
`

// byExport has the client in another account, which imports the subjects of the queues.
func byExport(t *testing.T) *landscape {
	exports := `exports: [
			{ service: "pq.*.push.>" },
			{ service: "$JS.pq.API.>", response: stream },
			{ service: "$JS.ACK.pq.>" } ]`
	imports := `imports: [
			{ service: { account: PQ, subject: "pq.*.push.>" } },
			{ service: { account: PQ, subject: "$JS.pq.API.>" } },
			{ service: { account: PQ, subject: "$JS.ACK.pq.>" } } ]`
	s := natsServer(t, fmt.Sprintf(accounts, exports, imports)+leafPort)
	return &landscape{
		natsURL:   clientURLOf(s, "bridge:x@"),
		leafURL:   leafURLOf(t, s, "bridge:x@"),
		clientURL: clientURLOf(s, "app:x@"),
		hidden:    true,
	}
}

// leafOfAccount has the leaf node in the account of the clients, without exports of JetStream's.
func leafOfAccount(t *testing.T) *landscape {
	s := natsServer(t, fmt.Sprintf(accounts, `exports: [ { service: "pq.*.push.>" } ]`,
		`imports: [ { service: { account: PQ, subject: "pq.*.push.>" } } ]`)+leafPort)
	return &landscape{
		natsURL:   clientURLOf(s, "bridge:x@"),
		leafURL:   leafURLOf(t, s, "leaf:x@"),
		clientURL: clientURLOf(s, "app:x@"),
	}
}

// defaultDomain has a server whose clients need not name the domain.
func defaultDomain(t *testing.T) *landscape {
	s := natsServer(t, fmt.Sprintf(accounts, "", "")+"default_js_domain: { APP: pq }\n"+leafPort)
	return &landscape{
		natsURL:   clientURLOf(s, "app:x@"),
		leafURL:   leafURLOf(t, s, "leaf:x@"),
		clientURL: clientURLOf(s, "app:x@"),
		prefix:    "$JS.API",
	}
}

// jetStream returns the client's JetStream, once it hears of the queues.
func (l *landscape) jetStream(t testing.TB, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js := jetStreamOf(t, nc)
	if l.prefix != "" {
		var err error
		js, err = jetstream.New(nc, jetstream.WithDefaultTimeout(testenv.Patience))
		must(t, err)
	}
	testenv.Eventually(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := js.AccountInfo(ctx)
		return err
	})

	return js
}

// worksAsJetStream takes items as a worker does.
func worksAsJetStream(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	ctx := t.Context()
	for _, push := range []struct{ priority, value string }{{"7", "late"}, {"1", "early"}} {
		ack, err := js.Publish(ctx, "pq.jobs.push."+push.priority, []byte(push.value))
		must(t, err)
		same(t, "stream", ack.Stream, "jobs")
	}

	c, err := js.CreateOrUpdateConsumer(ctx, "jobs", jetstream.ConsumerConfig{
		Durable:   "w",
		AckPolicy: jetstream.AckExplicitPolicy,
		AckWait:   time.Minute,
	})
	must(t, err)

	batch, err := c.Fetch(2, jetstream.FetchMaxWait(testenv.Patience))
	must(t, err)

	for _, want := range []string{"early", "late"} {
		m, ok := <-batch.Messages()
		if !ok {
			t.Fatalf("no item: %v", batch.Error())
		}
		same(t, "value", string(m.Data()), want)
		same(t, "subject", m.Subject(), "pq.jobs.push")

		metadata, err := m.Metadata()
		must(t, err)
		same(t, "domain", metadata.Domain, "pq")
		same(t, "stream", metadata.Stream, "jobs")
		same(t, "consumer", metadata.Consumer, "w")
		same(t, "deliveries", metadata.NumDelivered, 1)

		if want == "early" {
			must(t, m.DoubleAck(ctx))
		} else {
			must(t, m.Nak())
		}
	}

	again, err := c.Next(jetstream.FetchMaxWait(testenv.Patience))
	must(t, err)
	same(t, "the one that comes again", string(again.Data()), "late")
	must(t, again.DoubleAck(ctx))

	nothing, err := c.FetchNoWait(1)
	must(t, err)
	for m := range nothing.Messages() {
		t.Errorf("%s is left", m.Data())
	}
	must(t, nothing.Error())
}

// waitsAsJetStream has pulls wait: for an item, and for nothing.
func waitsAsJetStream(
	t *testing.T, l *landscape, bridges []*testenv.Bridge, js jetstream.JetStream,
) {
	t.Helper()
	ctx, nc := t.Context(), js.Conn()
	waitForWaiters := func(n float64) {
		t.Helper()
		testenv.Eventually(t, func() error {
			got := count(t, bridges[0], "pq_waiters") + count(t, bridges[1], "pq_waiters")
			if got != n {
				return fmt.Errorf("%v pulls wait", got)
			}

			return nil
		})
	}

	inbox := nc.NewInbox()
	s := subscribe(t, nc, inbox)

	pull := func(payload string) {
		t.Helper()
		prefix := "$JS.pq.API"
		if l.prefix != "" {
			prefix = l.prefix
		}
		must(t, nc.PublishRequest(prefix+".CONSUMER.MSG.NEXT.jobs.w", inbox, []byte(payload)))
	}

	// A gateway remembers where a request came from for two seconds.
	pull(`{"expires":3600000000000,"idle_heartbeat":2200000000}`)
	waitForWaiters(1)

	if l.hidden {
		same(t, "a heartbeat", next(t, s).Header.Get("Status"), "100")
	}

	_, err := js.Publish(ctx, "pq.jobs.push.1", []byte("x"))
	must(t, err)
	m := next(t, s)

	for m.Header.Get("Status") == "100" { // more heartbeats
		m = next(t, s)
	}
	same(t, "what came", string(m.Data), "x")
	must(t, m.AckSync(nats.AckWait(testenv.Patience)))

	pull(`{"expires":200000000}`)
	same(t, "the end", next(t, s).Header.Get("Status"), "408")

	pull(`{"expires":3600000000000}`)
	waitForWaiters(1)
	must(t, s.Unsubscribe())
	must(t, nc.FlushTimeout(testenv.Patience))

	if !l.hidden {
		waitForWaiters(0)
	}
}

// Streams of the server's own JetStream, even one named as the domain, are served as before.
func TestJetStreamBesideAnother(t *testing.T) {
	t.Parallel()

	l := alone(t, withJetStream(t, ""))
	_, nc := l.start(t)
	worksAsJetStream(t, l.jetStream(t, nc))
	own, err := jetstream.New(nc, jetstream.WithDefaultTimeout(testenv.Patience))
	must(t, err)

	ctx := t.Context()
	_, err = own.CreateStream(ctx, jetstream.StreamConfig{
		Name:     "pq",
		Subjects: []string{"orders"},
		Storage:  jetstream.MemoryStorage,
	})
	must(t, err)

	c, err := own.CreateConsumer(ctx, "pq",
		jetstream.ConsumerConfig{Durable: "w", AckPolicy: jetstream.AckExplicitPolicy})
	must(t, err)
	_, err = own.Publish(ctx, "orders", []byte("a"))
	must(t, err)

	m, err := c.Next(jetstream.FetchMaxWait(testenv.Patience))
	must(t, err)
	must(t, m.DoubleAck(ctx))

	info, err := c.Info(ctx)
	must(t, err)
	same(t, "acknowledged", info.AckFloor.Stream, 1)
}
