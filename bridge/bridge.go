// Package bridge serves the queues of package fdbpq to NATS clients.
//
// # Requests
//
// Each message on a subject of the grammar is a request. The NATS callback parses and
// checks it and submits it to package dispatch, which runs requests in batches, each in
// one transaction, and has them answered when the batch is durable. Requests from one
// publisher to one queue are processed in the order sent, as long as one bridge serves
// them.
//
// Every request with a reply subject gets one reply: the result, or an error as headers
// without a payload, see subjects.ErrorFromHeaders. A push may have no reply subject; if it
// fails, it is counted and logged. So is any other request that fails without a usable
// reply subject.
//
// # Failures
//
// A reply lost on its way loses what it carried: pops are at most once. Only if
// the reply could not even be handed to NATS, or the server refused it for lack of
// permissions, is the item pushed again, behind the others of its priority. If the store
// leaves open whether a batch was committed, its requests are answered 503 with an
// unknown outcome, and items that its pops took are put back. After any other error the
// request has had no effect.
//
// NATS may be away at the start and at any later time; the bridge keeps trying to
// connect. The store may be away too; until it has answered once, the bridge does not
// subscribe to requests. /readyz tells which of the two is missing.
//
// Bridges that serve the same subjects must share the store and the queue group. A
// bridge that conflicts with another one does not start to serve, or stops serving
// until the other is gone: see [ErrSubjectsTaken].
package bridge

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
)

// Bridge serves one store. Make it with New and call Run once.
type Bridge struct {
	options  Options
	db       kv.Database
	keyspace *fdbpq.Keyspace
	grammar  subjects.Grammar
	quiet    quietLogs

	dispatcher *dispatch.Dispatcher
	endpoints  *endpoints
	metrics    *metrics
	outbox     *outbox

	id       string // of this instance, for service discovery
	created  time.Time
	listener net.Listener // nil without HTTP
	members  *membership
	router   *router

	// scrapes ends with HTTP. Prometheus passes no context to its collectors.
	scrapes    context.Context
	endScrapes context.CancelFunc

	line     *line
	online   atomic.Bool            // connected to NATS; asking nc would wait for attempts to connect
	muted    atomic.Bool            // NATS forbids what bridges send each other
	nc       *nats.Conn             // set by connect, before anything uses it
	denied   atomic.Pointer[string] // why NATS refused a subscription to requests
	closed   chan struct{}          // closed when nc is closed for good
	idle     atomic.Pointer[string] // why this bridge does not serve; nil if it does
	stopping atomic.Bool
	unsent   atomic.Int64 // replies of the shutdown that nc did not accept

	serving struct {
		mu            sync.Mutex
		subscriptions []*nats.Subscription // to requests
		ending        []*nats.Subscription // those that were drained
		dropped       int                  // messages, by former subscriptions
	}
}

// New checks the options and opens the HTTP listener; call Close if Run is not going to
// be called. Errors: those of Options.Validate, and of the listener.
func New(o Options) (*Bridge, error) {
	o = o.withDefaults()
	o.Logger = withDetails(o.Logger)
	if err := o.Validate(); err != nil {
		return nil, err
	}
	b := &Bridge{
		options:  o,
		db:       o.DB,
		keyspace: o.Keyspace,
		grammar:  o.Grammar,
		quiet:    newQuietLogs(o.Logger),
		id:       nuid.Next(),
		created:  time.Now().UTC(),
		line:     newLine(),
		closed:   make(chan struct{}),
	}
	b.scrapes, b.endScrapes = context.WithCancel(context.Background())
	b.outbox = newOutbox(b)
	b.notServing("starting: the store has not answered yet")
	b.members = newMembership(b)
	b.metrics = newMetrics(b)
	b.endpoints = newEndpoints(b)
	b.dispatcher = dispatch.New(dispatch.Options{
		DB: o.DB, Keyspace: o.Keyspace, Lanes: o.Lanes,
		MaxBatch: o.MaxBatch, MaxBatchBytes: o.MaxBatchBytes,
		MaxPending: o.MaxPending, MaxPendingBytes: o.MaxPendingBytes,
		RequestTimeout: o.RequestTimeout,
		Warn:           b.quiet.store.warn,
		BatchDone:      func(operations int) { b.metrics.batchSize.Observe(float64(operations)) },
	})
	b.router = newRouter(b, o.DB.Traits().Shared)
	if o.HTTPAddr != "" {
		listener, err := net.Listen("tcp", o.HTTPAddr)
		if err != nil {
			return nil, &kv.OptionError{Package: "bridge", Field: "HTTPAddr", Value: o.HTTPAddr, Want: "an address to listen on: " + err.Error()}
		}
		b.listener = listener
	}
	return b, nil
}

// Close closes the HTTP listener of a bridge that is not run. While Run runs it ends it,
// as any failure of the listener does. After Run it does nothing.
func (b *Bridge) Close() error {
	if b.listener == nil {
		return nil
	}
	if err := b.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("bridge: HTTP: %w", err)
	}
	return nil
}

// Addr returns the address of the HTTP listener, "" without one.
func (b *Bridge) Addr() string {
	if b.listener == nil {
		return ""
	}
	return b.listener.Addr().String()
}

// Run serves until ctx ends, and then finishes what was delivered. It returns when all its
// goroutines are gone. That is within the shutdown timeout, unless the store takes longer
// to give up a batch. Only an attempt to connect by a CustomDialer that does not return
// is left behind. Run is called once. The error is nil after an orderly end; otherwise
// it says why the bridge could not start or go on, or what was left undone.
func (b *Bridge) Run(ctx context.Context) error {
	// Accepted requests outlive ctx: see shutdown.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()

	running := running{failed: make(chan error, 2), stop: stop, stopServing: func() {}} // one for each that sends
	running.dispatcher.Go(func() { b.dispatcher.Run(work) })
	running.others.Go(func() { b.outbox.run(work) })

	err := b.connect(ctx)
	running.web = b.startHTTP(running.failed) // after connect, because it looks at the connection
	if err == nil {
		serving, stopServing := context.WithCancel(ctx)
		running.stopServing = stopServing
		running.serving.Go(func() {
			opened := func() {
				running.others.Go(func() { b.dispatcher.Maintain(work) })
			}
			if err := b.serve(serving, opened); err != nil {
				running.failed <- err
			}
		})
		select {
		case <-ctx.Done():
		case err = <-running.failed:
		case <-b.closed:
			err = fmt.Errorf("bridge: the NATS connection was closed: %w", b.nc.LastError())
		}
	}
	return b.shutdown(ctx, err, &running)
}

// running is what Run has started.
type running struct {
	dispatcher  sync.WaitGroup
	serving     sync.WaitGroup // serve
	stopServing func()         // ends serve
	others      sync.WaitGroup // end with stop
	stop        func()         // gives up the batches under way and ends others
	web         *web           // nil without HTTP
	failed      chan error     // why one of them ended early
}
