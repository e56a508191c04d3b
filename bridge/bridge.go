// Package bridge serves the queues of package fdbpq to NATS clients.
//
// # Requests
//
// Each message on a subject of the grammar is a request. Package requests parses and checks it,
// then submits it to package dispatch. That runs requests in batches, each in one transaction, and
// answers them once the batch is durable. Requests from one publisher to one queue are processed in
// the order sent, as long as one bridge serves them.
//
// # Failures
//
// A plain pop is delivered at most once: a reply lost on its way loses its item. The item goes back
// to its old place only if the reply could not even be handed to NATS, if the server denied it for
// lack of permissions, or if nobody was subscribed to the reply subject. If the store does not say
// whether a batch was committed, the requests of the batch get 503 with an unknown outcome, and
// items that its pops took go back into the queue. After any other error the request has had no
// effect.
//
// NATS and the store may be unavailable at the start or at any later time. The bridge keeps trying
// to connect to NATS, and it subscribes to requests only once the store has answered. /readyz says
// which of the two is missing.
//
// Bridges that serve the same subjects must share the store and the queue group. A bridge that
// conflicts with another one does not start to serve, or stops serving until the other is gone: see
// [peers.ErrSubjectsTaken].
//
// # Reading the code
//
// This package is the life of the service; its rooms are the packages below it. run.go makes them
// and says what each gets from the others, and bridge.go has what they share. shutdown.go ends them
// in order.
//
// connection.go connects to NATS, over cable.go. serving.go decides, with package peers, whether
// the bridge takes requests. jetstream.go runs the JetStream face. discovery.go answers service
// discovery, metrics.go and its siblings count, and options.go has the table of options.
package bridge

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/outbox"
	"github.com/pqbridge/pqbridge/bridge/peers"
	"github.com/pqbridge/pqbridge/bridge/requests"
	"github.com/pqbridge/pqbridge/bridge/results"
	"github.com/pqbridge/pqbridge/bridge/sources"
	"github.com/pqbridge/pqbridge/bridge/web"
)

// Bridge serves one store. Make it with New and call Run once.
type Bridge struct {
	options Options
	quiet   *quietLog

	metrics   *metrics
	endpoints []*endpoint // as the grammar lists them
	unknown   *endpoint   // counts requests that match none

	dispatcher *dispatch.Dispatcher
	outbox     *outbox.Outbox
	results    *results.Waits
	handler    *requests.Handler

	// statsOfQueues is the last reply to a STATS request for BridgeStats. It may have a thousand
	// queues, and anybody may ask, so it is sent again while the bridge rests, requests.RestFactor
	// times as long as the reply took.
	statsOfQueues struct {
		sync.Mutex
		reply []byte
		until time.Time
	}

	id      string // of this instance, for service discovery
	created time.Time
	peers   *peers.Peers
	web     *web.Server

	jetStream *jetStream // nil if it is off
	sources   *sources.Sources

	cable    *cable
	online   atomic.Bool            // connected to NATS; nc itself would wait while it connects
	nc       *nats.Conn             // set by connect, before anything uses it
	denials  denials                // of subscriptions to requests
	away     atomic.Pointer[string] // why nc is not connected; nil if it is, or has not tried
	closed   chan struct{}          // closed when nc is closed for good
	idle     atomic.Pointer[string] // why this bridge does not serve; nil if it does
	stopping atomic.Bool
	unsent   atomic.Int64 // replies that nc rejected during the shutdown

	serving struct {
		mu            sync.Mutex
		subscriptions []*nats.Subscription // to requests
		ending        []*nats.Subscription // drained
		dropped       int                  // messages dropped by former subscriptions
	}
}

// ID returns the id of this instance, by which service discovery names it.
func (b *Bridge) ID() string { return b.id }

// replyFailed counts a reply that NATS did not accept.
func (b *Bridge) replyFailed(err error) {
	b.metrics.replyFailures.Inc()
	if b.stopping.Load() {
		b.unsent.Add(1)
	}
	b.quiet.warn("a reply could not be sent", "error", err)
}

// notServing makes /readyz say why this bridge does not serve.
func (b *Bridge) notServing(reason string) { b.idle.Store(&reason) }

// servingReady returns an error that says why this bridge does not serve.
func (b *Bridge) servingReady() error {
	if reason := b.idle.Load(); reason != nil {
		return errors.New(*reason)
	}
	return nil
}
