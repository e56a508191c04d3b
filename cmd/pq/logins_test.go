package main

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/spf13/pflag"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/cmd/pq/internal/login"
	"github.com/pqbridge/pqbridge/testenv"
)

// loginFlags returns the flags of a login and its environment variables.
func loginFlags(l testenv.Login) (flags []string, variables map[string]string) {
	variables = map[string]string{}
	for _, f := range []struct{ flag, variable, value string }{
		{"--user", "NATS_USER", l.User}, {"--password", "NATS_PASSWORD", l.Password}, {"--token", "NATS_TOKEN", l.Token},
		{"--creds", "NATS_CREDS", l.CredsFile}, {"--nkey", "NATS_NKEY", l.NkeyFile},
		{"--tlsca", "NATS_CA", l.CAFile}, {"--tlscert", "NATS_CERT", l.CertFile}, {"--tlskey", "NATS_KEY", l.KeyFile},
	} {
		if f.value != "" {
			flags = append(flags, f.flag, f.value)
			variables[f.variable] = f.value
		}
	}
	return flags, variables
}

// natsOptions returns the options that pq makes of those flags.
func natsOptions(t *testing.T, l testenv.Login) []nats.Option {
	t.Helper()
	given, _ := loginFlags(l)
	var c login.Connection
	set := pflag.NewFlagSet("pq", pflag.ContinueOnError)
	c.AddFlags(set)
	must(t, set.Parse(append(given, "--timeout", testenv.Patience.String())))
	options, err := c.Options()
	must(t, err)
	return options
}

// TestLogins logs in to a NATS server in every way: by flags, from a context that is selected or named, and by
// environment variables. Without a valid login, pq is refused.
func TestLogins(t *testing.T) {
	strangers := testenv.Logins(t)
	for i, login := range testenv.Logins(t) {
		t.Run(login.Name, func(t *testing.T) {
			e := testenv.New(t, testenv.Options{
				Stopped: true,
				NATS:    testenv.ServerOptions(t, login.Config),
				Bridge: func(o *bridge.Options) {
					o.NATSOptions = append(o.NATSOptions, natsOptions(t, login)...)
				},
			})
			e.NATS.Start()
			e.StartBridge().WaitReady()
			c, bare := &cli{t: t, server: e.NATS.URL()}, &cli{t: t}
			flags, variables := loginFlags(login)
			c.ok("", append(flags, "push", "jobs", "secret")...)

			wrong, _ := loginFlags(strangers[i])
			for _, args := range [][]string{wrong, nil} {
				stdout, stderr, code := c.run("", append(args, "pop", "jobs")...)
				refused := strings.Contains(stderr, "Authorization Violation") ||
					strings.Contains(stderr, "certificate signed by unknown authority")
				if code != exitError || !refused || stdout != "" {
					t.Errorf("pq %v: exit code %d, %q, %q", args, code, stdout, stderr)
				}
			}

			contexts := newContexts(t)
			contexts.save("queues", map[string]any{
				"url": c.server, "user": login.User, "password": login.Password, "token": login.Token, "creds": login.CredsFile,
				"nkey": login.NkeyFile, "ca": login.CAFile, "cert": login.CertFile, "key": login.KeyFile,
			})
			bare.prints("1\n", "len", "jobs")
			contexts.save("other", map[string]any{"url": "nats://127.0.0.1:1"})
			bare.prints("1\n", "--context", "queues", "len", "jobs")
			t.Setenv("NATS_CONTEXT", "queues")
			bare.prints("1\n", "len", "jobs")

			t.Setenv("NATS_CONTEXT", "other") // which has no login
			for name, value := range variables {
				t.Setenv(name, value)
			}
			if got := c.ok("", "pop", "jobs"); !strings.Contains(got, "secret") {
				t.Errorf("popped %q", got)
			}
		})
	}
}

// Servers that are there, and do not let pq in.
func TestServersThatRefuse(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	c := &cli{t: t, server: "nats://" + web.Listener.Addr().String()}
	_, stderr, code := c.run("", "len", "jobs", "--timeout", "50ms")
	if code != exitError || !strings.HasPrefix(stderr, "pq: cannot connect to NATS at "+c.server+": ") ||
		strings.Contains(stderr, "no server answers") {
		t.Errorf("of a web server: exit code %d, %s", code, stderr)
	}
	logins := testenv.Logins(t)
	secure := logins[slices.IndexFunc(logins, func(l testenv.Login) bool { return l.CAFile != "" })]
	newNATS(t, nil).fails(exitError, "the server has no TLS: leave out --tlsca", "len", "jobs", "--tlsca", secure.CAFile)
	newNATS(t, testenv.ServerOptions(t, secure.Config)).fails(exitError, "name the authority of the server's certificate with --tlsca", "len", "jobs")
}

// Passwords in addresses are not repeated.
func TestAddressesAreRedacted(t *testing.T) {
	c := &cli{t: t, server: "nats://me:secret@127.0.0.1:1"}
	if _, stderr, code := c.run("", "len", "jobs"); code != exitError || strings.Contains(stderr, "secret") || !strings.Contains(stderr, "me:xxxxx@") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}
