package testenv

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// Clustered is an Options.NATS of a server that others can join.
func Clustered(o *server.Options) {
	o.Cluster = server.ClusterOpts{Name: "testenv", Host: "127.0.0.1", Port: server.RANDOM_PORT}
}

// Join starts another server with the same options in one cluster with s, which must be
// running and Clustered. It returns once the two know each other.
func (s *Server) Join(t testing.TB) *Server {
	t.Helper()
	other := newServer(t, func(o *server.Options) {
		port := o.Port
		*o = s.options
		o.Port = port
		o.Routes = []*url.URL{{Scheme: "nats-route", Host: s.running.ClusterAddr().String()}}
	})
	other.Start()
	Eventually(t, func() error {
		if here, there := s.running.NumRoutes(), other.running.NumRoutes(); here == 0 || here != there {
			return fmt.Errorf("%d and %d routes", here, there)
		}
		return nil
	})
	return other
}

// Knows waits until the server knows that somebody in the cluster is subscribed to a subject,
// or that nobody is.
func (s *Server) Knows(subject string, subscribed bool) {
	s.t.Helper()
	Eventually(s.t, func() error {
		if s.running.GlobalAccount().Interest(subject) > 0 != subscribed {
			return fmt.Errorf("subscribed to %s: want %t", subject, subscribed)
		}
		return nil
	})
}

// ConnectTo is Connect to any server of the cluster.
func (e *Env) ConnectTo(s *Server, options ...nats.Option) *nats.Conn {
	e.t.Helper()
	nc, err := nats.Connect(s.URL(), append(s.connectOptions(), options...)...)
	if err != nil {
		e.t.Fatalf("testenv: connect to NATS: %v", err)
	}
	e.t.Cleanup(nc.Close)
	return nc
}
