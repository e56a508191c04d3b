package bridge

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
)

// Options configure a Bridge. DB, Keyspace and Grammar are required; the zero
// value of everything else means its default.
type Options struct {
	// NATSURL is the address of a NATS server, or of several of one cluster
	// separated by commas. Default nats://127.0.0.1:4222.
	NATSURL string
	// NATSOptions are applied to the connection after the bridge's own:
	// credentials, TLS, a name. They must not set the handlers of the
	// connection (error, disconnect, reconnect, close), which the bridge needs.
	NATSOptions []nats.Option
	// QueueGroup is the NATS queue group that all bridges of one store share, so
	// that each request goes to one of them. Default "pq".
	QueueGroup string

	// DB is the store. The bridge does not close it.
	DB kv.Database
	// Keyspace says where in the store the queues are.
	Keyspace *fdbpq.Keyspace
	// Grammar says which subjects are requests.
	Grammar subjects.Grammar

	// HTTPAddr is where /healthz, /readyz and /metrics are served, host:port;
	// port 0 takes a free one, see Bridge.Addr. Empty means no HTTP.
	HTTPAddr string
	// HTTPTimeout is how long one check of /readyz, or the reading of the
	// queue lengths for /metrics, may take. Default 2s.
	HTTPTimeout time.Duration
	// MetricQueues is the most queues of each kind whose length /metrics
	// shows, the longest; -1 shows none. Default 1000.
	MetricQueues int

	// Lanes is the number of batches that are put together independently of
	// each other. A queue always belongs to the same lane. Engines with one
	// writer at a time gain nothing from more than one. Default 1 if the engine
	// pipelines (see kv.Database), else 4.
	Lanes int
	// MaxBatch is the most requests that go into one transaction. Default 1024.
	MaxBatch int
	// MaxBatchBytes is about the most bytes that the requests of one batch push,
	// and that its pops and peeks return. One request alone may exceed it. It
	// must leave room below the 10,000,000 bytes of a transaction. Default 4 MiB.
	MaxBatchBytes int
	// MaxPending is the most requests that wait or run at one time. Those
	// beyond are answered 429 at once. Default 16384.
	MaxPending int
	// MaxPendingBytes is the same in bytes of payloads and headers; the request
	// that passes it is still taken. Default 64 MiB.
	MaxPendingBytes int

	// RequestTimeout is how long a request may wait for its batch; one that
	// waited longer is answered 503 without being run. A batch must be done
	// when the oldest of its requests reaches this age, but is given at least
	// half of it. Default 5s.
	RequestTimeout time.Duration
	// ShutdownTimeout is how long Run goes on with what was already delivered
	// after its context ended. What is left then is answered 503. Default 10s.
	ShutdownTimeout time.Duration

	// Logger receives the log. Default slog.Default().
	Logger *slog.Logger
	// Version is what service discovery shows; it must be a semantic version.
	// Default the version of the module in the binary, or 0.0.0.
	Version string
}

const (
	defaultMetricQueues = 1000
	// maxBatchBytes leaves a fifth of the largest transaction for keys.
	maxBatchBytes = kv.MaxTransactionSize / 5 * 4
)

func (o Options) withDefaults() Options {
	orElse(&o.NATSURL, nats.DefaultURL)
	orElse(&o.QueueGroup, "pq")
	orElse(&o.HTTPTimeout, 2*time.Second)
	orElse(&o.MetricQueues, defaultMetricQueues)
	orElse(&o.MaxBatch, 1024)
	orElse(&o.MaxBatchBytes, 4<<20)
	orElse(&o.MaxPending, 16384)
	orElse(&o.MaxPendingBytes, 64<<20)
	orElse(&o.RequestTimeout, 5*time.Second)
	orElse(&o.ShutdownTimeout, 10*time.Second)
	orElse(&o.Logger, slog.Default())
	orElse(&o.Version, moduleVersion())
	if o.Lanes == 0 {
		o.Lanes = 4
		if o.DB != nil && o.DB.Pipelines() {
			o.Lanes = 1
		}
	}
	return o
}

func orElse[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func moduleVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && strings.HasPrefix(info.Main.Version, "v") {
		return strings.TrimPrefix(info.Main.Version, "v")
	}
	return "0.0.0"
}

// Validate returns all problems of the options, joined, with the defaults
// filled in. New calls it.
func (o Options) Validate() error {
	o = o.withDefaults()
	var problems []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf("bridge: "+format, args...))
		}
	}
	check(o.DB != nil, "no store: set DB")
	check(o.Keyspace != nil, "no keyspace: set Keyspace")
	check(o.Grammar != subjects.Grammar{}, "no grammar: set Grammar")
	check(subjects.ValidateQueueName(o.QueueGroup) == nil, "queue group %q: want letters, digits, '-' and '_'", o.QueueGroup)
	check(o.HTTPTimeout > 0, "HTTP timeout %v: want more than 0", o.HTTPTimeout)
	check(o.MetricQueues >= -1, "metric queues %d: want -1 or more", o.MetricQueues)
	check(o.Lanes >= 1 && o.Lanes <= 1024, "lanes %d: want 1 to 1024", o.Lanes)
	check(o.MaxBatch >= 1, "max batch %d: want 1 or more", o.MaxBatch)
	check(o.MaxBatchBytes >= 1 && o.MaxBatchBytes <= maxBatchBytes, "max batch bytes %d: want 1 to %d", o.MaxBatchBytes, maxBatchBytes)
	check(o.MaxPending >= 1, "max pending %d: want 1 or more", o.MaxPending)
	check(o.MaxPendingBytes >= 1, "max pending bytes %d: want 1 or more", o.MaxPendingBytes)
	check(o.RequestTimeout > 0, "request timeout %v: want more than 0", o.RequestTimeout)
	check(o.ShutdownTimeout > 0, "shutdown timeout %v: want more than 0", o.ShutdownTimeout)
	check(semver.MatchString(o.Version), "version %q: want a semantic version such as 1.2.3", o.Version)
	return errors.Join(problems...)
}
