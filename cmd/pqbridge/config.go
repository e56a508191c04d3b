package main

import (
	"log/slog"
	"strings"
	"time"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/fdbpq/kv/fdbkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/pebblekv"
	"github.com/pqbridge/pqbridge/subjects"
)

// config is the configuration of the service, all of it from environment variables.
//
// Each field names its variable and, if a package below has an option with its value, that option.
// The first field of a group has the group's heading. variables.txt describes the variables:
// meaning, unit and special values, as -help prints them. Names are spelled out because envconfig
// would otherwise also read variables without the prefix PQ_; the variables of a struct's fields
// begin with its own name. Defaults are in defaultConfig, the checks in validate.
type config struct {
	NATSURL string `envconfig:"PQ_NATS_URL" option:"bridge.NATSURL" group:"NATS connection"`
	NATS    access `envconfig:"PQ_NATS"`

	LeafURL string `envconfig:"PQ_JETSTREAM_LEAF_URL" option:"bridge.JetStream.LeafURL" group:"JetStream"`
	Leaf    access `envconfig:"PQ_JETSTREAM_LEAF"`

	SubjectPrefix string `envconfig:"PQ_SUBJECT_PREFIX" group:"Subjects"`
	FIFOPrefix    string `envconfig:"PQ_FIFO_PREFIX"`
	QueueGroup    string `envconfig:"PQ_QUEUE_GROUP" option:"bridge.QueueGroup"`

	Sources string `envconfig:"PQ_SOURCES"`

	Store         string `envconfig:"PQ_STORE" group:"Store"`
	KeyPrefix     string `envconfig:"PQ_KEY_PREFIX"`
	FIFOKeyPrefix string `envconfig:"PQ_FIFO_KEY_PREFIX"`
	ValueFormat   string `envconfig:"PQ_VALUE_FORMAT"`

	DataDir              string `envconfig:"PQ_DATA_DIR" group:"Embedded store"`
	EmbeddedCacheSize    int64  `envconfig:"PQ_EMBEDDED_CACHE" option:"pebblekv.CacheSize"`
	EmbeddedMemTableSize int64  `envconfig:"PQ_EMBEDDED_MEMTABLE" option:"pebblekv.MemTableSize"`
	EmbeddedMinFreeSpace int64  `envconfig:"PQ_EMBEDDED_MIN_FREE" option:"pebblekv.MinFreeSpace"`

	FDBClusterFile        string        `envconfig:"PQ_FDB_CLUSTER_FILE" group:"FoundationDB"`
	FDBAPIVersion         int           `envconfig:"PQ_FDB_API_VERSION" option:"fdbkv.APIVersion"`
	FDBTransactionTimeout time.Duration `envconfig:"PQ_FDB_TRANSACTION_TIMEOUT" option:"fdbkv.TransactionTimeout"`

	HTTPAddr string `envconfig:"PQ_HTTP_ADDR" option:"bridge.HTTPAddr" group:"Health and metrics"`

	HTTPTimeout  time.Duration `envconfig:"PQ_HTTP_TIMEOUT" option:"bridge.HTTPTimeout"`
	MetricQueues int           `envconfig:"PQ_METRIC_QUEUES" option:"bridge.MetricQueues"`

	Lanes           int           `envconfig:"PQ_LANES" option:"bridge.Lanes" group:"Batches and limits"`
	MaxBatch        int           `envconfig:"PQ_MAX_BATCH" option:"bridge.MaxBatch"`
	MaxBatchBytes   int           `envconfig:"PQ_MAX_BATCH_BYTES" option:"bridge.MaxBatchBytes"`
	MaxPending      int           `envconfig:"PQ_MAX_PENDING" option:"bridge.MaxPending"`
	MaxPendingBytes int           `envconfig:"PQ_MAX_PENDING_BYTES" option:"bridge.MaxPendingBytes"`
	MaxWaiters      int           `envconfig:"PQ_MAX_WAITERS" option:"bridge.MaxWaiters"`
	MaxResult       int           `envconfig:"PQ_MAX_RESULT" option:"bridge.MaxResult"`
	RequestTimeout  time.Duration `envconfig:"PQ_REQUEST_TIMEOUT" option:"bridge.RequestTimeout"`
	ShutdownTimeout time.Duration `envconfig:"PQ_SHUTDOWN_TIMEOUT" option:"bridge.ShutdownTimeout"`

	LogLevel  logLevel `envconfig:"PQ_LOG_LEVEL" group:"Log"`
	LogFormat string   `envconfig:"PQ_LOG_FORMAT"`

	DevNATSHost string `envconfig:"PQ_DEV_NATS_HOST" group:"With -dev"`
	DevNATSPort int    `envconfig:"PQ_DEV_NATS_PORT"`
}

// Values of PQ_STORE.
const (
	storeEmbedded = "embedded"
	storeFDB      = "fdb"
)

// httpOff is the value of PQ_HTTP_ADDR that serves no HTTP.
const httpOff = "off"

// defaultConfig returns the configuration without any variables set. Defaults of the packages below
// stay in those packages.
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

		Lanes:           o.Lanes,
		MaxBatch:        o.MaxBatch,
		MaxBatchBytes:   o.MaxBatchBytes,
		MaxPending:      o.MaxPending,
		MaxPendingBytes: o.MaxPendingBytes,
		MaxWaiters:      o.MaxWaiters,
		MaxResult:       o.MaxResult,
		RequestTimeout:  o.RequestTimeout,
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
