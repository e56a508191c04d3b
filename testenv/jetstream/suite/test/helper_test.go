//go:build natsgo

package test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/subjects"
)

// The helpers have the names and signatures that the tests of nats.go expect. A "JetStream server"
// is a NATS server without JetStream, and a bridge on an empty store beside it.

// patience is far more than a start takes.
const patience = 20 * time.Second

// rig is a bridge and the servers that it uses.
type rig struct {
	options []*server.Options // of the servers, with their ports
	stop    context.CancelFunc
	ended   chan struct{}
}

// rigs has the running rigs by each of their servers.
var rigs = struct {
	sync.Mutex
	of map[*server.Server]*rig
}{of: map[*server.Server]*rig{}}

// note says which bridge a server belongs to.
func (r *rig) note(s *server.Server) {
	rigs.Lock()
	defer rigs.Unlock()
	rigs.of[s] = r
}

// forget returns the bridge of a server, and whether no other server of it is left.
func forget(s *server.Server) (r *rig, last bool) {
	rigs.Lock()
	defer rigs.Unlock()
	r = rigs.of[s]
	delete(rigs.of, s)

	for _, other := range rigs.of {
		if other == r {
			return r, false
		}
	}

	return r, r != nil
}

// freePort asks the system for a port, which a server keeps when it is started again.
func freePort() int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port
}

// check panics, since some helpers do not get the test.
func check(err error) {
	if err != nil {
		panic(err)
	}
}

func newOptions() *server.Options {
	o := &server.Options{Host: "127.0.0.1", Port: freePort(), NoLog: true, NoSigs: true}
	o.LeafNode.Host, o.LeafNode.Port = o.Host, freePort()
	return o
}

func startServer(o *server.Options) *server.Server {
	copied := *o // the server changes its own
	s, err := server.NewServer(&copied)
	check(err)

	s.Start()
	if !s.ReadyForConnections(patience) {
		panic("the server did not start")
	}

	return s
}

// startRig starts a bridge for servers that run.
func startRig(options ...*server.Options) *rig {
	grammar, err := subjects.New(subjects.DefaultPriorityPrefix, subjects.DefaultFIFOPrefix)
	check(err)

	keyspace, err := fdbpq.NewKeyspace(subjects.DefaultPriorityPrefix, subjects.DefaultFIFOPrefix,
		fdbpq.RawValues)
	check(err)

	var urls, leafs []string
	for _, o := range options {
		urls = append(urls, fmt.Sprintf("nats://%s:%d", o.Host, o.Port))
		leafs = append(leafs, fmt.Sprintf("nats-leaf://%s:%d", o.LeafNode.Host, o.LeafNode.Port))
	}

	db := memkv.New(memkv.Options{})
	b, err := bridge.New(bridge.Options{
		NATSURL: strings.Join(urls, ","),
		NATSOptions: []nats.Option{
			nats.MaxReconnects(-1),
			nats.ReconnectWait(10 * time.Millisecond),
			nats.ReconnectJitter(0, 0),
		},
		JetStream: bridge.JetStreamOptions{LeafURL: strings.Join(leafs, ",")},
		DB:        db,
		Keyspace:  keyspace,
		Grammar:   grammar,
		HTTPAddr:  "127.0.0.1:0",
		Logger:    slog.New(slog.NewTextHandler(io.Discard, nil)),
		Version:   "0.0.1",
	})
	check(err)

	ctx, stop := context.WithCancel(context.Background())
	r := &rig{options: options, stop: stop, ended: make(chan struct{})}

	go func() {
		defer close(r.ended)
		_ = b.Run(ctx) // tests may have stopped its server
		check(db.Close())
	}()

	return r
}

// waitReady waits until the bridge answers clients of a server.
func waitReady(s *server.Server) {
	nc, err := nats.Connect(s.ClientURL())
	check(err)
	defer nc.Close()
	js, err := jetstream.NewWithDomain(nc, subjects.DefaultPriorityPrefix)
	check(err)

	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_, err := js.AccountInfo(ctx)
		cancel()

		if err == nil {
			return
		}

		if time.Now().After(deadline) {
			panic(err)
		}
	}
}

// RunBasicJetStreamServer starts a server and a bridge.
func RunBasicJetStreamServer() *server.Server {
	o := newOptions()
	s := startServer(o)
	startRig(o).note(s)
	waitReady(s)

	return s
}

// restartBasicJSServer starts a server anew, at its address. The bridge and its store go on.
func restartBasicJSServer(t *testing.T, s *server.Server) *server.Server {
	t.Helper()
	s.Shutdown()
	s.WaitForShutdown()
	r, _ := forget(s)
	again := startServer(r.options[0])
	r.note(again)
	waitReady(again)

	return again
}

// shutdownJSServerAndRemoveStorage stops a server, after the bridge if it is the last one of that.
func shutdownJSServerAndRemoveStorage(t *testing.T, s *server.Server) {
	t.Helper()
	if r, last := forget(s); last {
		r.stop()
		<-r.ended
	}

	s.Shutdown()
	s.WaitForShutdown()
}

// jsServer is a server of a cluster.
type jsServer struct {
	*server.Server
	options *server.Options
	rig     *rig
}

// Restart starts a server that was shut down.
func (s *jsServer) Restart() {
	s.WaitForShutdown()
	forget(s.Server)
	s.Server = startServer(s.options)
	s.rig.note(s.Server)
}

// withJSClusterAndStream runs a test with a cluster of servers, and a stream on it.
func withJSClusterAndStream(
	t *testing.T, cluster string, size int, stream jetstream.StreamConfig,
	test func(t *testing.T, stream string, nodes ...*jsServer),
) {
	t.Helper()
	nodes := make([]*jsServer, size)
	options := make([]*server.Options, size)
	var routes []*url.URL

	for i := range nodes {
		o := newOptions()
		o.ServerName = fmt.Sprintf("%s-%d", cluster, i)
		o.Cluster.Name, o.Cluster.Host, o.Cluster.Port = cluster, o.Host, freePort()
		routes = append(routes,
			&url.URL{Scheme: "nats", Host: fmt.Sprintf("%s:%d", o.Host, o.Cluster.Port)})
		options[i] = o
	}

	for i, o := range options {
		o.Routes = routes
		nodes[i] = &jsServer{Server: startServer(o), options: o}
	}

	r := startRig(options...)
	for _, node := range nodes {
		node.rig = r
		r.note(node.Server)
	}
	defer func() {
		for _, node := range nodes {
			shutdownJSServerAndRemoveStorage(t, node.Server)
		}
	}()

	for _, node := range nodes {
		waitReady(node.Server)
	}

	nc, err := nats.Connect(nodes[0].ClientURL())
	check(err)
	defer nc.Close()
	js, err := jetstream.NewWithDomain(nc, subjects.DefaultPriorityPrefix)
	check(err)

	if _, err := js.CreateStream(t.Context(), stream); err != nil {
		t.Fatalf("the stream: %v", err)
	}

	test(t, stream.Name, nodes...)
}

// Wait waits for a value for some time.
func Wait(c chan bool) error { return WaitTime(c, 5*time.Second) }

// WaitTime waits for a value.
func WaitTime(c chan bool, patience time.Duration) error {
	select {
	case <-c:
		return nil
	case <-time.After(patience):
		return errors.New("timeout")
	}
}

// consInfoConstraint is what pull and push consumers have in common.
type consInfoConstraint interface {
	CachedInfo() *jetstream.ConsumerInfo
	Info(context.Context) (*jetstream.ConsumerInfo, error)
}
