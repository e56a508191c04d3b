package bridge

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/subjects"
)

// Defaults of Options. The service takes its own from here.
const (
	DefaultNATSURL         = nats.DefaultURL // nats://127.0.0.1:4222
	DefaultQueueGroup      = "pq"
	DefaultHTTPTimeout     = 2 * time.Second
	DefaultMetricQueues    = 1000
	DefaultMaxBatch        = 1024
	DefaultMaxBatchBytes   = 4 << 20
	DefaultMaxPending      = 16384
	DefaultMaxPendingBytes = 64 << 20
	DefaultMaxWaiters      = 100_000
	DefaultMaxResult       = 64 << 10
	DefaultRequestTimeout  = 5 * time.Second
	DefaultShutdownTimeout = 8 * time.Second

	// DefaultLanes is for engines that do not pipeline; the others get one lane.
	DefaultLanes = 4
)

// clientName is the name of the bridge's connections.
const clientName = "pqbridge"

// Options configure a Bridge. DB, Keyspace and Grammar are required; everywhere
// else the zero value means the default.
type Options struct {
	// NATSURL is the URL of a NATS server, or of several servers of one cluster
	// separated by commas. Default DefaultNATSURL.
	NATSURL string
	// NATSOptions are applied to the connection after the bridge's own: credentials,
	// TLS, a name. The bridge overrides the connection's handlers (error, disconnect,
	// reconnect, close), CustomReconnectDelay, NoEcho and NoCallbacksAfterClientClose.
	// It resolves and dials the servers unless a CustomDialer is set; shutdown waits for
	// one that blocks.
	NATSOptions []nats.Option
	// QueueGroup is the NATS queue group of all bridges that share one store, so
	// that each request goes to one of them. Default DefaultQueueGroup.
	QueueGroup string

	// DB is the store. The bridge does not close it.
	DB kv.Database
	// Keyspace says where in the store the queues are.
	Keyspace *fdbpq.Keyspace
	// Grammar says which subjects are requests.
	Grammar subjects.Grammar
	// Now is the clock by which leases end and items fall due. Default time.Now.
	Now func() time.Time
	// Exclusive promises that only this process uses DB, and only for this Keyspace. Run then
	// refuses a store that holds other queues, or whose copy another process serves.
	Exclusive bool
	// Location describes for people where the store is. Other bridges show it if they
	// serve the same subjects from another store.
	Location string

	// Sources has the sources that queues get at the start, as sources.Parse returns them. Default
	// none.
	Sources map[fdbpq.QueueName]string

	// Engine is the kind of the store, such as "embedded", for the statistics in service discovery.
	Engine string
	// Host is the name of this machine, likewise.
	Host string

	// HTTPAddr is the host:port that serves /healthz, /readyz, /metrics and /queues.
	// Port 0 picks a free one, see Bridge.Addr. Empty disables HTTP.
	HTTPAddr string
	// HTTPTimeout limits one check of /readyz, and reading the queue lengths for
	// /metrics; 1ms to 24h. Default DefaultHTTPTimeout.
	HTTPTimeout time.Duration
	// MetricQueues limits how many queues of each kind /metrics shows: the longest that the bridge
	// owns, at most 1,000,000; -1 shows none. Default DefaultMetricQueues. As many queues have
	// counters of their own, but at most subjects.MaxStatsQueues of both kinds together.
	MetricQueues int
	// Space, unless nil, is shown by /metrics, with Reserve, the bytes that the store keeps free.
	Space   Space
	Reserve int64

	// Limits bound what the bridge does at a time. The defaults are the constants above. Requests
	// over a limit get 429, and requests that take too long get 503.
	dispatch.Limits
	// MaxResult is the most bytes of the result of a job, 1 to 1 MiB, and less if a message of NATS
	// has no room for it. Default DefaultMaxResult.
	MaxResult int
	// ShutdownTimeout is how long Run may take to return once its context has ended, at
	// most 24h. Run works on requests that have already arrived until the last quarter of
	// that time, or the last two seconds if that is less; the rest get 503. Default
	// DefaultShutdownTimeout.
	ShutdownTimeout time.Duration

	// JetStream says how programs of JetStream are served. Default not at all.
	JetStream JetStreamOptions

	// Logger receives the log. Default slog.Default().
	Logger *slog.Logger
	// Version is the semantic version that service discovery shows. Default the
	// version of the main module in the binary, or 0.0.0-devel.
	Version string
}

// JetStreamOptions say how programs that were written for JetStream's pull consumers are served,
// see package bridge/jetstream. Without LeafURL they are not.
type JetStreamOptions struct {
	// LeafURL is the leaf node port of a NATS server in the account of those programs, or a list of
	// ports of one cluster, separated by commas.
	LeafURL string
	// Login is how to log in there, if not as the URL says.
	Login leaf.Login
	// TLS demands TLS, as a URL with tls:// does. It is called at each connect. Default nil: TLS is
	// used if the server wants it.
	TLS func() (*tls.Config, error)
	// Memory is about how many bytes the connection takes at most; 0 is leaf.MostMemory.
	Memory int
}

// leafConfig is what package leaf needs of the options.
func (o *JetStreamOptions) leafConfig() leaf.Config {
	c := leaf.Config{Name: clientName, Login: o.Login, TLS: o.TLS, Memory: o.Memory}
	for url := range strings.SplitSeq(o.LeafURL, ",") {
		if url = strings.TrimSpace(url); url != "" {
			c.URLs = append(c.URLs, url)
		}
	}
	return c
}

// bounded is an option that is a number, with its default and bounds. Most bounds only refuse
// values that must be mistakes.
type bounded struct {
	field       string
	value       *int
	normal      int
	least, most int
}

// optionError returns the error of an option.
func optionError(field string, value any, want string) error {
	return &kv.OptionError{Package: "bridge", Field: field, Value: value, Want: want}
}

func (o *Options) numbers() []bounded {
	lanes := DefaultLanes
	if o.DB != nil && o.DB.Traits().Pipelines {
		lanes = 1
	}

	return []bounded{
		{"MetricQueues", &o.MetricQueues, DefaultMetricQueues, -1, 1_000_000},
		{"Lanes", &o.Lanes, lanes, 1, 1024},
		// With more requests the keys alone could exceed the largest transaction.
		{"MaxBatch", &o.MaxBatch, DefaultMaxBatch, 1, 1 << 16},
		// Leaves a fifth of the largest transaction for keys.
		{"MaxBatchBytes", &o.MaxBatchBytes, DefaultMaxBatchBytes, 1, kv.MaxTransactionSize / 5 * 4},
		{"LeaseRoom", &o.LeaseRoom, fdbpq.MaxMessageSize, 1, fdbpq.MaxMessageSize},
		{"MaxPending", &o.MaxPending, DefaultMaxPending, 1, 1 << 30},
		{"MaxPendingBytes", &o.MaxPendingBytes, DefaultMaxPendingBytes, 1, min(1<<40, math.MaxInt)},
		{"MaxWaiters", &o.MaxWaiters, DefaultMaxWaiters, 1, 1 << 30},
		{"MaxResult", &o.MaxResult, DefaultMaxResult, 1, 1 << 20},
	}
}

// WithDefaults returns the options with the defaults filled in.
func (o Options) WithDefaults() Options {
	for _, n := range o.numbers() {
		*n.value = cmp.Or(*n.value, n.normal)
	}

	o.NATSURL = cmp.Or(o.NATSURL, DefaultNATSURL)
	o.QueueGroup = cmp.Or(o.QueueGroup, DefaultQueueGroup)
	o.HTTPTimeout = cmp.Or(o.HTTPTimeout, DefaultHTTPTimeout)
	o.RequestTimeout = cmp.Or(o.RequestTimeout, DefaultRequestTimeout)
	o.ShutdownTimeout = cmp.Or(o.ShutdownTimeout, DefaultShutdownTimeout)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	o.Version = cmp.Or(o.Version, moduleVersion())
	if o.Now == nil {
		o.Now = time.Now
	}

	return o
}

// maxUnconfirmed returns how many bytes of popped items may be in memory, because nobody has
// confirmed that they were received or because they go back, before pops are set aside. It shrinks
// with MaxPendingBytes, which a program with little memory lowers.
func (o Options) maxUnconfirmed() int { return min(16<<20, max(o.MaxPendingBytes/4, 1)) }

func moduleVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && strings.HasPrefix(info.Main.Version, "v") {
		return strings.TrimPrefix(info.Main.Version, "v")
	}
	return "0.0.0-devel" // as buildinfo.Unreleased of the programs
}

// Validate returns all problems of the options, joined, each a *kv.OptionError, after filling in
// the defaults. New calls it.
func (o Options) Validate() error {
	o = o.WithDefaults()
	var problems []error
	check := func(ok bool, field string, value any, want string) {
		if !ok {
			problems = append(problems, optionError(field, value, want))
		}
	}

	timeout := func(field string, value, least time.Duration, want string) {
		check(value >= least && value <= 24*time.Hour, field, value, want)
	}

	check(validURLs(o.NATSURL), "NATSURL", redacted(o.NATSURL),
		"nats://host:port, or several separated by commas")
	check(o.DB != nil, "DB", o.DB, "a store")
	check(o.Keyspace != nil, "Keyspace", o.Keyspace, "a keyspace")
	check(o.Grammar != subjects.Grammar{}, "Grammar", "empty", "a grammar")
	check(subjects.ValidateQueueName(o.QueueGroup) == nil,
		"QueueGroup", strconv.Quote(o.QueueGroup), "1 to 128 letters, digits, '-' and '_'")

	if o.JetStream.LeafURL != "" {
		_, err := leaf.New(o.JetStream.leafConfig())
		check(err == nil, "JetStream.LeafURL", redacted(o.JetStream.LeafURL),
			"nats-leaf://host:7422, nats://host:7422 or tls://host:7422, or several separated by "+
				"commas")
		prefixes := o.Grammar.Prefix(subjects.Priority) + " and " + o.Grammar.Prefix(subjects.FIFO)
		check(!strings.Contains(prefixes, "."), "Grammar", prefixes,
			"prefixes without dots: with JetStream.LeafURL they name JetStream domains")
	}

	for _, n := range o.numbers() {
		want := fmt.Sprintf("%d to %d", n.least, n.most)
		if n.value == &o.Lanes {
			want += ", or 0 for the default"
		}

		check(*n.value >= n.least && *n.value <= n.most, n.field, *n.value, want)
	}

	timeout("HTTPTimeout", o.HTTPTimeout, time.Millisecond, "1ms to 24h")
	timeout("RequestTimeout", o.RequestTimeout, time.Millisecond, "1ms to 24h")
	timeout("ShutdownTimeout", o.ShutdownTimeout, 1, "more than 0, at most 24h")
	return errors.Join(problems...)
}

// validURLs reports whether the NATS client can parse the list of URLs. The client's
// own parse error would show a password in them.
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
		if err != nil || u.Hostname() == "" || !validPort(u.Port()) {
			return false
		}
		found = true
	}

	return found
}

// validPort reports whether text is a port, or empty for the default.
func validPort(text string) bool {
	port, err := strconv.ParseUint(text, 10, 16)
	return text == "" || err == nil && port > 0
}

// redacted returns a list of URLs in quotes, without users and passwords. An unescaped password may
// contain anything, so everything up to the last '@' goes.
func redacted(list string) string {
	if at := strings.LastIndex(list, "@"); at >= 0 {
		list = "xxxxx" + list[at:]
	}
	return strconv.Quote(list)
}
