// Package bridge serves the queues of package fdbpq to NATS clients.
//
// # Requests
//
// Each message on a subject of the grammar is a request. It is parsed and
// checked in the NATS callback and submitted to package dispatch, which runs what
// waits in batches, each in one transaction, and has it answered when the batch is
// durable. The requests of one publisher to one queue are taken in the order sent, as
// long as one bridge serves it.
//
// Every request with a reply subject gets one reply: what was asked for, or an
// error as headers and no payload, see subjects.ErrorFromHeaders. Those without one
// are pushes; if they fail they are counted and logged, and so are other requests
// that nobody could receive the answer of.
//
// # Failures
//
// A reply that is lost on its way loses what it carried: a pop is at most
// once. Only if the reply could not even be handed to NATS, or if the server
// refused it for lack of rights, is the item pushed again, behind those of its
// priority. When the store leaves open whether a batch was committed, its requests
// are answered 503 with an unknown outcome, and what its pops took is put back.
// In any other error the request did nothing.
//
// NATS may be away at the start and at any later time; the bridge keeps trying to
// connect. So may the store; until it has answered for the first time the bridge does
// not subscribe to requests. /readyz says which.
//
// Bridges that serve the same subjects must share the store and the queue group.
// One that finds another in its way does not begin to serve, or stops until that one
// is gone: see [ErrSubjectsTaken].
package bridge

import (
	"context"
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
	router   *router // nil if the store has only this bridge

	line     *line
	online   atomic.Bool            // connected to NATS; asking nc would wait for attempts to connect
	nc       *nats.Conn             // set by connect, before all that uses it
	denied   atomic.Pointer[string] // why NATS refused a subscription
	closed   chan struct{}          // closed when nc is closed for good
	idle     atomic.Pointer[string] // why this bridge takes no requests; nil if it does
	stopping atomic.Bool
	unsent   atomic.Int64 // replies that came after nc was closed

	serving struct {
		mu            sync.Mutex
		subscriptions []*nats.Subscription // to requests
		ending        []*nats.Subscription // those that were ended last
		dropped       int                  // messages, by former subscriptions
	}
}

// New checks the options and opens the HTTP listener. Nothing else happens
// before Run. Errors: those of Options.Validate, and of the listener.
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
	if o.DB.Traits().Shared {
		b.router = newRouter(b)
	}
	if o.HTTPAddr != "" {
		listener, err := net.Listen("tcp", o.HTTPAddr)
		if err != nil {
			return nil, &kv.OptionError{Package: "bridge", Field: "HTTPAddr", Value: o.HTTPAddr, Want: "an address to listen on: " + err.Error()}
		}
		b.listener = listener
	}
	return b, nil
}

// Addr returns the address of the HTTP listener, "" without one.
func (b *Bridge) Addr() string {
	if b.listener == nil {
		return ""
	}
	return b.listener.Addr().String()
}

// Run serves until ctx ends, then finishes what was delivered, and returns when all its
// goroutines are gone, within the shutdown timeout unless the store takes longer to
// give up a batch. It is called once. The error is nil after an orderly end; otherwise
// it says why it could not begin or go on, or what was left undone.
func (b *Bridge) Run(ctx context.Context) error {
	// Requests that were taken outlive ctx: see shutdown.
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()

	running := running{failed: make(chan error, 2), stopTaking: func() {}} // one for each that sends
	running.dispatcher.Go(func() { b.dispatcher.Run(work) })
	running.others.Go(func() { b.outbox.run(work) })

	err := b.connect(ctx)
	web := b.startHTTP(&running) // after connect, because it looks at the connection
	if err == nil {
		taking, stop := context.WithCancel(ctx)
		running.stopTaking = stop
		running.participating.Go(func() {
			opened := func() {
				running.others.Go(func() { b.dispatcher.Maintain(work) })
			}
			if err := b.participate(taking, opened); err != nil {
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
	return b.shutdown(ctx, err, &running, web, stop)
}

// running is the goroutines of Run.
type running struct {
	dispatcher, others sync.WaitGroup
	failed             chan error // why one of them ended early
	participating      sync.WaitGroup
	stopTaking         func() // ends participating
}
