package bridge

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"runtime/debug"
	"strconv"
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
	// The bridge looks up and dials the servers itself unless they set a
	// CustomDialer; one that waits keeps the end of the bridge waiting.
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
	// Exclusive says that DB is this process's own and holds this Keyspace only:
	// Run refuses a store with other queues, or of which another process serves
	// a copy. Default false.
	Exclusive bool
	// Location says where the store is, for people: other bridges show it when they
	// serve the same subjects from another store. Default "".
	Location string

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
	// ShutdownTimeout is how long Run may take to end after its context did. It goes
	// on with what was already delivered for all of that time but the last quarter,
	// two seconds at most. What is left then is answered 503. Default 8s.
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
	orElse(&o.ShutdownTimeout, 8*time.Second)
	orElse(&o.Logger, slog.Default())
	orElse(&o.Version, moduleVersion())
	if o.Lanes == 0 {
		o.Lanes = 4
		if o.DB != nil && o.DB.Traits().Pipelines {
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

// Validate returns all problems of the options, joined, each a *kv.OptionError, with
// the defaults filled in. New calls it.
func (o Options) Validate() error {
	o = o.withDefaults()
	var problems []error
	check := func(ok bool, field string, value any, want string) {
		if !ok {
			problems = append(problems, &kv.OptionError{Package: "bridge", Field: field, Value: value, Want: want})
		}
	}
	check(validURLs(o.NATSURL), "NATSURL", redacted(o.NATSURL), "nats://host:port, or several separated by commas")
	check(o.DB != nil, "DB", o.DB, "a store")
	check(o.Keyspace != nil, "Keyspace", o.Keyspace, "a keyspace")
	check(o.Grammar != subjects.Grammar{}, "Grammar", "empty", "a grammar")
	check(subjects.ValidateQueueName(o.QueueGroup) == nil, "QueueGroup", strconv.Quote(o.QueueGroup), "1 to 128 letters, digits, '-' and '_'")
	check(o.HTTPTimeout > 0, "HTTPTimeout", o.HTTPTimeout, "more than 0")
	check(o.MetricQueues >= -1, "MetricQueues", o.MetricQueues, "-1 or more")
	check(o.Lanes >= 1 && o.Lanes <= 1024, "Lanes", o.Lanes, "1 to 1024")
	check(o.MaxBatch >= 1, "MaxBatch", o.MaxBatch, "1 or more")
	check(o.MaxBatchBytes >= 1 && o.MaxBatchBytes <= maxBatchBytes, "MaxBatchBytes", o.MaxBatchBytes, fmt.Sprintf("1 to %d", maxBatchBytes))
	check(o.MaxPending >= 1, "MaxPending", o.MaxPending, "1 or more")
	check(o.MaxPendingBytes >= 1, "MaxPendingBytes", o.MaxPendingBytes, "1 or more")
	check(o.RequestTimeout > 0, "RequestTimeout", o.RequestTimeout, "more than 0")
	check(o.ShutdownTimeout > 0, "ShutdownTimeout", o.ShutdownTimeout, "more than 0")
	check(semver.MatchString(o.Version), "Version", strconv.Quote(o.Version), "a semantic version such as 1.2.3")
	return errors.Join(problems...)
}

// validURLs reports whether the NATS client can read the list of URLs. Its own error
// would show the password in one that it cannot read.
func validURLs(list string) bool {
	found := false
	for text := range strings.SplitSeq(list, ",") {
		text = strings.TrimSpace(text)
		if text == "" {
			continue
		}
		if !strings.Contains(text, "://") {
			text = "nats://" + text
		}
		u, err := url.Parse(text)
		if err != nil || u.Hostname() == "" {
			return false
		}
		found = true
	}
	return found
}

// credentials are what a list of URLs may have before the hosts. A password that is not
// escaped may contain anything, so the match goes on to the last '@'.
var credentials = regexp.MustCompile(`(?s)^.*@`)

// redacted returns a list of URLs as it may be shown, in quotes.
func redacted(list string) string {
	return strconv.Quote(credentials.ReplaceAllString(list, "xxxxx@"))
}
