package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// setLogin sets the variables for a login, whose names begin with prefix.
func setLogin(t *testing.T, prefix string, l testenv.Login) {
	t.Helper()
	for name, value := range map[string]string{
		"USER":     l.User,
		"PASSWORD": l.Password,
		"TOKEN":    l.Token,
		"CREDS":    l.CredsFile,
		"NKEY":     l.NkeyFile,
		"TLS_CA":   l.CAFile, "TLS_CERT": l.CertFile, "TLS_KEY": l.KeyFile,
	} {
		if value != "" {
			t.Setenv(prefix+name, value)
		}
	}
}

// service is pqbridge running in this process.
type service struct {
	t     *testing.T
	log   harness.Transcript
	stop  context.CancelFunc
	ended chan error
}

func startService(t *testing.T, url string) *service {
	t.Helper()
	t.Setenv("PQ_DATA_DIR", t.TempDir())
	t.Setenv("PQ_NATS_URL", url)
	t.Setenv("PQ_HTTP_ADDR", "127.0.0.1:0")
	ctx, stop := context.WithCancel(context.Background())
	s := &service{t: t, stop: stop, ended: make(chan error, 1)}
	go func() { s.ended <- run(ctx, nil, &s.log, &s.log) }()

	return s
}

// end stops the service, which must leave nothing undone, unless that is unconfirmed.
func (s *service) end() {
	s.t.Helper()
	s.stop()
	if err := <-s.ended; err != nil && !testenv.Unconfirmed.MatchString(err.Error()) {
		s.t.Errorf("%v\n%s", err, s.log.String())
	}
}

// awaitLog waits until a log has one of the texts.
func awaitLog(t *testing.T, log *harness.Transcript, texts ...string) {
	t.Helper()
	testenv.Eventually(t, func() error {
		said := log.String()
		isThere := func(text string) bool { return strings.Contains(said, text) }
		if slices.ContainsFunc(texts, isThere) {
			return nil
		}

		return fmt.Errorf("not in the log: %q\n%s", texts, said)
	})
}

// The service and its leaf node log in to NATS in every way that can be configured, together or the
// leaf node in its own way. Strangers are refused, and the log says so.
func TestLogins(t *testing.T) {
	strangers := testenv.Logins(t)
	for i, login := range testenv.Logins(t) {
		e, leafURL := leafServer(t, login)
		other := testenv.New(t, testenv.Options{Stopped: true}) // wants no login
		other.NATS.Start()
		both := []string{"connected to NATS", "leaf node connected"}

		for _, test := range []struct {
			name, prefix, url string
			login             testenv.Login
			connected         []string // what the log says if it is let in
		}{
			{"known", natsPrefix, e.NATS.URL(), login, both},
			{"stranger", natsPrefix, e.NATS.URL(), strangers[i], both},
			{"of its own", leafPrefix, other.NATS.URL(), login, both[1:]},
			{"stranger of its own", leafPrefix, other.NATS.URL(), strangers[i], both[1:]},
		} {
			t.Run(login.Name+"/"+test.name, func(t *testing.T) {
				setLogin(t, test.prefix, test.login)
				t.Setenv("PQ_JETSTREAM_LEAF_URL", leafURL)
				secret := test.login.Password + test.login.Token

				if test.prefix == leafPrefix && secret != "" { // in a file
					variable := leafPrefix + map[bool]string{
						true:  "TOKEN",
						false: "PASSWORD",
					}[login.User == ""]

					file := filepath.Join(t.TempDir(), "secret")
					writeSecret(t, file, secret+"\n")
					setenv(t, map[string]string{variable: "", variable + "_FILE": file})
				}

				s := startService(t, test.url)
				if strings.HasPrefix(test.name, "stranger") {
					awaitLog(t, &s.log, refusals...)
					s.end()
					if log := s.log.String(); strings.Contains(log, test.connected[0]) {
						t.Errorf("it was let in:\n%s", log)
					}

					return
				}

				for _, words := range test.connected {
					awaitLog(t, &s.log, words)
				}

				if test.name == "known" {
					worksAsLeaf(t, e)
				}

				s.end()
			})
		}
	}
}

// refusals are what the log says of a server that does not know the service, or that it does not
// know.
var refusals = []string{"Authorization Violation", "certificate signed by unknown authority"}

// leafServer starts a server with a leaf node port, both with the login.
func leafServer(t *testing.T, login testenv.Login) (*testenv.Env, string) {
	t.Helper()
	address := fmt.Sprint("127.0.0.1:", harness.Port(t))
	inBlock := ""

	if login.CAFile != "" { // each port has TLS of its own
		inBlock = login.Config
	}

	config := fmt.Sprintf("%s\nleafnodes {\nlisten: %q\n%s\n}", login.Config, address, inBlock)
	e := testenv.New(t, testenv.Options{Stopped: true, NATS: testenv.ServerOptions(t, config)})
	e.NATS.Start()

	return e, "nats-leaf://" + address
}

// worksAsLeaf takes an item as a program of JetStream does, with the configured login.
func worksAsLeaf(t *testing.T, e *testenv.Env) {
	t.Helper()
	c, err := loadConfig(false)
	must(t, err)
	options, err := c.natsOptions()
	must(t, err)

	nc := e.Connect(append(options, nats.Timeout(testenv.Patience))...)
	defer nc.Close()
	js, err := jetstream.NewWithDomain(nc, "pq", jetstream.WithDefaultTimeout(testenv.Patience))
	must(t, err)

	testenv.Eventually(t, func() error { // the service may be connected and not yet subscribed
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := js.Publish(ctx, "pq.jobs.push", []byte("a"), jetstream.WithMsgID("a"))
		return err
	})

	var worker jetstream.Consumer
	testenv.Eventually(t,
		func() error { worker, err = js.Consumer(t.Context(), "jobs", "min"); return err })

	m, err := worker.Next(jetstream.FetchMaxWait(testenv.Patience))
	must(t, err)
	if string(m.Data()) != "a" {
		t.Errorf("got %q", m.Data())
	}
	must(t, m.DoubleAck(t.Context()))
}
