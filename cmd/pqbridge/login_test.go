package main

import (
	"testing"

	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
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
		{"in its URL", map[string]string{leafURL: "nats-leaf://me:it@host", "PQ_NATS_USER": "client"}, leaf.Login{}},
		{"of the client", map[string]string{leafURL: "host", "PQ_NATS_USER": "client", "PQ_NATS_PASSWORD": "x"}, leaf.Login{User: "client", Password: "x"}},
		{"of the client's URL", map[string]string{leafURL: "host", "PQ_NATS_URL": "nats://a:b@host,nats://c:d@other"}, leaf.Login{User: "a", Password: "b"}},
		{"a token in the client's URL", map[string]string{leafURL: "host", "PQ_NATS_URL": "nats://secret@host"}, leaf.Login{Token: "secret"}},
		{"of its own", map[string]string{leafURL: "host", "PQ_NATS_TOKEN": "x", "PQ_JETSTREAM_LEAF_TOKEN": "y"}, leaf.Login{Token: "y"}},
		{"a user", map[string]string{leafURL: "host", "PQ_JETSTREAM_LEAF_USER": "me", "PQ_JETSTREAM_LEAF_PASSWORD": "y"}, leaf.Login{User: "me", Password: "y"}},
		{"files", map[string]string{leafURL: "host", "PQ_NATS_USER": "u", "PQ_NATS_PASSWORD_FILE": "p"}, leaf.Login{User: "u", PasswordFile: "p"}},
		{"a file of a token", map[string]string{leafURL: "host", "PQ_JETSTREAM_LEAF_TOKEN_FILE": "p"}, leaf.Login{TokenFile: "p"}},
		{"credentials", map[string]string{leafURL: "host", "PQ_JETSTREAM_LEAF_CREDS": "p", "PQ_NATS_TOKEN": "x"}, leaf.Login{CredsFile: "p"}},
		{"an nkey", map[string]string{leafURL: "host", "PQ_NATS_NKEY": "p"}, leaf.Login{NkeyFile: "p"}},
		{"off", map[string]string{"PQ_NATS_TOKEN": "x"}, leaf.Login{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			setenv(t, test.set)
			c, err := loadConfig(false)
			must(t, err)
			o, err := c.jetStreamOptions()
			must(t, err)
			if o.Login != test.want || o.LeafURL != test.set[leafURL] || o.TLS != nil {
				t.Errorf("got %+v, want %+v", o, test.want)
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
