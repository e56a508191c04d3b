// Package testenv gives a test the whole system in one call: a NATS server in
// the test's process, a store, a running bridge, a client connection, and the
// store itself behind the bridge's back.
//
// Everything listens on the loopback interface, on ports that the system picks, and is
// stopped when the test ends; errors while stopping fail the test. The methods are for
// the test's own goroutine unless they say otherwise.
package testenv

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
	"github.com/pqbridge/pqbridge/testenv/harness"
)

// Patience is how long the environment waits for something that should happen at once
// before the test fails.
const Patience = 2 * time.Minute

// Options of an environment. The zero value is a store in memory, and the
// defaults of the server and the bridge.
type Options struct {
	// Engine opens the store. The zero value means Mem.
	Engine Engine
	// Wrap puts something between the bridge and the store, such as faultkv.
	// Env.DB remains the store itself. nil means nothing.
	Wrap func(kv.Database) kv.Database
	// NATS changes the options of the NATS server. nil means nothing.
	NATS func(*server.Options)
	// Bridge changes the options of each bridge. nil means nothing.
	Bridge func(*bridge.Options)
	// JetStream has bridges serve programs that were written for JetStream: the NATS server has a
	// leaf node port, and bridges connect to it.
	JetStream bool
	// Stopped leaves it to the test to start the NATS server and everything that needs
	// it. Env.Conn and Env.Bridge are nil.
	Stopped bool
}

// Env is a running system.
type Env struct {
	// NATS is the server.
	NATS *Server
	// DB is the store itself, without what Options.Wrap put before it.
	DB kv.Database
	// Keyspace is where the bridge keeps the queues in DB.
	Keyspace *fdbpq.Keyspace
	// Grammar is the grammar of the bridge.
	Grammar subjects.Grammar
	// Bridge is the first bridge.
	Bridge *Bridge
	// Conn is a client's connection to NATS, which reconnects whenever it is lost.
	Conn *nats.Conn

	t       testing.TB
	options Options
	served  kv.Database // what the bridge uses
	killed  sync.Map    // ids of processes that a test has killed
}

// New starts a system. It returns when the bridge can be reached by Conn.
func New(t testing.TB, o Options) *Env {
	t.Helper()
	if o.Engine.Open == nil {
		o.Engine = Mem()
	}
	if o.JetStream {
		o = withLeafNodes(t, o)
	}

	priority, fifo := subjects.DefaultPriorityPrefix, subjects.DefaultFIFOPrefix
	e := &Env{
		NATS:     newServer(t, o.NATS),
		DB:       o.Engine.Open(t),
		Keyspace: made(fdbpq.NewKeyspace(priority, fifo, fdbpq.RawValues)),
		Grammar:  made(subjects.New(priority, fifo)),
		t:        t,
		options:  o,
	}

	e.served = e.DB
	if o.Wrap != nil {
		e.served = o.Wrap(e.DB)
	}
	if o.Stopped {
		return e
	}

	e.NATS.Start()
	e.Bridge = e.StartBridge()
	e.Conn = e.Connect()
	e.Bridge.WaitReady()
	return e
}

// withLeafNodes returns options with a leaf node port, on loopback whatever Options.NATS says.
func withLeafNodes(t testing.TB, o Options) Options {
	port, changeNATS, changeBridge := harness.Port(t), o.NATS, o.Bridge
	o.NATS = func(n *server.Options) {
		if changeNATS != nil {
			changeNATS(n)
		}
		n.LeafNode.Host, n.LeafNode.Port = "127.0.0.1", port
	}

	o.Bridge = func(b *bridge.Options) {
		b.JetStream.LeafURL = "nats-leaf://127.0.0.1:" + strconv.Itoa(port)
		if changeBridge != nil {
			changeBridge(b)
		}
	}

	return o
}

// answers returns nil if a bridge answers requests.
func (e *Env) answers() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err := e.Conn.RequestWithContext(ctx, subjects.DefaultPriorityPrefix+".any.len", nil)
	return err
}

// Connect makes a connection to NATS. The options come after those for all tests.
func (e *Env) Connect(options ...nats.Option) *nats.Conn {
	e.t.Helper()
	nc, err := nats.Connect(e.NATS.URL(), append(e.NATS.connectOptions(), options...)...)
	if err != nil {
		e.t.Fatalf("testenv: connect to NATS: %v", err)
	}
	e.t.Cleanup(nc.Close)
	return nc
}

// Request sends a request and returns the reply, which may be an error: see
// subjects.ErrorFromHeaders. It fails the test if there is none.
func (e *Env) Request(subject string, headers nats.Header, payload []byte) *nats.Msg {
	e.t.Helper()
	// RequestMsg would use a timer that another test has left, and a bubble cannot wait for that.
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	m := &nats.Msg{Subject: subject, Header: headers, Data: payload}
	reply, err := e.Conn.RequestMsgWithContext(ctx, m)
	if err != nil {
		e.t.Fatalf("testenv: request %s: %v", subject, err)
	}

	return reply
}

// Eventually waits until check returns nil, and fails the test with its last
// error if that takes too long.
func Eventually(t testing.TB, check func() error) {
	t.Helper()
	if isBubble(t) { // until nobody else has anything to do, so no check sees a state on its way
		time.Sleep(time.Nanosecond)
	}
	deadline := time.NewTimer(Patience)
	defer deadline.Stop()
	pause := 2 * time.Millisecond
	for {
		err := check()
		if err == nil {
			return
		}

		select {
		case <-time.After(pause):
			pause = min(pause*5/4, 50*time.Millisecond) // checks cost time that others need
		case <-deadline.C:
			t.Fatalf("testenv: still failing after %v: %v", Patience, err)
		}
	}
}
