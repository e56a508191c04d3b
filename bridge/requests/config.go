package requests

import (
	"log/slog"
	"time"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/outbox"
	"github.com/pqbridge/pqbridge/bridge/peers"
	"github.com/pqbridge/pqbridge/bridge/results"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
)

// Config is what a Handler needs of its bridge, which makes it in newHandler (bridge/run.go). The
// functions are called from several goroutines.
type Config struct {
	// Grammar says which subjects are requests.
	Grammar subjects.Grammar
	// DB and Keyspace are where requests that only read find the queues. All others go through
	// Dispatcher.
	DB       kv.Database
	Keyspace *fdbpq.Keyspace
	// Now is the clock by which leases end and items fall due.
	Now func() time.Time
	// RequestTimeout limits how long a request runs, without the time that it waits for items.
	RequestTimeout time.Duration

	Dispatcher *dispatch.Dispatcher
	// Outbox sends all replies.
	Outbox *outbox.Outbox
	// Results has the requests that wait for outcomes of jobs.
	Results *results.Waits
	// Peers forward requests to the owners of queues, and cancels to every bridge.
	Peers *peers.Peers
	// MaxPayload returns the largest message that the NATS server carries, in bytes.
	MaxPayload func() int64
	// MaxResult is the most bytes of the result of a job.
	MaxResult int

	// Endpoint returns the counters of an endpoint. New calls it once for each that the grammar
	// lists. Unknown counts requests that match none.
	Endpoint func(e subjects.Endpoint) Endpoint
	Unknown  Endpoint
	// Delivered counts an item sent with a lease, delivered for that many times, and Duplicate a
	// push that changed nothing.
	Delivered func(deliveries int64)
	Duplicate func()
	// Refused counts an error that ends a request if it is about a limit. The error may be nil.
	Refused func(err error)
	// Unanswered counts a request that failed without a usable reply subject, and ReplyFailed a
	// reply that NATS did not accept.
	Unanswered  func()
	ReplyFailed func(err error)

	// Logger logs what clients did to many items at once, settings and schedules. Warn logs, but
	// no flood.
	Logger *slog.Logger
	Warn   func(message string, args ...any)
}

// Endpoint counts the requests of one endpoint of service discovery.
type Endpoint interface {
	// String returns the name of the endpoint.
	String() string
	// Done counts a request that was answered, with an error or, if failed is nil, successfully.
	Done(r *dispatch.Request, failed *subjects.Error)
	// Items counts the items of a request for several.
	Items(n int)
}
