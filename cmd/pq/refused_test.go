package main

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/testenv"
)

// pq work and pq watch go on once NATS lets them in again, and say meanwhile that it does not. By
// default the NATS client would give up at the second refusal.
func TestRefusedLogins(t *testing.T) {
	gate := new(testenv.Gate)
	c, env := newCLIOn(t, testenv.Options{NATS: func(o *server.Options) {
		o.CustomClientAuthentication = gate
	}})
	c.ok("first", "push", "jobs")
	work := c.start(nil, "work", "jobs", "--user", "worker", "--password", "x", "--", "cat")
	watch := c.start(nil, "watch", "jobs", "--every", "100ms",
		"--user", "watcher", "--password", "x")
	work.sees(&work.stdout, "first")
	watch.sees(&watch.stdout, "\tjobs\t")

	gate.Refuse("worker", "watcher")
	env.NATS.Restart()
	gate.HasRefused(t, 3)

	gate.Refuse()
	env.Bridge.WaitReady()
	c.ok("second", "push", "jobs")
	c.ok("later", "push", "jobs", "--delay", "1h")

	work.sees(&work.stdout, "second")
	watch.sees(&watch.stdout, "\tjobs\t0\t0\t1\t")

	for _, p := range []*process{work, watch} {
		if n := strings.Count(p.stderr.String(), "look at the login"); n != 1 {
			t.Errorf("standard error says %d times that the login was refused, want once: %s", n,
				p.stderr.String())
		}
	}

	work.stop()
}

// pq work that does not trust the server's new certificate says so, and what to do. It goes on
// once it trusts the server again.
func TestWorkSaysThatTLSIsRefused(t *testing.T) {
	t.Parallel()

	secure := func() testenv.Login {
		all := testenv.Logins(t)
		return all[slices.IndexFunc(all, func(l testenv.Login) bool { return l.Name == "tls" })]
	}

	before, after := secure(), secure()
	env := testenv.New(t, testenv.Options{
		Stopped: true,
		NATS:    testenv.ServerOptions(t, before.Config),
	})

	env.NATS.Start()
	b := env.StartBridge(func(o *bridge.Options) {
		o.NATSOptions = append(o.NATSOptions, nats.RootCAs(before.CAFile))
	})
	b.WaitReady()
	c := &cli{t: t, server: env.NATS.URL()}
	work := c.start(nil, "work", "jobs", "--tlsca", before.CAFile, "--", "cat")
	work.sees(&work.stderr, "queue jobs is not in use yet")

	env.NATS.Change(testenv.ServerOptions(t, after.Config))
	env.NATS.Restart()

	work.sees(&work.stderr, "TLS with NATS is refused, trying again: ")
	work.sees(&work.stderr, "name the authority of the server's certificate with --tlsca")
	env.NATS.Change(testenv.ServerOptions(t, before.Config))
	env.NATS.Restart()
	b.WaitReady()
	c.ok("later", "push", "jobs", "--tlsca", before.CAFile)
	work.sees(&work.stdout, "later")
	work.stop()
}

// pq dashboard says in its log and at /readyz that NATS is away, that it refuses the login, and
// that it is back: each once in an outage, and without the password.
func TestDashboardSaysWhyNATSIsAway(t *testing.T) {
	t.Parallel()

	gate := new(testenv.Gate)
	env := testenv.New(t, testenv.Options{Stopped: true, NATS: func(o *server.Options) {
		o.CustomClientAuthentication = gate
	}})
	c := &cli{t: t, server: env.NATS.URL()}
	board := c.start(nil, "dashboard", "--listen", "127.0.0.1:0", "--user", "ann",
		"--password", "s3cret")
	board.sees(&board.stdout, "\n")
	url := strings.TrimSpace(strings.TrimPrefix(board.stdout.String(), "pq dashboard: "))

	ready := func(status int, words string) {
		t.Helper()
		testenv.Eventually(t, func() error {
			reply, err := http.Get(url + "/readyz")
			must(t, err)
			defer reply.Body.Close()
			body, err := io.ReadAll(reply.Body)

			if reply.StatusCode != status || !strings.Contains(string(body), words) {
				return fmt.Errorf("/readyz: %d, %q: want %d, %q", reply.StatusCode, body, status,
					words)
			}

			return err
		})
	}

	const away, refused, back = "no connection to NATS", "NATS refuses the login", "NATS is back"

	board.sees(&board.stderr, away)
	ready(http.StatusServiceUnavailable, "NATS is unreachable: "+away)

	gate.Refuse("ann")
	env.NATS.Start()
	board.sees(&board.stderr, refused)
	ready(http.StatusServiceUnavailable, "NATS is unreachable: "+refused)

	gate.HasRefused(t, 2)

	gate.Refuse()
	board.sees(&board.stderr, back)
	ready(http.StatusOK, "")

	// The reason is the last one, and the log has each only once.
	gate.Refuse("ann")
	env.NATS.Restart()
	ready(http.StatusServiceUnavailable, "NATS is unreachable: "+refused)
	env.NATS.Stop()
	ready(http.StatusServiceUnavailable, "NATS is unreachable: "+away)
	gate.Refuse()
	env.NATS.Start()
	ready(http.StatusOK, "")

	board.stop()
	log := board.stderr.String()

	for words, most := range map[string]int{away: 2, refused: 2, back: 2, "s3cret": 0} {
		if n := strings.Count(log, words); n > most {
			t.Errorf("the log says %q %d times, want at most %d: %s", words, n, most, log)
		}
	}
}
