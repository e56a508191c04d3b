package main

import (
	"log/slog"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/fdbpq/kv/fdbkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/pebblekv"
	"github.com/pqbridge/pqbridge/subjects"
)

// config is the configuration of the service, all of it from environment variables.
//
// Each field names its variable and describes it: meaning, unit and special values, as
// -help prints them, and the option of a package below that has its value, if there is one. The
// first field of a group has the group's heading. Variables are spelled out because envconfig would
// otherwise also read them without the prefix PQ_; those of a struct's fields begin with its own.
// Defaults are in defaultConfig, the checks in validate.
type config struct {
	NATSURL string `envconfig:"PQ_NATS_URL" option:"bridge.NATSURL" group:"NATS connection" desc:"NATS servers of one cluster, separated by commas"`
	NATS    access `envconfig:"PQ_NATS"`

	LeafURL string `envconfig:"PQ_JETSTREAM_LEAF_URL" option:"bridge.JetStream.LeafURL" group:"JetStream" desc:"leaf node ports of the NATS servers, as nats-leaf://host:7422, separated by commas: lets programs written for JetStream's pull consumers take items; if unset, off, or with -dev the port of its server; without a login or TLS files of its own, it has those of the client connection"`
	Leaf    access `envconfig:"PQ_JETSTREAM_LEAF"`

	SubjectPrefix string `envconfig:"PQ_SUBJECT_PREFIX" group:"Subjects" desc:"first tokens of the subjects of priority queues"`
	FIFOPrefix    string `envconfig:"PQ_FIFO_PREFIX" desc:"first tokens of the subjects of FIFO queues"`
	QueueGroup    string `envconfig:"PQ_QUEUE_GROUP" option:"bridge.QueueGroup" desc:"NATS queue group shared by all bridges of one store"`

	Sources string `envconfig:"PQ_SOURCES" desc:"path of a JSON file with streams that queues draw from, as {\"pq.orders\":{\"stream\":\"ORDERS\"}}; set at the start"`

	Store         string `envconfig:"PQ_STORE" group:"Store" desc:"where the queues are: embedded (files in PQ_DATA_DIR) or fdb (a FoundationDB cluster)"`
	KeyPrefix     string `envconfig:"PQ_KEY_PREFIX" desc:"first element of priority queue keys; fixed at the first start"`
	FIFOKeyPrefix string `envconfig:"PQ_FIFO_KEY_PREFIX" desc:"first element of FIFO queue keys; fixed at the first start; must differ from PQ_KEY_PREFIX, even with -queues, -x or -store appended to either"`
	ValueFormat   string `envconfig:"PQ_VALUE_FORMAT" desc:"how values are stored: raw (bytes, as Python recipes do) or tuple (packed, as Java recipes do); fixed at the first start"`

	DataDir              string `envconfig:"PQ_DATA_DIR" group:"Embedded store" desc:"folder of the embedded store, and with it of the streams of -dev; created if missing; used by one process at a time"`
	EmbeddedCacheSize    int64  `envconfig:"PQ_EMBEDDED_CACHE" option:"pebblekv.CacheSize" desc:"bytes of the embedded store's files to cache in memory"`
	EmbeddedMemTableSize int64  `envconfig:"PQ_EMBEDDED_MEMTABLE" option:"pebblekv.MemTableSize" desc:"bytes the embedded store collects in memory before it writes a table, 1048576 to 1073741824"`
	EmbeddedMinFreeSpace int64  `envconfig:"PQ_EMBEDDED_MIN_FREE" option:"pebblekv.MinFreeSpace" desc:"bytes of disk to keep free; with less free, pushes get 503; -1 keeps none"`

	FDBClusterFile        string        `envconfig:"PQ_FDB_CLUSTER_FILE" group:"FoundationDB" desc:"path of the FoundationDB cluster file, writable; if unset, $FDB_CLUSTER_FILE, ./fdb.cluster or /etc/foundationdb/fdb.cluster"`
	FDBAPIVersion         int           `envconfig:"PQ_FDB_API_VERSION" option:"fdbkv.APIVersion" desc:"FoundationDB API version, 620 to 730"`
	FDBTransactionTimeout time.Duration `envconfig:"PQ_FDB_TRANSACTION_TIMEOUT" option:"fdbkv.TransactionTimeout" desc:"time limit of one FoundationDB transaction"`

	HTTPAddr     string        `envconfig:"PQ_HTTP_ADDR" option:"bridge.HTTPAddr" group:"Health and metrics" desc:"host:port that serves /healthz, /readyz, /metrics and /queues; off serves none"`
	HTTPTimeout  time.Duration `envconfig:"PQ_HTTP_TIMEOUT" option:"bridge.HTTPTimeout" desc:"time limit of a /readyz check, and of reading the queue lengths for /metrics"`
	MetricQueues int           `envconfig:"PQ_METRIC_QUEUES" option:"bridge.MetricQueues" desc:"how many queues of each kind /metrics shows, longest first, of those that the bridge owns; -1 shows none"`

	dispatch.Limits
	ShutdownTimeout time.Duration `envconfig:"PQ_SHUTDOWN_TIMEOUT" option:"bridge.ShutdownTimeout" desc:"time limit of a shutdown, which finishes the requests that have arrived; keep it below the 10s that docker stop waits"`

	LogLevel  logLevel `envconfig:"PQ_LOG_LEVEL" group:"Log" desc:"lowest level to log: debug, info, warn or error"`
	LogFormat string   `envconfig:"PQ_LOG_FORMAT" desc:"text or json"`

	DevNATSHost string `envconfig:"PQ_DEV_NATS_HOST" group:"With -dev" desc:"IP address on which the NATS server of -dev listens; 0.0.0.0 lets in everybody who can reach this machine"`
	DevNATSPort int    `envconfig:"PQ_DEV_NATS_PORT" desc:"port of that NATS server; 0 picks a free one"`
}

// Values of PQ_STORE.
const (
	storeEmbedded = "embedded"
	storeFDB      = "fdb"
)

// httpOff is the value of PQ_HTTP_ADDR that serves no HTTP.
const httpOff = "off"

// defaultConfig returns the configuration without any variables set. Defaults of the
// packages below stay in those packages.
func defaultConfig() *config {
	o := bridge.Options{}.WithDefaults()
	o.Lanes = 0 // which depends on the store
	return &config{
		NATSURL: o.NATSURL,
		NATS:    access{prefix: natsPrefix},
		Leaf:    access{prefix: leafPrefix},

		SubjectPrefix: subjects.DefaultPriorityPrefix,
		FIFOPrefix:    subjects.DefaultFIFOPrefix,
		QueueGroup:    o.QueueGroup,

		Store: storeEmbedded,
		// The same names as in subjects make it easy to find a queue's keys.
		KeyPrefix:     subjects.DefaultPriorityPrefix,
		FIFOKeyPrefix: subjects.DefaultFIFOPrefix,
		ValueFormat:   "raw",

		DataDir:              "data",
		EmbeddedCacheSize:    pebblekv.DefaultCacheSize,
		EmbeddedMemTableSize: pebblekv.DefaultMemTableSize,
		EmbeddedMinFreeSpace: pebblekv.DefaultMinFreeSpace,

		FDBAPIVersion:         fdbkv.DefaultAPIVersion,
		FDBTransactionTimeout: fdbkv.DefaultTransactionTimeout,

		HTTPAddr:     "127.0.0.1:8422",
		HTTPTimeout:  o.HTTPTimeout,
		MetricQueues: o.MetricQueues,

		Limits:          o.Limits,
		ShutdownTimeout: o.ShutdownTimeout,

		LogFormat: "text",

		DevNATSHost: "127.0.0.1",
		DevNATSPort: 4222,
	}
}

// logLevel is a slog.Level that prints the way PQ_LOG_LEVEL is written.
type logLevel slog.Level

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *logLevel) UnmarshalText(text []byte) error { return (*slog.Level)(l).UnmarshalText(text) }

// String implements fmt.Stringer.
func (l logLevel) String() string { return strings.ToLower(slog.Level(l).String()) }
