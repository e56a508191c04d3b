package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/bridge/dispatch"
	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
	"github.com/pqbridge/pqbridge/cmd/internal/buildinfo"
	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/fdbkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/pebblekv"
	"github.com/pqbridge/pqbridge/subjects"
)

// keyspace says where in the store the queues are.
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

// bridgeOptions returns the options that are plain values of variables. optionsFor adds the others.
func (c *config) bridgeOptions() bridge.Options {
	o := bridge.Options{
		NATSURL:      c.NATSURL,
		QueueGroup:   c.QueueGroup,
		HTTPTimeout:  c.HTTPTimeout,
		MetricQueues: c.MetricQueues,
		Limits: dispatch.Limits{
			Lanes:           c.Lanes,
			MaxBatch:        c.MaxBatch,
			MaxBatchBytes:   c.MaxBatchBytes,
			MaxPending:      c.MaxPending,
			MaxPendingBytes: c.MaxPendingBytes,
			MaxWaiters:      c.MaxWaiters,
			RequestTimeout:  c.RequestTimeout,
		},
		MaxResult:       c.MaxResult,
		ShutdownTimeout: c.ShutdownTimeout,
		Version:         buildinfo.Number(version),
	}

	o.JetStream.LeafURL = c.LeafURL
	if c.HTTPAddr != httpOff {
		o.HTTPAddr = c.HTTPAddr
	}
	return o
}

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

// natsOptions returns the options of the connection to NATS: its login, and which servers it
// trusts. checkFiles has found any error that it returns.
func (c *config) natsOptions() ([]nats.Option, error) {
	var options []nats.Option
	add := func(isSet bool, option nats.Option) {
		if isSet {
			options = append(options, option)
		}
	}

	a := &c.NATS
	add(a.Creds != "", nats.UserCredentials(a.Creds))
	if a.Nkey != "" {
		nkey, err := nats.NkeyOptionFromSeed(a.Nkey)
		if err != nil {
			return nil, fmt.Errorf("PQ_NATS_NKEY %s: %w", a.Nkey, err)
		}
		options = append(options, nkey)
	}

	password := secretFile(a.PasswordFile)
	login := func() (string, string) { return a.User, password() }
	add(a.User != "" && a.PasswordFile != "", nats.UserInfoHandler(login))
	add(a.User != "" && a.PasswordFile == "", nats.UserInfo(a.User, a.Password))
	add(a.Token != "", nats.Token(a.Token))
	add(a.TokenFile != "", nats.TokenHandler(secretFile(a.TokenFile)))
	add(a.TLS.CA != "", nats.RootCAs(a.TLS.CA))
	add(a.TLS.Cert != "", nats.ClientCert(a.TLS.Cert, a.TLS.Key))
	return options, nil
}

// optionsFor returns the options of a bridge on a store. room is that for Go's heap.
func (c *config) optionsFor(db kv.Database, room int64,
	logger *slog.Logger) (o bridge.Options, err error) {
	o = c.bridgeOptions()
	o.DB, o.Logger = db, logger
	o.ShutdownTimeout -= c.ShutdownTimeout / 8 // the rest is for closing what is below the bridge
	o.Exclusive = !db.Traits().Shared
	o.Location, o.Engine = c.storeLocation(), c.Store
	o.Host, _ = os.Hostname() // only people read it
	if embedded, ok := db.(*pebblekv.DB); ok {
		o.Space, o.Reserve = embedded, max(c.EmbeddedMinFreeSpace, 0)
	}

	if o.Grammar, err = subjects.New(c.SubjectPrefix, c.FIFOPrefix); err != nil {
		return o, err
	}
	if o.Keyspace, err = c.keyspace(); err != nil {
		return o, err
	}
	if o.NATSOptions, err = c.natsOptions(); err != nil {
		return o, err
	}
	o.JetStream = c.jetStreamOptions()
	o.JetStream.Memory = int(c.leafMemory(room))
	o.Sources, err = c.sources()
	return o, err
}

// openStore opens the configured store, to serve or migrate it. Limits, messages and other commands
// depend on c.Store as well.
func openStore(c *config, logger *slog.Logger) (kv.Database, error) {
	if c.Store == storeFDB {
		db, err := fdbkv.Open(c.fdbOptions())
		if err != nil {
			return nil, err
		}
		return db, nil
	}

	db, err := pebblekv.Open(c.DataDir, c.pebbleOptions(logger))
	if err != nil {
		return nil, explainPermission(err, c.DataDir)
	}
	return db, nil
}

// storeLocation says where the store is, for people. Other bridges show it too.
func (c *config) storeLocation() string {
	if c.Store == storeFDB {
		return "FoundationDB " + clusterName(c.FDBClusterFile)
	}
	if absolute, err := filepath.Abs(c.DataDir); err == nil {
		return absolute
	}
	return c.DataDir
}

// explainStore says what to do if err says that the store was made with other settings.
func (c *config) explainStore(err error) error {
	var mismatch *fdbpq.MismatchError
	if !errors.As(err, &mismatch) {
		return err
	}

	where := "other prefixes"
	if c.Store == storeEmbedded {
		where = "another PQ_DATA_DIR"
	}
	return fmt.Errorf("%w\nPQ_KEY_PREFIX, PQ_FIFO_KEY_PREFIX and PQ_VALUE_FORMAT of the store %s "+
		"cannot be changed: set them back, or use %s for new queues",
		err, c.storeLocation(), where)
}

// jetStreamOptions returns how JetStream's programs are served. Unless it has variables of its own,
// the leaf node connection logs in, and trusts, as the client connection does.
func (c *config) jetStreamOptions() (o bridge.JetStreamOptions) {
	if o.LeafURL = c.LeafURL; o.LeafURL == "" {
		return o
	}

	own, client := c.Leaf, &c.NATS
	if o.Login = own.login(); !strings.Contains(o.LeafURL, "@") {
		first, _, _ := strings.Cut(client.url, ",")
		u, err := url.Parse(strings.TrimSpace(first))
		if err != nil {
			u = &url.URL{} // a host and port alone
		}
		o.Login = cmp.Or(o.Login, client.login(), leaf.LoginOf(u))
	}

	if own.TLS.CA+own.TLS.Cert == "" {
		own.TLS, own.prefix = client.TLS, client.prefix
	}

	if own.TLS.CA+own.TLS.Cert != "" {
		o.TLS = own.tls
	}

	return o
}
