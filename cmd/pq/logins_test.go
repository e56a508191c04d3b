package main

import (
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
