package main

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/testenv"
)

// loginFlags returns the flags of a login and its environment variables.
func loginFlags(l testenv.Login) (flags []string, variables map[string]string) {
	variables = map[string]string{}
	for _, f := range []struct{ flag, variable, value string }{
		{"--user", "NATS_USER", l.User}, {"--password", "NATS_PASSWORD", l.Password},
		{"--token", "NATS_TOKEN", l.Token},
		{"--creds", "NATS_CREDS", l.CredsFile}, {"--nkey", "NATS_NKEY", l.NkeyFile},
		{"--tlsca", "NATS_CA", l.CAFile}, {"--tlscert", "NATS_CERT", l.CertFile},
		{"--tlskey", "NATS_KEY", l.KeyFile},
	} {
		if f.value != "" {
			flags = append(flags, f.flag, f.value)
			variables[f.variable] = f.value
		}
	}

	return flags, variables
}

// pq logs in in every way that NATS has: by flags, from a context that is selected or named, and by
// environment variables. Without a valid login it is refused.
func TestLogins(t *testing.T) {
	strangers := testenv.Logins(t)
	for i, login := range testenv.Logins(t) {
		t.Run(login.Name, func(t *testing.T) {
			c, bare := newNATS(t, testenv.ServerOptions(t, login.Config)), &cli{t: t}
			getsIn := func(c *cli, args ...string) {
				t.Helper()
				c.fails(exitError, "no bridge is listening", append(args, "len", "jobs")...)
			}

			flags, variables := loginFlags(login)
			getsIn(c, flags...)
			wrong, _ := loginFlags(strangers[i])

			for _, args := range [][]string{wrong, nil} {
				_, stderr, code := c.run("", append(args, "len", "jobs")...)
				refused := strings.Contains(stderr, "Authorization Violation") ||
					strings.Contains(stderr, "certificate signed by unknown authority")
				if code != exitError || !refused {
					t.Errorf("pq %v: exit code %d, %q", args, code, stderr)
				}
			}

			contexts := newContexts(t)
			contexts.save("queues", map[string]any{
				"url":      c.server,
				"user":     login.User,
				"password": login.Password,
				"token":    login.Token,
				"creds":    login.CredsFile,
				"nkey":     login.NkeyFile,
				"ca":       login.CAFile,
				"cert":     login.CertFile,
				"key":      login.KeyFile,
			})

			getsIn(bare)
			contexts.save("other", map[string]any{"url": "nats://127.0.0.1:1"})
			getsIn(bare, "--context", "queues")
			t.Setenv("NATS_CONTEXT", "queues")
			getsIn(bare)

			t.Setenv("NATS_CONTEXT", "other") // which has no login
			for name, value := range variables {
				t.Setenv(name, value)
			}

			getsIn(c)
		})
	}
}

// The logins that the documents give to people let pq doctor check bridges, store and queues, and
// take no items.
func TestDoctorWithDocumentedLogins(t *testing.T) {
	text := testenv.Documents(t, root)[filepath.Join(root, "docs", "access.md")]
	block := regexp.MustCompile("(?ms)^```conf\n(.*?)^```$").FindStringSubmatch(text)
	conf := regexp.MustCompile(`\{user: (\w+), password: \$\w+`).
		ReplaceAllString(block[1], "{user: $1, password: $1")

	c, env := newCLIOn(t, testenv.Options{
		NATS:    testenv.ServerOptions(t, conf),
		Stopped: true,
		Bridge: func(o *bridge.Options) {
			o.NATSOptions = append(o.NATSOptions, nats.UserInfo("bridge", "bridge"))
		},
	})

	env.NATS.Start()
	env.StartBridge().WaitReady()

	for _, user := range []string{"viewer", "operator"} {
		login := []string{"--user", user, "--password", user, "--inbox-prefix", "_INBOX_" + user}

		all := c.findings(exitOK, login...)
		for _, check := range []string{"nats", "bridges", "bridge", "store"} {
			if all[check].Result != "ok" {
				t.Errorf("%s, %s: %+v", user, check, all[check])
			}
		}

		queue := c.findings(exitOK, append(login, "jobs")...)["queue"]
		if strings.Contains(queue.Text, "cannot be tried") {
			t.Errorf("%s: %+v", user, queue)
		}
		c.fails(exitError, "ermissions", append(login, "pop", "jobs")...)
	}
}

// Servers that are there, and do not let pq in.
func TestServersThatRefuse(t *testing.T) {
	t.Parallel()

	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	c := &cli{t: t, server: "nats://" + web.Listener.Addr().String()}

	_, stderr, code := c.run("", "len", "jobs", "--timeout", "50ms")
	if code != exitError ||
		!strings.HasPrefix(stderr, "pq: cannot connect to NATS at "+c.server+": ") ||
		strings.Contains(stderr, "no server answers") {
		t.Errorf("of a web server: exit code %d, %s", code, stderr)
	}

	logins := testenv.Logins(t)
	secure := logins[slices.IndexFunc(logins, func(l testenv.Login) bool { return l.CAFile != "" })]
	newNATS(t, nil).fails(exitError, "the server has no TLS: leave out --tlsca", "len", "jobs",
		"--tlsca", secure.CAFile)

	verified := logins[len(logins)-1]
	strict := newNATS(t, testenv.ServerOptions(t, verified.Config))
	strict.fails(exitError, "may want a client certificate (--tlscert, --tlskey)", "len", "jobs",
		"--tlsca", verified.CAFile)

	unknown := newNATS(t, testenv.ServerOptions(t, secure.Config))
	unknown.fails(exitError, "name the authority of the server's certificate with --tlsca", "len",
		"jobs")
}

// Passwords in addresses are not repeated.
func TestAddressesAreRedacted(t *testing.T) {
	c := &cli{t: t, server: "nats://me:secret@127.0.0.1:1"}
	_, stderr, code := c.run("", "len", "jobs")
	if code != exitError ||
		strings.Contains(stderr, "secret") || !strings.Contains(stderr, "me:xxxxx@") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}
