package leaf_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// serverBefore reports whether the server that is tested is older than a version.
func serverBefore(t testing.TB, major, minor int) bool {
	t.Helper()
	said := server.VERSION
	if program := os.Getenv(serverVariable); program != "" {
		output, err := harness.Command(program, "--version").Output()
		must(t, err)
		_, said, _ = strings.Cut(string(output), ": v")
	}
	var x, y int
	if _, err := fmt.Sscanf(said, "%d.%d", &x, &y); err != nil {
		t.Fatalf("version %q: %v", said, err)
	}
	return x < major || x == major && y < minor
}

// Every kind of login is let in, and the same of somebody else is not: servers before 2.12 let
// everybody in if there is a single login for all.
func TestLogins(t *testing.T) {
	strangers := testenv.Logins(t)
	for i, login := range testenv.Logins(t) {
		t.Run(login.Name, func(t *testing.T) {
			config, leafnodes, anybody := login.Config, "", false
			switch {
			case login.CAFile != "":
				config, leafnodes = "", config
			case login.Password+login.Token != "": // of which there is one for all
				anybody = serverBefore(t, 2, 12)
			}
			h := newHub(t, config, leafnodes)
			as := func(login testenv.Login) func(*leaf.Config) {
				return func(c *leaf.Config) {
					c.Login = leaf.Login{User: login.User, Password: login.Password, Token: login.Token, NkeyFile: login.NkeyFile, CredsFile: login.CredsFile}
					c.TLS = tlsOf(t, login)
				}
			}
			r := run(t, h.leafURL(), as(login))
			r.connected()
			r.flush()

			r = run(t, h.leafURL(), as(strangers[i]))
			if anybody {
				r.connected()
				return
			}
			if login.CAFile != "" {
				r.fails("waiting for TLS", "certificate signed by unknown authority")
				return
			}
			r.fails("Authorization Violation", "it does not accept the login", "waiting for the login with ")
			for _, s := range []string{login.Password, login.Token, strangers[i].Password, strangers[i].Token} {
				if text := fmt.Sprintf("%+v", next(t, r.states)); s != "" && strings.Contains(text, s) {
					t.Errorf("a secret is told: %s", text)
				}
			}
		})
	}
}

// tlsOf returns what a login needs of TLS, nil if nothing.
func tlsOf(t testing.TB, login testenv.Login) *tls.Config {
	t.Helper()
	if login.CAFile == "" {
		return nil
	}
	c := &tls.Config{RootCAs: x509.NewCertPool()}
	text, err := os.ReadFile(login.CAFile)
	if err != nil || !c.RootCAs.AppendCertsFromPEM(text) {
		t.Fatal(err)
	}
	if login.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(login.CertFile, login.KeyFile)
		must(t, err)
		c.Certificates = []tls.Certificate{pair}
	}
	return c
}

// Logins may be in a URL, or their secrets in files, which are read anew at each connect.
func TestLoginsElsewhere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	write := func(text string) {
		must(t, os.WriteFile(file, []byte(text), 0o600))
	}
	users := newHub(t, "authorization { users = [ { user: u, password: p } ] }", "")
	token := newHub(t, "authorization { token: secret }", "")
	run(t, strings.Replace(users.leafURL(), "://", "://u:p@", 1), nil).connected()
	run(t, strings.Replace(token.leafURL(), "://", "://secret@", 1), nil).connected()

	write("secret\r\n")
	run(t, token.leafURL(), func(c *leaf.Config) { c.Login.TokenFile = file }).connected()
	r := run(t, users.leafURL(), func(c *leaf.Config) { c.Login = leaf.Login{User: "u", PasswordFile: file} })
	r.fails("Authorization Violation", `user "u"`)
	write("p\n")
	r.connected()

	for _, login := range []leaf.Login{{User: "u", PasswordFile: "/missing"}, {TokenFile: "/missing"}, {NkeyFile: "/missing"}, {CredsFile: "/missing"}, {CredsFile: file}, {NkeyFile: file}} {
		r := run(t, users.leafURL(), func(c *leaf.Config) { c.Login = login })
		r.fails("waiting for the login with ", max(login.PasswordFile, login.TokenFile, login.NkeyFile, login.CredsFile))
	}
}

func TestConfigProblems(t *testing.T) {
	_, err := leaf.New(leaf.Config{
		URLs: []string{"nats-leaf://u:secret@", "ws://a:1", "a b://", "localhost", "tls://u:secret@a:1"},
	})
	if err == nil || strings.Contains(err.Error(), "secret") || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("the error is %v", err)
	}
	if _, err := leaf.New(leaf.Config{}); err == nil {
		t.Error("it needs no URL")
	}
}

// TLS is demanded by the server or by either setting here; a certificate that is not good is named.
func TestTLS(t *testing.T) {
	logins := testenv.Logins(t)
	good, verifies := logins[4], logins[5]
	with := func(l testenv.Login, now time.Time) func(*leaf.Config) {
		return func(config *leaf.Config) {
			config.TLS = tlsOf(t, testenv.Login{CAFile: l.CAFile})
			config.TLS.Time = func() time.Time { return now }
		}
	}
	today := time.Now()

	secure := newHub(t, "", good.Config)
	run(t, strings.Replace(secure.leafURL(), "nats-leaf", "tls", 1), with(good, today)).connected()
	run(t, secure.leafURL(), nil).fails("waiting for TLS", "unknown authority")
	run(t, secure.leafURL(), with(good, today.Add(48*time.Hour))).fails("waiting for TLS", "expired")

	plain := newHub(t, "", "")
	run(t, plain.leafURL(), with(good, today)).fails("TLS is demanded, but the server has none")
	run(t, strings.Replace(plain.leafURL(), "nats-leaf", "tls", 1), nil).fails("TLS is demanded, but the server has none")

	first := newHub(t, "", strings.Replace(good.Config, "}", ", handshake_first: true }", 1))
	r := runLimited(t, first.leafURL(), with(good, today), leaf.Limits{Login: 50 * time.Millisecond})
	r.failsAtLast("handshake_first")

	client := newHub(t, "", verifies.Config)
	run(t, client.leafURL(), with(verifies, today)).fails("certificate") // required
}

const rights = `
accounts {
  A { users = [
    {user: leaf, password: x, permissions: {subscribe: ["$JS.pq.API.>"], publish: {allow: ["_INBOX.>"], deny: ["_INBOX.secret.>"]}}}
    {user: other, password: x, permissions: {subscribe: ["b.>"], publish: [">"]}}
    {user: client, password: c}
  ] }
}`

func asUser(user string) func(*leaf.Config) {
	return func(c *leaf.Config) {
		c.Login = leaf.Login{User: user, Password: "x"}
		c.Subjects = []leaf.Subscription{{Subject: "$JS.pq.API.>", Queue: "q"}}
	}
}

// What the user may not publish is refused here, and interest in it is not told: the connection stays.
func TestRights(t *testing.T) {
	h := newHub(t, rights, "")
	r := run(t, h.leafURL(), asUser("leaf"))
	if s := r.connected(); s.Account != "A" {
		t.Errorf("connected to %+v", s)
	}
	nc := h.client(nats.UserInfo("client", "c"))
	subscribe(t, nc, "b")
	subscribe(t, nc, "_INBOX.secret.a")
	inbox := subscribe(t, nc, "_INBOX.a")
	r.interest("_INBOX.a", true)
	if r.HasInterest("b") || r.HasInterest("_INBOX.secret.a") {
		t.Error("it is told of interest in what it may not publish")
	}
	for _, subject := range []string{"b", "_INBOX.secret.a", "$JS.API.INFO"} {
		if err := r.Publish(&leaf.Message{Subject: subject}); !errors.Is(err, leaf.ErrDenied) || !strings.Contains(err.Error(), "allow the leaf node's user to publish") {
			t.Errorf("%s: %v", subject, err)
		}
	}
	r.publish(&leaf.Message{Subject: "_INBOX.a"})
	nextMsg(t, inbox)
	must(t, nc.Publish("$JS.pq.API.INFO", nil))
	next(t, r.received)
	if len(r.states) > 0 {
		t.Errorf("%+v", <-r.states)
	}

	r = run(t, h.leafURL(), asUser("other"))
	r.fails("not permitted", "allow the leaf node's user to subscribe to", "$JS.pq.API.>")
}

// A reload of the server's configuration leaves the connection as it is, with its limits and rights,
// whatever became of the account. They count at the next connect.
func TestReload(t *testing.T) {
	for name, after := range map[string]struct{ config, failure string }{
		"max_payload": {"max_payload: 100" + rights, ""},
		"rights":      {strings.ReplaceAll(rights, "_INBOX", "other"), ""},
		"account":     {"accounts { B { users = [ {user: client, password: c} ] } }", "Authorization Violation"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHub(t, rights, "")
			r := run(t, h.leafURL(), asUser("leaf"))
			r.connected()
			nc := h.client(nats.UserInfo("client", "c"))
			inbox := subscribe(t, nc, "_INBOX.a")
			r.interest("_INBOX.a", true)
			h.reload(after.config, "")
			r.publish(&leaf.Message{Subject: "_INBOX.a", Payload: make([]byte, 1000)})
			r.flush()
			if nc.IsConnected() && name == "rights" {
				nextMsg(t, inbox)
			}

			h.stop()
			r.fails("closed the connection")
			h.start()
			if after.failure != "" {
				r.failsAtLast(after.failure)
				return
			}
			r.connected()
			err := r.Publish(&leaf.Message{Subject: "_INBOX.a", Payload: make([]byte, 1000)})
			if name == "max_payload" && !errors.Is(err, leaf.ErrTooLarge) || name == "rights" && !errors.Is(err, leaf.ErrDenied) {
				t.Error(err)
			}
		})
	}
}

// operated returns the configuration of a server with an operator, and what writes a user's
// credentials, which end after a time unless that is 0.
func operated(t testing.TB) (config string, write func(to string, valid time.Duration)) {
	t.Helper()
	pair := func(create func() (nkeys.KeyPair, error)) (nkeys.KeyPair, string) {
		pair, err := create()
		must(t, err)
		public, err := pair.PublicKey()
		must(t, err)
		return pair, public
	}
	encode := func(c jwt.Claims, by nkeys.KeyPair) string {
		text, err := c.Encode(by)
		must(t, err)
		return text
	}
	operator, operatorKey := pair(nkeys.CreateOperator)
	account, accountKey := pair(nkeys.CreateAccount)
	config = fmt.Sprintf("operator: %s\nresolver: MEMORY\nresolver_preload: { %s: %s }",
		encode(jwt.NewOperatorClaims(operatorKey), operator), accountKey,
		encode(jwt.NewAccountClaims(accountKey), operator))
	return config, func(to string, valid time.Duration) {
		user, userKey := pair(nkeys.CreateUser)
		claims := jwt.NewUserClaims(userKey)
		if valid > 0 {
			claims.Expires = time.Now().Add(valid).Unix()
		}
		seed, err := user.Seed()
		must(t, err)
		text, err := jwt.FormatUserConfig(encode(claims, account), seed)
		must(t, err)
		must(t, os.WriteFile(to, text, 0o600))
	}
}

// When the credentials expire the connection ends, and those that are there by then are used.
func TestCredsExpire(t *testing.T) {
	t.Parallel()
	config, write := operated(t)
	h, file := newHub(t, config, ""), filepath.Join(t.TempDir(), "creds")
	for valid := time.Second; ; valid *= 2 { // it has expired before a busy server looks
		write(file, valid)
		r := run(t, h.leafURL(), func(c *leaf.Config) { c.Login.CredsFile = file })
		if s := next(t, r.states); !s.Connected {
			r.end()
			continue
		}
		r.fails("Authentication Expired")
		write(file, 0)
		r.connected()
		return
	}
}

// The limit of an account is not told. A message beyond it ends the connection once.
func TestPayloadLimitOfAccount(t *testing.T) {
	const limited = "limits { max_payload: 1000 }, users = [ { user: leaf, password: x } ]"
	h := newHub(t, "accounts { A { "+limited+" } }", "")
	r := run(t, h.leafURL(), asUser("leaf"))
	r.connected()
	large := &leaf.Message{Subject: "a", Payload: make([]byte, 1500)}
	r.publish(large)
	if serverBefore(t, 2, 11) {
		r.flush() // it has no such limit for leaf nodes
		return
	}
	r.fails("Maximum Payload Violation", "less than max_payload")
	r.connected()
	if err := r.Publish(large); !errors.Is(err, leaf.ErrTooLarge) || r.MaxPayload() != 1499 {
		t.Errorf("%v, max_payload is %d", err, r.MaxPayload())
	}
	r.publish(&leaf.Message{Subject: "a", Payload: make([]byte, 1000)})
	r.flush()
}
