package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/testenv"
)

// TestLeafLogins: the leaf node logs in in every way that can be configured, on its own or as the
// client connection does. Strangers are refused, and the log says so.
func TestLeafLogins(t *testing.T) {
	strangers := testenv.Logins(t)
	for i, login := range testenv.Logins(t) {
		t.Run(login.Name, func(t *testing.T) {
			e, leafURL := leafServer(t, login)
			t.Run("as the client", func(t *testing.T) {
				setLogin(t, login)
				t.Setenv("PQ_JETSTREAM_LEAF_URL", leafURL)
				s := startService(t, e.NATS.URL())
				s.awaitLog("leaf node connected")
				worksAsLeaf(t, e)
				s.end()
			})

			// Its client connection is at a server that wants no login.
			other := testenv.New(t, testenv.Options{Stopped: true})
			other.NATS.Start()
			t.Run("of its own", func(t *testing.T) {
				setLeafLogin(t, login)
				t.Setenv("PQ_JETSTREAM_LEAF_URL", leafURL)
				s := startService(t, other.NATS.URL())
				s.awaitLog("leaf node connected")
				s.end()
			})
			if secret := login.Password + login.Token; secret != "" {
				t.Run("of its own, in a file", func(t *testing.T) {
					file := filepath.Join(t.TempDir(), "secret")
					must(t, os.WriteFile(file, []byte(secret+"\n"), 0o600))
					if login.User != "" {
						setenv(t, map[string]string{leafPrefix + "USER": login.User, leafPrefix + "PASSWORD_FILE": file})
					} else {
						t.Setenv(leafPrefix+"TOKEN_FILE", file)
					}
					t.Setenv("PQ_JETSTREAM_LEAF_URL", leafURL)
					s := startService(t, other.NATS.URL())
					s.awaitLog("leaf node connected")
					s.end()
				})
			}
			t.Run("stranger", func(t *testing.T) {
				setLeafLogin(t, strangers[i])
				t.Setenv("PQ_JETSTREAM_LEAF_URL", leafURL)
				s := startService(t, other.NATS.URL())
				s.awaitLog("Authorization Violation", "certificate signed by unknown authority")
				if strings.Contains(s.log.String(), "leaf node connected") {
					t.Errorf("it was let in:\n%s", s.log.String())
				}
				s.end()
			})
		})
	}
}

// leafServer starts a server with a leaf node port, both with the login.
func leafServer(t *testing.T, login testenv.Login) (*testenv.Env, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	address := l.Addr().String()
	must(t, l.Close()) // only its port was needed

	inBlock := ""
	if login.CAFile != "" { // each port has TLS of its own
		inBlock = login.Config
	}
	config := fmt.Sprintf("%s\nleafnodes {\nlisten: %q\n%s\n}", login.Config, address, inBlock)
	e := testenv.New(t, testenv.Options{Stopped: true, NATS: func(o *server.Options) { testenv.ServerOptions(t, config)(o) }})
	e.NATS.Start()
	return e, "nats-leaf://" + address
}

// setLeafLogin is setLogin for the leaf node alone.
func setLeafLogin(t *testing.T, l testenv.Login) {
	t.Helper()
	for name, value := range map[string]string{
		"USER": l.User, "PASSWORD": l.Password, "TOKEN": l.Token, "CREDS": l.CredsFile, "NKEY": l.NkeyFile,
		"TLS_CA": l.CAFile, "TLS_CERT": l.CertFile, "TLS_KEY": l.KeyFile,
	} {
		if value != "" {
			t.Setenv(leafPrefix+name, value)
		}
	}
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
