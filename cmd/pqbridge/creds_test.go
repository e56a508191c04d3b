package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/testenv"
)

// setLogin sets the variables for a login.
func setLogin(t *testing.T, l testenv.Login) {
	t.Helper()
	for name, value := range map[string]string{
		"PQ_NATS_USER": l.User, "PQ_NATS_PASSWORD": l.Password, "PQ_NATS_TOKEN": l.Token,
		"PQ_NATS_CREDS": l.CredsFile, "PQ_NATS_NKEY": l.NkeyFile,
		"PQ_NATS_TLS_CA": l.CAFile, "PQ_NATS_TLS_CERT": l.CertFile, "PQ_NATS_TLS_KEY": l.KeyFile,
	} {
		if value != "" {
			t.Setenv(name, value)
		}
	}
}

// service is pqbridge running in this process.
type service struct {
	t     *testing.T
	log   testenv.Transcript
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

// end stops the service, which must leave nothing undone.
func (s *service) end() {
	s.t.Helper()
	s.stop()
	if err := <-s.ended; err != nil {
		s.t.Errorf("%v\n%s", err, s.log.String())
	}
}

// endRefused is end of a service that NATS never let in.
func (s *service) endRefused() {
	s.t.Helper()
	s.end()
	if strings.Contains(s.log.String(), "connected to NATS") {
		s.t.Errorf("it was let in:\n%s", s.log.String())
	}
}

// awaitLog waits until the log has one of the texts.
func (s *service) awaitLog(texts ...string) {
	s.t.Helper()
	testenv.Eventually(s.t, func() error {
		log := s.log.String()
		for _, text := range texts {
			if strings.Contains(log, text) {
				return nil
			}
		}
		select {
		case err := <-s.ended:
			s.ended <- err // for end
			s.t.Fatalf("the service has ended: %v\n%s", err, log)
		default:
		}
		return fmt.Errorf("not in the log: %q\n%s", texts, log)
	})
}

// TestLogins: the service and a client log in to NATS in every way that can be configured.
// Strangers are refused, and the log says so.
func TestLogins(t *testing.T) {
	strangers := testenv.Logins(t)
	refusal := map[string]string{
		"tls":                "certificate signed by unknown authority",
		"client certificate": "certificate signed by unknown authority",
	}
	for i, login := range testenv.Logins(t) {
		t.Run(login.Name, func(t *testing.T) {
			e := testenv.New(t, testenv.Options{Stopped: true, NATS: testenv.ServerOptions(t, login.Config)})
			e.NATS.Start()
			t.Run("known", func(t *testing.T) {
				setLogin(t, login)
				s := startService(t, e.NATS.URL())
				s.awaitLog("connected to NATS")
				roundTrip(t, e)
				s.end()
			})
			t.Run("stranger", func(t *testing.T) {
				setLogin(t, strangers[i])
				s := startService(t, e.NATS.URL())
				text := refusal[login.Name]
				if text == "" {
					text = "Authorization Violation"
				}
				s.awaitLog(text)
				s.endRefused()
			})
			t.Run("nobody", func(t *testing.T) {
				s := startService(t, e.NATS.URL())
				s.awaitLog("Authorization Violation", "certificate signed by unknown authority")
				s.end()
			})
			if login.CertFile == "" {
				return
			}
			t.Run("no certificate", func(t *testing.T) { // but the right authority
				known := login
				known.CertFile, known.KeyFile = "", ""
				setLogin(t, known)
				s := startService(t, e.NATS.URL())
				// The second text if the server hung up before its reason arrived.
				s.awaitLog("certificate required", "connection closed by remote after TLS handshake")
				s.endRefused()
			})
		})
	}
}

// roundTrip pushes and pops with the configured login.
func roundTrip(t *testing.T, e *testenv.Env) {
	t.Helper()
	c, err := loadConfig(false)
	must(t, err)
	options, err := c.natsOptions()
	must(t, err)
	nc := e.Connect(options...)
	testenv.Eventually(t, func() error { // the service may be connected and not yet subscribed
		_, err := nc.Request("pq.jobs.push", []byte("secret"), testenv.Patience)
		return err
	})
	pops(t, nc, "pq.jobs.pop.min", "secret")
	nc.Close()
}

// TestUnusableFiles: the service does not start with files that are missing or have the
// wrong contents, and names them.
func TestUnusableFiles(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	must(t, os.WriteFile(text, []byte("no secret"), 0o600))
	server := testenv.New(t, testenv.Options{Stopped: true}).NATS
	server.Start()
	for _, name := range []string{"PQ_NATS_CREDS", "PQ_NATS_NKEY", "PQ_NATS_TLS_CA", "PQ_NATS_TLS_CERT"} {
		for _, path := range []string{text, text + ".absent"} {
			t.Run(name+" "+filepath.Ext(path), func(t *testing.T) {
				t.Setenv(name, path)
				if name == "PQ_NATS_TLS_CERT" {
					t.Setenv("PQ_NATS_TLS_KEY", path)
				}
				s := startService(t, server.URL())
				err := <-s.ended
				s.stop()
				if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), path) {
					t.Errorf("%v: want %s and %s", err, name, path)
				}
			})
		}
	}
}
