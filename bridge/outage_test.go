package bridge_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/testenv"
)

// The log and /readyz tell a refused login or certificate from a server that cannot be reached,
// also if NATS was away at first.
func TestRefusedAtTheStart(t *testing.T) {
	for _, login := range testenv.Logins(t) {
		t.Run(login.Name, func(t *testing.T) {
			var log syncLog
			e := start(t, testenv.Options{
				Stopped: true,
				NATS:    testenv.ServerOptions(t, login.Config),
			})

			b := e.StartBridge(func(o *bridge.Options) {
				o.Logger = log.logger()
				o.NATSOptions = append(o.NATSOptions, nats.UserInfo("bridge", "s3cret"))

				if strings.Contains(login.Name, "certificate") { // trusts it, and has none itself
					o.NATSOptions = append(o.NATSOptions, nats.RootCAs(login.CAFile))
				}
			})

			notReady(t, b, "nats: not connected: NATS cannot be reached")

			e.NATS.Start()

			want := "NATS refuses the login"
			if login.CAFile != "" {
				want = "TLS with NATS is refused"
			}

			notReady(t, b, "nats: not connected: "+want)
			log.wantSays(t, want)
			if strings.Contains(log.String(), "s3cret") {
				t.Error("the log has the password")
			}
		})
	}
}

// A bridge that does not trust the server's new certificate says so in its log and at /readyz, and
// not only that the connection was lost.
func TestUntrustedAfterALostConnection(t *testing.T) {
	var log syncLog

	var logins []testenv.Login // of servers whose certificates differ
	for range 2 {
		all := testenv.Logins(t)
		i := slices.IndexFunc(all, func(l testenv.Login) bool { return l.Name == "tls" })
		logins = append(logins, all[i])
	}

	e := start(t, testenv.Options{
		Stopped: true,
		NATS:    testenv.ServerOptions(t, logins[0].Config),
	})

	e.NATS.Start()
	b := e.StartBridge(func(o *bridge.Options) {
		o.Logger = log.logger()
		o.NATSOptions = append(o.NATSOptions, nats.RootCAs(logins[0].CAFile))
	})

	b.WaitReady()

	e.NATS.Change(testenv.ServerOptions(t, logins[1].Config))
	e.NATS.Restart()

	notReady(t, b, "nats: not connected: TLS with NATS is refused")
	log.wantSays(t, "TLS with NATS is refused")
	log.wantSays(t, "certificate signed by unknown authority")
}

// A frozen NATS server counts as gone in the metrics too, and not only for /readyz, which asks it.
func TestFrozenNATSCountsAsGone(t *testing.T) {
	e := start(t, testenv.Options{})
	w := newWire(t, e)
	b := e.StartBridge(w.use, func(o *bridge.Options) {
		o.NATSOptions = append(o.NATSOptions, nats.PingInterval(200*time.Millisecond))
	})
	b.WaitReady()

	wantMetric(t, b, "pq_ready", 1)

	w.freeze()

	wantMetric(t, b, "pq_nats_connected", 0)
	wantMetric(t, b, "pq_ready", 0)
}

// A bridge whose login is refused after its connection was lost says so, and is ready again once
// NATS lets it in. By default the NATS client would give up at the second refusal.
func TestRefusedAfterALostConnection(t *testing.T) {
	var log syncLog
	gate := new(testenv.Gate)
	e := start(t, testenv.Options{
		NATS: func(o *server.Options) { o.CustomClientAuthentication = gate },
		Bridge: func(o *bridge.Options) {
			o.Logger = log.logger()
			o.NATSOptions = append(o.NATSOptions, nats.UserInfo("bridge", "s3cret"))
		},
	})

	gate.Refuse("bridge")
	e.NATS.Restart()
	notReady(t, e.Bridge, "nats: not connected: NATS refuses the login")
	log.wantSays(t, "NATS refuses the login")
	gate.HasRefused(t, 3)

	gate.Refuse()

	e.Bridge.WaitReady()
}
