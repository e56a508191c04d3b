package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/testenv"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// setLogin sets the variables for a login, those that begin with a prefix.
func setLogin(t *testing.T, prefix string, l testenv.Login) {
	t.Helper()
	for name, value := range map[string]string{
		"USER": l.User, "PASSWORD": l.Password, "TOKEN": l.Token, "CREDS": l.CredsFile, "NKEY": l.NkeyFile,
		"TLS_CA": l.CAFile, "TLS_CERT": l.CertFile, "TLS_KEY": l.KeyFile,
	} {
		if value != "" {
			t.Setenv(prefix+name, value)
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

// TestLogins: the service and its leaf node log in to NATS in every way that can be configured,
// together or the leaf node in its own way. Strangers are refused, and the log says so.
func TestLogins(t *testing.T) {
	strangers := testenv.Logins(t)
	for i, login := range testenv.Logins(t) {
		t.Run(login.Name, func(t *testing.T) {
			e, leafURL := leafServer(t, login)
			t.Run("known", func(t *testing.T) {
				setLogin(t, natsPrefix, login)
				t.Setenv("PQ_JETSTREAM_LEAF_URL", leafURL)
				s := startService(t, e.NATS.URL())
				s.awaitLog("connected to NATS")
				s.awaitLog("leaf node connected")
				worksAsLeaf(t, e)
				s.end()
			})
			t.Run("stranger", func(t *testing.T) {
				setLogin(t, natsPrefix, strangers[i])
				s := startService(t, e.NATS.URL())
				s.awaitLog(refusals...)
				s.end()
				if strings.Contains(s.log.String(), "connected to NATS") {
					t.Errorf("it was let in:\n%s", s.log.String())
				}
			})

			// The client connection is at a server that wants no login.
			other := testenv.New(t, testenv.Options{Stopped: true})
			other.NATS.Start()
			t.Run("of its own", func(t *testing.T) {
				setLogin(t, leafPrefix, login)
				t.Setenv("PQ_JETSTREAM_LEAF_URL", leafURL)
				if secret := login.Password + login.Token; secret != "" {
					variable := leafPrefix + map[bool]string{true: "TOKEN", false: "PASSWORD"}[login.User == ""]
					file := filepath.Join(t.TempDir(), "secret")
					writeSecret(t, file, secret+"\n")
					setenv(t, map[string]string{variable: "", variable + "_FILE": file})
				}
				s := startService(t, other.NATS.URL())
				s.awaitLog("leaf node connected")
				s.end()
			})
			t.Run("stranger of its own", func(t *testing.T) {
				setLogin(t, leafPrefix, strangers[i])
				t.Setenv("PQ_JETSTREAM_LEAF_URL", leafURL)
				s := startService(t, other.NATS.URL())
				s.awaitLog(refusals...)
				s.end()
				if strings.Contains(s.log.String(), "leaf node connected") {
					t.Errorf("it was let in:\n%s", s.log.String())
				}
			})
		})
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
	js, err := jetstream.NewWithDomain(nc, "pq")
	must(t, err)
	testenv.Eventually(t, func() error { // the service may be connected and not yet subscribed
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := js.Publish(ctx, "pq.jobs.push", []byte("a"), jetstream.WithMsgID("a"))
		return err
	})
	var worker jetstream.Consumer
	testenv.Eventually(t, func() error { worker, err = js.Consumer(t.Context(), "jobs", "min"); return err })
	m, err := worker.Next(jetstream.FetchMaxWait(testenv.Patience))
	must(t, err)
	if string(m.Data()) != "a" {
		t.Errorf("got %q", m.Data())
	}
	must(t, m.DoubleAck(t.Context()))
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
