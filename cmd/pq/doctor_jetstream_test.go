package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/testenv"
)

// pq doctor says whether bridges are connected for JetStream's programs, if they are to be.
func TestDoctorSeesJetStream(t *testing.T) {
	t.Parallel()
	env := testenv.New(t, testenv.Options{JetStream: true})
	c := &cli{t: t, server: env.NATS.URL()}
	c.findings(exitOK)["jetstream"].is(t, fine, "1 bridge connected")

	env.StartBridge(func(o *bridge.Options) { o.JetStream.LeafURL = env.NATS.URL() })
	testenv.Eventually(t, func() error {
		if got, _, _ := c.run("", "doctor", "--json"); !strings.Contains(got, "the port of leafnodes") {
			return errors.New(got)
		}
		return nil
	})
	c.findings(exitError)["jetstream"].is(t, wrong, "does not serve JetStream's programs", "PQ_JETSTREAM_LEAF_URL")
}
