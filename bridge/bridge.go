// Package bridge serves the queues of package fdbpq to NATS clients.
//
// # Requests
//
// Each message on a subject of the grammar is a request. The NATS callback parses and
// checks it, then submits it to package dispatch. That runs requests in batches, each
// in one transaction, and answers them once the batch is durable. Requests from one
// publisher to one queue are processed in the order sent, as long as one bridge serves
// them.
//
// Every request with a reply subject gets an answer: the result, or an error in headers, see
// subjects.ErrorFromHeaders. A pop of several items gets a message for each, or with frames for
// several, and one that ends them. Only pushes and acknowledgements may do without a reply subject.
// Requests that fail and have no usable reply subject are counted and logged.
//
// # Failures
//
// A plain pop is delivered at most once: a reply lost on its way loses its item. The item goes
// back to its old place only if the reply could not even be handed to NATS, if the server
// denied it for lack of permissions, or if nobody was subscribed to the reply subject. If the store
// does not say whether a batch was committed, the requests of the batch get 503 with an
// unknown outcome, and items that its pops took go back into the queue. After any other
// error the request has had no effect.
//
// NATS and the store may be unavailable at the start or at any later time. The bridge
// keeps trying to connect to NATS, and it subscribes to requests only once the store
// has answered. /readyz says which of the two is missing.
//
// Bridges that serve the same subjects must share the store and the queue group. A
// bridge that conflicts with another one does not start to serve, or stops serving
// until the other is gone: see [ErrSubjectsTaken].
//
// # Reading the code
//
// A request goes through handler.go, decode.go, package dispatch, replier.go, encode.go and package
// outbox. Beside decode.go, decode_push.go reads pushes, decode_manage.go and decode_browse.go what
// manages a queue. Beside replier.go, parcel.go answers pops of several items, and replies.go all
// that has a payload.
//
// Three tables say what differs: verbs.go between verbs, errors.go between errors, and options.go
// between options. metrics.go counts, and waits.go has the pops that can be cancelled. inspector.go
// and browse.go answer what only reads, beside the lanes, and bulk.go what changes many items.
//
// run.go makes the parts of a bridge and runs them, shutdown.go ends them, and bridge.go has what
// they share. connection.go connects to NATS, over cable.go. serving.go decides, with package
// peers, whether the bridge takes requests. jetstream.go has the JetStream face: see package
// jetstream.
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
	"github.com/pqbridge/pqbridge/bridge/sources"
	"github.com/pqbridge/pqbridge/bridge/web"
	"github.com/pqbridge/pqbridge/subjects"
)

// Bridge serves one store. Make it with New and call Run once.
type Bridge struct {
	options Options
	grammar subjects.Grammar
	quiet   quietLogs

	dispatcher *dispatch.Dispatcher
	endpoints  *endpoints
	metrics    *metrics
	outbox     *outbox.Outbox
	encoders   sync.Pool // of *encoder
	spans      sync.Pool // of *[]fdbpq.Op, for one request at a time
	repliers   sync.Pool // of *clientReplier
	inspector  *inspector
	waits      *waits

	// statsOfQueues is the last reply to a STATS request for BridgeStats. It is sent again until
	// restFactor times as long has passed as it took to make: a bridge may have a hundred thousand
	// queues in use, and anybody may ask.
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

// replyFailed counts a reply that NATS did not accept.
func (b *Bridge) replyFailed(err error) {
	b.metrics.replyFailures.Inc()
	if b.stopping.Load() {
		b.unsent.Add(1)
	}
	b.quiet.replies.warn("a reply could not be sent", "error", err)
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
