package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/kelseyhightower/envconfig"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/fdbkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/pebblekv"
	"github.com/pqbridge/pqbridge/subjects"
)

// Values of PQ_STORE.
const (
	storeEmbedded = "embedded"
	storeFDB      = "fdb"
)

// config is the configuration of the service, all of it from environment
// variables. The desc of each field says what it means and its unit; -help
// prints them. The names of the variables are given in full because envconfig
// would otherwise also read them without their prefix. A field that goes to the
// Options of a package is called as there, after that package's optionPrefix.
type config struct {
	NATSURL      string `envconfig:"PQ_NATS_URL" default:"nats://127.0.0.1:4222" desc:"NATS servers of one cluster, separated by commas"`
	NATSCreds    string `envconfig:"PQ_NATS_CREDS" desc:"path of a NATS credentials file"`
	NATSNkey     string `envconfig:"PQ_NATS_NKEY" desc:"path of a file with an nkey seed"`
	NATSUser     string `envconfig:"PQ_NATS_USER" desc:"NATS user name"`
	NATSPassword string `envconfig:"PQ_NATS_PASSWORD" desc:"NATS password"`
	NATSToken    string `envconfig:"PQ_NATS_TOKEN" desc:"NATS token"`
	NATSTLSCA    string `envconfig:"PQ_NATS_TLS_CA" desc:"path of the certificate authorities to trust, PEM; without it those of the system"`
	NATSTLSCert  string `envconfig:"PQ_NATS_TLS_CERT" desc:"path of the TLS client certificate, PEM"`
	NATSTLSKey   string `envconfig:"PQ_NATS_TLS_KEY" desc:"path of the key of the TLS client certificate, PEM"`

	SubjectPrefix string `envconfig:"PQ_SUBJECT_PREFIX" default:"pq" desc:"first tokens of the subjects of priority queues"`
	FIFOPrefix    string `envconfig:"PQ_FIFO_PREFIX" default:"q" desc:"first tokens of the subjects of FIFO queues"`
	QueueGroup    string `envconfig:"PQ_QUEUE_GROUP" default:"pq" desc:"NATS queue group that all bridges of one store share"`

	Store         string `envconfig:"PQ_STORE" default:"embedded" desc:"where the queues are kept: embedded (in PQ_DATA_DIR) or fdb (a FoundationDB cluster)"`
	KeyPrefix     string `envconfig:"PQ_KEY_PREFIX" default:"pq" desc:"first element of the keys of priority queues in the store; fixed at the first start"`
	FIFOKeyPrefix string `envconfig:"PQ_FIFO_KEY_PREFIX" default:"q" desc:"first element of the keys of FIFO queues in the store; must differ from PQ_KEY_PREFIX, even with -queues, -x or -store appended to either; fixed at the first start"`
	ValueFormat   string `envconfig:"PQ_VALUE_FORMAT" default:"raw" desc:"how values are stored: raw (bytes, as recipes in Python do) or tuple (packed, as recipes in Java do); fixed at the first start"`

	DataDir              string `envconfig:"PQ_DATA_DIR" default:"data" desc:"folder of the embedded store; made if it is not there; used by one process at a time"`
	EmbeddedCacheSize    int64  `envconfig:"PQ_EMBEDDED_CACHE" default:"33554432" desc:"bytes of the embedded store's files to cache in memory"`
	EmbeddedMemTableSize int64  `envconfig:"PQ_EMBEDDED_MEMTABLE" default:"16777216" desc:"bytes the embedded store gathers in memory before it writes a table, 1048576 to 1073741824"`
	EmbeddedMinFreeSpace int64  `envconfig:"PQ_EMBEDDED_MIN_FREE" default:"268435456" desc:"bytes of the disk to keep free: below that pushes are refused with 503; -1 keeps none"`

	FDBClusterFile        string        `envconfig:"PQ_FDB_CLUSTER_FILE" desc:"path of the FoundationDB cluster file, writable; without it the client library's default"`
	FDBAPIVersion         int           `envconfig:"PQ_FDB_API_VERSION" default:"730" desc:"FoundationDB API version"`
	FDBTransactionTimeout time.Duration `envconfig:"PQ_FDB_TRANSACTION_TIMEOUT" default:"10s" desc:"longest life of one FoundationDB transaction"`

	HTTPAddr     string        `envconfig:"PQ_HTTP_ADDR" default:"127.0.0.1:8422" desc:"host:port of /healthz, /readyz and /metrics; off serves none"`
	HTTPTimeout  time.Duration `envconfig:"PQ_HTTP_TIMEOUT" default:"2s" desc:"longest time for one check of /readyz and for the queue lengths of /metrics"`
	MetricQueues int           `envconfig:"PQ_METRIC_QUEUES" default:"1000" desc:"number of queues of each kind whose length /metrics shows, the longest; -1 shows none"`

	Lanes           int           `envconfig:"PQ_LANES" default:"0" desc:"number of batches put together at a time; 0 takes 1 for the embedded store and 4 for fdb"`
	MaxBatch        int           `envconfig:"PQ_MAX_BATCH" default:"1024" desc:"most requests in one transaction"`
	MaxBatchBytes   int           `envconfig:"PQ_MAX_BATCH_BYTES" default:"4194304" desc:"bytes of payload in one transaction, about; a single message may have more"`
	MaxPending      int           `envconfig:"PQ_MAX_PENDING" default:"16384" desc:"most requests waiting or running; those beyond get 429"`
	MaxPendingBytes int           `envconfig:"PQ_MAX_PENDING_BYTES" default:"67108864" desc:"most bytes of requests waiting or running; those beyond get 429"`
	RequestTimeout  time.Duration `envconfig:"PQ_REQUEST_TIMEOUT" default:"5s" desc:"longest wait of a request for its transaction; after it the reply is 503"`
	ShutdownTimeout time.Duration `envconfig:"PQ_SHUTDOWN_TIMEOUT" default:"8s" desc:"longest time for the whole end after a SIGTERM or SIGINT, in which what has arrived is finished; less than the 10s that docker stop waits"`

	LogLevel  slog.Level `envconfig:"PQ_LOG_LEVEL" default:"info" desc:"least level to log: debug, info, warn or error"`
	LogFormat string     `envconfig:"PQ_LOG_FORMAT" default:"text" desc:"text or json"`

	DevNATSPort int `envconfig:"PQ_DEV_NATS_PORT" default:"4222" desc:"port of the NATS server that -dev starts on 127.0.0.1; 0 takes a free one"`
}

// variables returns the fields of the configuration, in order.
func variables() []reflect.StructField {
	return reflect.VisibleFields(reflect.TypeFor[config]())
}

// variable returns the name of the environment variable of a field.
func variable(f reflect.StructField) string { return f.Tag.Get("envconfig") }

// loadConfig reads the configuration from the environment. The error joins all
// problems: values that cannot be read, variables that do not exist, and what
// validate finds.
func loadConfig(dev bool) (*config, error) {
	c := &config{}
	problems := []error{unknownVariables(os.Environ())}
	for i, field := range variables() {
		target := reflect.ValueOf(c).Elem().Field(i)
		if isServiceLink(variable(field), os.Getenv(variable(field))) {
			field = unset(field)
		}
		if err := readField(field, target); err != nil {
			problems = append(problems, err)
			// The others are checked with the default in its place.
			problems = append(problems, readField(unset(field), target))
		}
	}
	problems = append(problems, c.validate(), c.validateDev(dev))
	return c, errors.Join(problems...)
}

// readField reads one variable. It goes through a struct of that field alone,
// because envconfig stops at the first variable that it cannot read.
func readField(field reflect.StructField, target reflect.Value) error {
	alone := reflect.New(reflect.StructOf([]reflect.StructField{{
		Name: field.Name, Type: field.Type, Tag: field.Tag,
	}}))
	err := envconfig.Process("", alone.Interface())
	var wrong *envconfig.ParseError
	if errors.As(err, &wrong) {
		return fmt.Errorf("%s is %q: want %s", wrong.KeyName, wrong.Value, wanted(field.Type))
	}
	if err != nil {
		return err
	}
	target.Set(alone.Elem().Field(0))
	return nil
}

// wanted says how the values of a variable are written. Any text is a string.
func wanted(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[time.Duration]():
		return "a time such as 500ms, 5s or 1m"
	case reflect.TypeFor[slog.Level]():
		return "debug, info, warn or error"
	default:
		return fmt.Sprintf("a whole number of at most %d bits", t.Bits())
	}
}

// unset returns the field as if its variable were not set.
func unset(field reflect.StructField) reflect.StructField {
	name := variable(field)
	field.Tag = reflect.StructTag(strings.Replace(string(field.Tag), name, testVariables+name, 1))
	return field
}

// testVariables is what the variables begin with that only this project's tests read.
const testVariables = "PQ_TEST_"

// unknownVariables returns an error for each PQ_ variable that does not exist:
// it is most likely misspelt, and what it was to change would stay as it is.
func unknownVariables(environ []string) error {
	var problems []error
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, "PQ_") || strings.HasPrefix(name, testVariables) || isServiceLink(name, value) {
			continue
		}
		if nearest := nearestVariable(name); nearest != name {
			problems = append(problems, fmt.Errorf("%s is not a variable of pqbridge: did you mean %s?", name, nearest))
		}
	}
	return errors.Join(problems...)
}

func nearestVariable(name string) string {
	var nearest string
	least := -1
	for _, field := range variables() {
		if d := distance(name, variable(field)); least < 0 || d < least {
			nearest, least = variable(field), d
		}
	}
	return nearest
}

// distance is the least number of bytes to insert, remove or replace to turn a
// into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// validate returns all that is wrong with the values, joined.
func (c *config) validate() error {
	var problems []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	oneOf := func(name, value, a, b string) {
		check(value == a || value == b, "%s is %q: want %s or %s", name, value, a, b)
	}
	oneOf("PQ_STORE", c.Store, storeEmbedded, storeFDB)
	oneOf("PQ_VALUE_FORMAT", c.ValueFormat, "raw", "tuple")
	oneOf("PQ_LOG_FORMAT", c.LogFormat, "text", "json")
	check(c.NATSURL != "", "PQ_NATS_URL is empty: want the URL of a NATS server")
	check((c.NATSTLSCert == "") == (c.NATSTLSKey == ""), "PQ_NATS_TLS_CERT is %q and PQ_NATS_TLS_KEY %q: want both or none", c.NATSTLSCert, c.NATSTLSKey)
	check(c.NATSPassword == "" || c.NATSUser != "", "PQ_NATS_PASSWORD is set and PQ_NATS_USER is empty: want both or none")
	check(c.DataDir != "" || c.Store != storeEmbedded, "PQ_DATA_DIR is empty: want the folder of the embedded store")
	_, port, err := net.SplitHostPort(c.HTTPAddr)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	check(err == nil || c.HTTPAddr == httpOff, "PQ_HTTP_ADDR is %q: want host:port or %s", c.HTTPAddr, httpOff)
	check(c.DevNATSPort >= 0 && c.DevNATSPort <= 65535, "PQ_DEV_NATS_PORT is %d: want 0 to 65535", c.DevNATSPort)
	for _, name := range c.zeros() {
		check(false, "%s is 0: leave it unset for the default", name)
	}
	grammar, err := subjects.New(c.SubjectPrefix, c.FIFOPrefix)
	if err != nil {
		problems = append(problems, fmt.Errorf("PQ_SUBJECT_PREFIX and PQ_FIFO_PREFIX: %w", err))
		grammar, _ = subjects.New(subjects.DefaultPriorityPrefix, subjects.DefaultFIFOPrefix) // cannot fail
	}
	keyspace, err := c.keyspace()
	if err != nil {
		problems = append(problems, err)
		keyspace, _ = fdbpq.NewKeyspace(subjects.DefaultPriorityPrefix, subjects.DefaultFIFOPrefix, fdbpq.RawValues) // cannot fail
	}
	options := errors.Join(c.bridgeOptions(noStore{}, keyspace, grammar).Validate(), c.pebbleOptions(nil).Validate(), c.fdbOptions().Validate())
	return errors.Join(append(problems, inVariables(options))...)
}

// optionPrefix is what the fields of config that go to the Options of a package are
// called there, before the name of the option.
var optionPrefix = map[string]string{"bridge": "", "pebblekv": "Embedded", "fdbkv": "FDB"}

// inVariables returns the problems of options with the name of the variable in the place
// of that of the field.
func inVariables(err error) error {
	if all, joined := err.(interface{ Unwrap() []error }); joined {
		var problems []error
		for _, err := range all.Unwrap() {
			problems = append(problems, inVariables(err))
		}
		return errors.Join(problems...)
	}
	wrong, ok := errors.AsType[*kv.OptionError](err)
	if !ok {
		return err
	}
	field, found := reflect.TypeFor[config]().FieldByName(optionPrefix[wrong.Package] + wrong.Field)
	if !found {
		return err
	}
	return fmt.Errorf("%s is %v: want %s", variable(field), wrong.Value, wrong.Want)
}

// zeros returns the variables whose value is 0 where the packages below would
// take that for their default. Here the default is written out, so that a zero
// is a mistake.
func (c *config) zeros() []string {
	var names []string
	for i, field := range variables() {
		switch variable(field) {
		case "PQ_LANES", "PQ_DEV_NATS_PORT", "PQ_LOG_LEVEL":
			continue // 0 has a meaning
		}
		value := reflect.ValueOf(c).Elem().Field(i)
		if value.CanInt() && value.IsZero() {
			names = append(names, variable(field))
		}
	}
	return names
}

// validateDev returns an error for each variable about a NATS server that -dev
// replaces by its own.
func (c *config) validateDev(dev bool) error {
	if !dev {
		return nil
	}
	var problems []error
	for _, field := range variables() {
		name := variable(field)
		if _, set := os.LookupEnv(name); set && strings.HasPrefix(name, "PQ_NATS_") {
			problems = append(problems, fmt.Errorf("%s has no use with -dev, which starts a NATS server of its own: unset it, or leave out -dev", name))
		}
	}
	return errors.Join(problems...)
}

// noStore stands for the store while the options are validated.
type noStore struct{ kv.Database }

func (noStore) Traits() kv.Traits { return kv.Traits{Pipelines: true} }

// keyspace returns where the queues are kept in the store.
func (c *config) keyspace() (*fdbpq.Keyspace, error) {
	format := fdbpq.RawValues
	if c.ValueFormat == "tuple" {
		format = fdbpq.TupleValues
	}
	keyspace, err := fdbpq.NewKeyspace(c.KeyPrefix, c.FIFOKeyPrefix, format)
	if err != nil {
		return nil, fmt.Errorf("PQ_KEY_PREFIX and PQ_FIFO_KEY_PREFIX: %w", err)
	}
	return keyspace, nil
}

// bridgeOptions returns the options of the bridge over db, but for the
// connection to NATS and the log.
func (c *config) bridgeOptions(db kv.Database, keyspace *fdbpq.Keyspace, grammar subjects.Grammar) bridge.Options {
	o := bridge.Options{
		NATSURL:         c.NATSURL,
		QueueGroup:      c.QueueGroup,
		DB:              db,
		Keyspace:        keyspace,
		Grammar:         grammar,
		HTTPTimeout:     c.HTTPTimeout,
		MetricQueues:    c.MetricQueues,
		Lanes:           c.Lanes,
		MaxBatch:        c.MaxBatch,
		MaxBatchBytes:   c.MaxBatchBytes,
		MaxPending:      c.MaxPending,
		MaxPendingBytes: c.MaxPendingBytes,
		RequestTimeout:  c.RequestTimeout,
		ShutdownTimeout: c.ShutdownTimeout,
		Version:         semanticVersion(),
	}
	if c.HTTPAddr != httpOff {
		o.HTTPAddr = c.HTTPAddr
	}
	return o
}

// httpOff is the value of PQ_HTTP_ADDR that serves no HTTP.
const httpOff = "off"

func (c *config) pebbleOptions(logger *slog.Logger) pebblekv.Options {
	return pebblekv.Options{
		CacheSize:    c.EmbeddedCacheSize,
		MemTableSize: c.EmbeddedMemTableSize,
		MinFreeSpace: c.EmbeddedMinFreeSpace,
		Logger:       logger,
	}
}

func (c *config) fdbOptions() fdbkv.Options {
	return fdbkv.Options{
		ClusterFile:        c.FDBClusterFile,
		APIVersion:         c.FDBAPIVersion,
		TransactionTimeout: c.FDBTransactionTimeout,
	}
}
