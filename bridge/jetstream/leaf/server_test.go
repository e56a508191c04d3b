package leaf_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
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

// Every kind of login is let in, and that of a stranger is not. The error tells no secret. Servers
// before 2.12 let everybody in if there is a single login for all.
func TestLogins(t *testing.T) {
	strangers := testenv.Logins(t)
	for i, login := range testenv.Logins(t) {
		t.Run(login.Name, func(t *testing.T) {
			config, leafnodes, anybody := login.Config, "", false
			switch {
			case login.CAFile != "":
				config, leafnodes = "", config
			case login.Password+login.Token != "": // there is one for all
				anybody = serverBefore(t, 2, 12)
			}

			h := newHub(t, config, leafnodes)
			as := func(login testenv.Login) func(*leaf.Config) {
				return func(c *leaf.Config) {
					c.Login = leaf.Login{
						User:      login.User,
						Password:  login.Password,
						Token:     login.Token,
						NkeyFile:  login.NkeyFile,
						CredsFile: login.CredsFile,
					}
					c.TLS = tlsOf(t, login)
				}
			}

			r := run(t, h.leafURL(), as(login))
			r.waitConnected()
			r.flush()

			r = run(t, h.leafURL(), as(strangers[i]))
			if anybody {
				r.waitConnected()
				return
			}

			if login.CAFile != "" {
				r.wantFailure("waiting for TLS", "certificate signed by unknown authority")
				return
			}
			r.wantFailure("Authorization Violation", "it does not accept the login",
				"waiting for the login with ")

			for _, s := range []string{
				login.Password, login.Token, strangers[i].Password, strangers[i].Token,
			} {
				text := fmt.Sprintf("%+v", next(t, r.states))
				if s != "" && strings.Contains(text, s) {
					t.Errorf("a secret is told: %s", text)
				}
			}
		})
	}
}

// tlsOf returns what a login needs of TLS, nil if nothing.
func tlsOf(t testing.TB, login testenv.Login) func() (*tls.Config, error) {
	t.Helper()
	if login.CAFile == "" {
		return nil
	}

	c := configOf(t, login)
	return func() (*tls.Config, error) { return c, nil }
}

func configOf(t testing.TB, login testenv.Login) *tls.Config {
	t.Helper()
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

// Logins may be in a URL, or their secrets in files, which are read again at each connect. An error
// names the file that is missing or bad.
func TestLoginsElsewhere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	write := func(text string) {
		must(t, os.WriteFile(file, []byte(text), 0o600))
	}
	users := newHub(t, "authorization { users = [ { user: u, password: p } ] }", "")
	token := newHub(t, "authorization { token: secret }", "")
	run(t, strings.Replace(users.leafURL(), "://", "://u:p@", 1), nil).waitConnected()
	run(t, strings.Replace(token.leafURL(), "://", "://secret@", 1), nil).waitConnected()

	write("secret\r\n")
	run(t, token.leafURL(), func(c *leaf.Config) { c.Login.TokenFile = file }).waitConnected()

	r := run(t, users.leafURL(),
		func(c *leaf.Config) { c.Login = leaf.Login{User: "u", PasswordFile: file} })
	r.wantFailure("Authorization Violation", `user "u"`)

	write("p\n")
	r.waitConnected()

	for _, login := range []leaf.Login{
		{User: "u", PasswordFile: "/missing"},
		{TokenFile: "/missing"},
		{NkeyFile: "/missing"},
		{CredsFile: "/missing"},
		{CredsFile: file},
		{NkeyFile: file},
	} {
		r := run(t, users.leafURL(), func(c *leaf.Config) { c.Login = login })
		r.wantFailure("waiting for the login with ",
			max(login.PasswordFile, login.TokenFile, login.NkeyFile, login.CredsFile))
	}
}

// A bad configuration is refused with all problems at once, without its secrets.
func TestConfigProblems(t *testing.T) {
	_, err := leaf.New(leaf.Config{
		URLs: []string{
			"nats-leaf://u:secret@", "ws://a:1", "a b://", "localhost", "tls://u:secret@a:1",
		},
	})

	// Three of the URLs are bad, and each has a line.
	if err == nil || strings.Contains(err.Error(), "secret") ||
		strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("the error is %v", err)
	}

	if _, err := leaf.New(leaf.Config{}); err == nil {
		t.Error("it needs no URL")
	}
}

// tlsLogins returns the logins of a server with TLS: one that asks for no certificate of its
// clients, and one that does.
func tlsLogins(t testing.TB) (plain, mutual testenv.Login) {
	t.Helper()
	logins := testenv.Logins(t)
	i := slices.IndexFunc(logins, func(l testenv.Login) bool { return l.CAFile != "" })
	return logins[i], logins[i+1]
}

// TLS can be demanded by the server, by the URL or by the configuration. The error says what is
// wrong: the authority, the time, a server without TLS, or a missing certificate of ours.
func TestTLS(t *testing.T) {
	good, verifies := tlsLogins(t)

	with := func(l testenv.Login, now time.Time) func(*leaf.Config) {
		return func(config *leaf.Config) {
			trust := configOf(t, testenv.Login{CAFile: l.CAFile})
			trust.Time = func() time.Time { return now }
			config.TLS = func() (*tls.Config, error) { return trust, nil }
		}
	}

	today := time.Now()

	demanding := func(h *hub) string { return strings.Replace(h.leafURL(), "nats-leaf", "tls", 1) }

	secure := newHub(t, "", good.Config)
	run(t, demanding(secure), with(good, today)).waitConnected()
	run(t, secure.leafURL(), nil).wantFailure("waiting for TLS", "unknown authority")
	run(t, secure.leafURL(),
		with(good, today.Add(48*time.Hour))).wantFailure("waiting for TLS", "expired")

	plain := newHub(t, "", "")
	const noTLS = "TLS is demanded, but the server has none"
	run(t, plain.leafURL(), with(good, today)).wantFailure(noTLS)
	run(t, demanding(plain), nil).wantFailure(noTLS)

	first := newHub(t, "", strings.Replace(good.Config, "}", ", handshake_first: true }", 1))
	r := runLimited(t, first.leafURL(), with(good, today),
		leaf.Limits{Login: 50 * time.Millisecond})
	r.waitForFailure("handshake_first")

	client := newHub(t, "", verifies.Config)
	run(t, client.leafURL(), with(verifies, today)).wantFailure("certificate") // required
}

// The configuration of TLS is asked for at each connect. After an error, or with another authority,
// the connection comes up once the right authority is there.
func TestTLSIsReadAgain(t *testing.T) {
	login, stranger := tlsLogins(t)
	h := newHub(t, "", login.Config)
	var trusted atomic.Pointer[tls.Config]
	trusted.Store(configOf(t, testenv.Login{CAFile: stranger.CAFile}))

	r := run(t, h.leafURL(), func(config *leaf.Config) {
		config.TLS = func() (*tls.Config, error) {
			if c := trusted.Load(); c != nil {
				return c, nil
			}
			return nil, errors.New("the file is gone")
		}
	})
	r.wantFailure("waiting for TLS", "unknown authority")

	trusted.Store(nil)
	r.waitForFailure("the file is gone")

	trusted.Store(configOf(t, testenv.Login{CAFile: login.CAFile}))
	r.waitConnected()
}

// rights is the configuration of a server whose user "leaf" may publish to inboxes but some, and
// whose user "other" may not subscribe to the API.
const rights = `
accounts {
  A { users = [
    {user: leaf, password: x, permissions: {
      subscribe: ["$JS.pq.API.>"], publish: {allow: ["_INBOX.>"], deny: ["_INBOX.secret.>"]}
    }}
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

// A message that the user may not publish is refused with ErrDenied, and the connection stays. The
// server tells no interest in its subject. A user that may not subscribe gets no connection.
func TestRights(t *testing.T) {
	h := newHub(t, rights, "")
	r := run(t, h.leafURL(), asUser("leaf"))
	if s := r.waitConnected(); s.Account != "A" {
		t.Errorf("connected to %+v", s)
	}

	nc := h.client(nats.UserInfo("client", "c"))
	subscribe(t, nc, "b")
	subscribe(t, nc, "_INBOX.secret.a")
	inbox := subscribe(t, nc, "_INBOX.a")
	r.waitInterest("_INBOX.a", true)

	if r.HasInterest("b") || r.HasInterest("_INBOX.secret.a") {
		t.Error("it is told of interest in what it may not publish")
	}

	for _, subject := range []string{"b", "_INBOX.secret.a", "$JS.API.INFO"} {
		if err := r.Publish(&leaf.Message{Subject: subject}); !errors.Is(err, leaf.ErrDenied) ||
			!strings.Contains(err.Error(), "allow the leaf node's user to publish") {
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
	r.wantFailure("not permitted", "allow the leaf node's user to subscribe to", "$JS.pq.API.>")
}

// A reload of the server's configuration leaves the connection as it is, with its limits and
// rights, even if its account is gone. The new configuration counts at the next connect.
func TestReload(t *testing.T) {
	for name, after := range map[string]struct{ config, failure string }{
		"max_payload": {"max_payload: 100" + rights, ""},
		"rights":      {strings.ReplaceAll(rights, "_INBOX", "other"), ""},
		"account": {
			"accounts { B { users = [ {user: client, password: c} ] } }", "Authorization Violation",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			h := newHub(t, rights, "")
			r := run(t, h.leafURL(), asUser("leaf"))
			r.waitConnected()
			nc := h.client(nats.UserInfo("client", "c"))
			inbox := subscribe(t, nc, "_INBOX.a")
			r.waitInterest("_INBOX.a", true)
			h.reload(after.config, "")
			r.publish(&leaf.Message{Subject: "_INBOX.a", Payload: make([]byte, 1000)})
			r.flush()

			if nc.IsConnected() && name == "rights" {
				nextMsg(t, inbox)
			}

			h.stop()
			r.wantFailure("closed the connection")

			h.start()
			if after.failure != "" {
				r.waitForFailure(after.failure)
				return
			}

			r.waitConnected()
			err := r.Publish(&leaf.Message{Subject: "_INBOX.a", Payload: make([]byte, 1000)})
			if name == "max_payload" && !errors.Is(err, leaf.ErrTooLarge) ||
				name == "rights" && !errors.Is(err, leaf.ErrDenied) {
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

// When the credentials expire, the connection ends, and the next one reads the file again.
func TestCredsExpire(t *testing.T) {
	t.Parallel()

	config, write := operated(t)
	h, file := newHub(t, config, ""), filepath.Join(t.TempDir(), "creds")

	for valid := time.Second; ; valid *= 2 { // too short if it is over before a busy server looks
		write(file, valid)
		r := run(t, h.leafURL(), func(c *leaf.Config) { c.Login.CredsFile = file })

		if s := next(t, r.states); !s.Connected {
			r.end()
			continue
		}
		r.wantFailure("Authentication Expired")

		write(file, 0)
		r.waitConnected()
		return
	}
}

// The server does not tell the payload limit of an account. A message beyond it ends the
// connection, and from then on messages of that size are refused here.
func TestPayloadLimitOfAccount(t *testing.T) {
	const limited = "limits { max_payload: 1000 }, users = [ { user: leaf, password: x } ]"
	h := newHub(t, "accounts { A { "+limited+" } }", "")
	r := run(t, h.leafURL(), asUser("leaf"))
	r.waitConnected()
	const tooLarge, fits = 1500, 1000
	large := &leaf.Message{Subject: "a", Payload: make([]byte, tooLarge)}
	r.publish(large)

	if serverBefore(t, 2, 11) {
		r.flush() // it has no such limit for leaf nodes
		return
	}
	r.wantFailure("Maximum Payload Violation", "less than max_payload")

	r.waitConnected()
	err := r.Publish(large)
	if !errors.Is(err, leaf.ErrTooLarge) || r.MaxPayload() != tooLarge-1 {
		t.Errorf("%v, max_payload is %d", err, r.MaxPayload())
	}

	r.publish(&leaf.Message{Subject: "a", Payload: make([]byte, fits)})
	r.flush()
}
