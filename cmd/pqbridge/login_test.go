package main

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
	"github.com/pqbridge/pqbridge/testenv"
)

// The leaf node logs in as the client connection does, unless something else is set for it.
func TestLeafLogin(t *testing.T) {
	const leafURL = "PQ_JETSTREAM_LEAF_URL"
	for _, test := range []struct {
		name string
		set  map[string]string
		want leaf.Login
	}{
		{"nothing", map[string]string{leafURL: "nats-leaf://host"}, leaf.Login{}},
		{
			"in its URL",
			map[string]string{leafURL: "nats-leaf://me:it@host", "PQ_NATS_USER": "client"},
			leaf.Login{},
		},
		{
			"of the client",
			map[string]string{leafURL: "host", "PQ_NATS_USER": "client", "PQ_NATS_PASSWORD": "x"},
			leaf.Login{User: "client", Password: "x"},
		},
		{
			"of the client's URL",
			map[string]string{leafURL: "host", "PQ_NATS_URL": "nats://a:b@host,nats://c:d@other"},
			leaf.Login{User: "a", Password: "b"},
		},
		{
			"a token in the client's URL",
			map[string]string{leafURL: "host", "PQ_NATS_URL": "nats://secret@host"},
			leaf.Login{Token: "secret"},
		},
		{
			"of its own",
			map[string]string{
				leafURL:                   "host",
				"PQ_NATS_TOKEN":           "x",
				"PQ_JETSTREAM_LEAF_TOKEN": "y",
			},
			leaf.Login{Token: "y"},
		},
		{
			"a user",
			map[string]string{
				leafURL:                      "host",
				"PQ_JETSTREAM_LEAF_USER":     "me",
				"PQ_JETSTREAM_LEAF_PASSWORD": "y",
			},
			leaf.Login{User: "me", Password: "y"},
		},
		{
			"files",
			map[string]string{leafURL: "host", "PQ_NATS_USER": "u", "PQ_NATS_PASSWORD_FILE": "p"},
			leaf.Login{User: "u", PasswordFile: "p"},
		},
		{
			"a file of a token",
			map[string]string{leafURL: "host", "PQ_JETSTREAM_LEAF_TOKEN_FILE": "p"},
			leaf.Login{TokenFile: "p"},
		},
		{
			"credentials",
			map[string]string{
				leafURL:                   "host",
				"PQ_JETSTREAM_LEAF_CREDS": "p",
				"PQ_NATS_TOKEN":           "x",
			},
			leaf.Login{CredsFile: "p"},
		},
		{
			"an nkey",
			map[string]string{leafURL: "host", "PQ_NATS_NKEY": "p"},
			leaf.Login{NkeyFile: "p"},
		},
		{"off", map[string]string{"PQ_NATS_TOKEN": "x"}, leaf.Login{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			setenv(t, test.set)
			c, err := loadConfig(false)
			must(t, err)

			o := c.jetStreamOptions()
			if o.Login != test.want || o.LeafURL != test.set[leafURL] || o.TLS != nil {
				t.Errorf("got %+v, want %+v", o, test.want)
			}
		})
	}
}

// A leaf node connection trusts the authorities that are in the file when it connects, also if it
// is the file of the client connection.
func TestLeafAuthoritiesAreReadAgain(t *testing.T) {
	for _, variable := range []string{"PQ_JETSTREAM_LEAF_TLS_CA", "PQ_NATS_TLS_CA"} {
		t.Run(variable, func(t *testing.T) {
			logins := testenv.Logins(t)
			first, err := os.ReadFile(logins[4].CAFile)
			must(t, err)

			second, err := os.ReadFile(logins[5].CAFile)
			must(t, err)
			file := filepath.Join(t.TempDir(), "ca.pem")
			setenv(t, map[string]string{"PQ_JETSTREAM_LEAF_URL": "host", variable: file})
			must(t, os.WriteFile(file, first, 0o600))

			c, err := loadConfig(false)
			must(t, err)
			o := c.jetStreamOptions()

			for _, text := range [][]byte{first, second} {
				must(t, os.WriteFile(file, text, 0o600))
				got, err := o.TLS()
				must(t, err)

				want := x509.NewCertPool()
				want.AppendCertsFromPEM(text)
				if !got.RootCAs.Equal(want) {
					t.Error("it trusts other authorities than those in the file")
				}
			}

			must(t, os.Remove(file))
			if _, err := o.TLS(); err == nil || !strings.Contains(err.Error(), variable) {
				t.Errorf("without the file: %v, want an error that names %s", err, variable)
			}
		})
	}
}

// Variables of the leaf node without its URL, or beside a prefix that is no domain, are mistakes.
func TestLeafMistakes(t *testing.T) {
	const url = "PQ_JETSTREAM_LEAF_URL"
	for want, set := range map[string]map[string]string{
		url + " is empty": {"PQ_JETSTREAM_LEAF_TOKEN": "x"},
		url + ` is "http://x": want nats-leaf://host:7422, nats://host:7422 or tls://host:7422, ` +
			"or several separated by commas": {url: "http://x"},
		"has a dot": {url: "host", "PQ_SUBJECT_PREFIX": "a.b"},
	} {
		t.Run(want, func(t *testing.T) {
			setenv(t, set)
			checkProblems(t, []string{want})
		})
	}
}
