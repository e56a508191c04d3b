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

// bridgeOptions returns the options that are plain values of variables. optionsFor adds the others.
func (c *config) bridgeOptions() bridge.Options {
	o := bridge.Options{
		NATSURL:         c.NATSURL,
		QueueGroup:      c.QueueGroup,
		HTTPTimeout:     c.HTTPTimeout,
		MetricQueues:    c.MetricQueues,
		Limits:          c.Limits,
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

// natsOptions returns the options of the connection to NATS: its login, and which servers it
// trusts. checkFiles has found any error that it returns.
func (c *config) natsOptions() ([]nats.Option, error) {
	var options []nats.Option
	if c.NATS.Creds != "" {
		options = append(options, nats.UserCredentials(c.NATS.Creds))
	}

	if c.NATS.Nkey != "" {
		nkey, err := nats.NkeyOptionFromSeed(c.NATS.Nkey)
		if err != nil {
			return nil, fmt.Errorf("PQ_NATS_NKEY %s: %w", c.NATS.Nkey, err)
		}
		options = append(options, nkey)
	}

	if c.NATS.User != "" {
		if c.NATS.PasswordFile != "" {
			password := secretFile(c.NATS.PasswordFile)
			login := func() (string, string) { return c.NATS.User, password() }
			options = append(options, nats.UserInfoHandler(login))
		} else {
			options = append(options, nats.UserInfo(c.NATS.User, c.NATS.Password))
		}
	}

	if c.NATS.Token != "" {
		options = append(options, nats.Token(c.NATS.Token))
	}
	if c.NATS.TokenFile != "" {
		options = append(options, nats.TokenHandler(secretFile(c.NATS.TokenFile)))
	}

	if c.NATS.TLS.CA != "" {
		options = append(options, nats.RootCAs(c.NATS.TLS.CA))
	}
	if c.NATS.TLS.Cert != "" {
		options = append(options, nats.ClientCert(c.NATS.TLS.Cert, c.NATS.TLS.Key))
	}
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
