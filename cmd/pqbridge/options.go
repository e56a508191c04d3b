package main

import (
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
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

// bridgeOptions returns the options that are plain values of variables. optionsFor adds the
// others.
func (c *config) bridgeOptions() bridge.Options {
	o := bridge.Options{
		NATSURL:         c.NATSURL,
		QueueGroup:      c.QueueGroup,
		HTTPTimeout:     c.HTTPTimeout,
		MetricQueues:    c.MetricQueues,
		Lanes:           c.Lanes,
		MaxBatch:        c.MaxBatch,
		MaxBatchBytes:   c.MaxBatchBytes,
		MaxPending:      c.MaxPending,
		MaxPendingBytes: c.MaxPendingBytes,
		MaxWaiters:      c.MaxWaiters,
		RequestTimeout:  c.RequestTimeout,
		ShutdownTimeout: c.ShutdownTimeout,
		Version:         semanticVersion(),
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

// natsOptions returns the options of the connection to NATS: who logs in, and whom to
// trust. checkFiles would have found any error it returns.
func (c *config) natsOptions() ([]nats.Option, error) {
	var options []nats.Option
	if c.NATSCreds != "" {
		options = append(options, nats.UserCredentials(c.NATSCreds))
	}

	if c.NATSNkey != "" {
		nkey, err := nats.NkeyOptionFromSeed(c.NATSNkey)
		if err != nil {
			return nil, fmt.Errorf("PQ_NATS_NKEY %s: %w", c.NATSNkey, err)
		}
		options = append(options, nkey)
	}

	if c.NATSUser != "" {
		if c.NATSPasswordFile != "" {
			password := secretFile(c.NATSPasswordFile)
			options = append(options, nats.UserInfoHandler(func() (string, string) { return c.NATSUser, password() }))
		} else {
			options = append(options, nats.UserInfo(c.NATSUser, c.NATSPassword))
		}
	}

	if c.NATSToken != "" {
		options = append(options, nats.Token(c.NATSToken))
	}
	if c.NATSTokenFile != "" {
		options = append(options, nats.TokenHandler(secretFile(c.NATSTokenFile)))
	}

	if c.NATSTLSCA != "" {
		options = append(options, nats.RootCAs(c.NATSTLSCA))
	}
	if c.NATSTLSCert != "" {
		options = append(options, nats.ClientCert(c.NATSTLSCert, c.NATSTLSKey))
	}
	return options, nil
}

// optionsFor returns the options of a bridge on a store.
func (c *config) optionsFor(db kv.Database, room int64, logger *slog.Logger) (o bridge.Options, err error) {
	o = c.bridgeOptions()
	o.DB, o.Logger = db, logger
	o.ShutdownTimeout -= c.ShutdownTimeout / 8 // the rest is for closing what is below the bridge
	o.Exclusive = !db.Traits().Shared
	o.Location, o.Engine = c.storeLocation(), c.Store

	if o.Grammar, err = subjects.New(c.SubjectPrefix, c.FIFOPrefix); err != nil {
		return o, err
	}
	if o.Keyspace, err = c.keyspace(); err != nil {
		return o, err
	}
	if o.NATSOptions, err = c.natsOptions(); err != nil {
		return o, err
	}
	if o.JetStream, err = c.jetStreamOptions(); err != nil {
		return o, err
	}
	o.JetStream.Memory = int(c.leafMemory(room))
	o.Sources, err = c.sources()
	return o, err
}
