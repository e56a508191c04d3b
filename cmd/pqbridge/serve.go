package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/subjects"
)

// serve runs the service until ctx ends, and then ends it within the shutdown timeout.
func serve(ctx context.Context, c *config, dev bool, logger *slog.Logger, stdout io.Writer) error {
	tuneGC(c, dev)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if names := serviceLinks(os.Environ()); len(names) > 0 {
		logger.Info("variables that Kubernetes sets for a service are ignored", "variables", names)
	}
	return endWithin(ctx, c.ShutdownTimeout, func() error {
		defer surviveSignals(dev, stop, logger)() // inside, because it may wait for a log that nobody reads
		err := serveBridge(ctx, stop, c, dev, logger, stdout)
		logger.Info("pqbridge has ended")
		return err
	})
}

// serveBridge runs the bridge until ctx ends. Everything is closed in the order opposite
// to that in which it was opened: the bridge, the store, and with dev the NATS server. It
// calls stop when it begins to, so that the time for that is counted.
func serveBridge(ctx context.Context, stop context.CancelCauseFunc, c *config, dev bool, logger *slog.Logger, stdout io.Writer) (err error) {
	if dev {
		server, err := startNATS(c.DevNATSPort, logger)
		if err != nil {
			return err
		}
		defer stopNATS(server)
		c.NATSURL = server.ClientURL()
	}
	db, err := openStore(c, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	grammar, err := subjects.New(c.SubjectPrefix, c.FIFOPrefix)
	if err != nil {
		return err
	}
	keyspace, err := c.keyspace()
	if err != nil {
		return err
	}
	options := c.bridgeOptions(db, keyspace, grammar)
	options.Logger = logger
	options.ShutdownTimeout -= c.ShutdownTimeout / 8 // for what is closed after the bridge
	options.Exclusive = !db.Traits().Shared
	options.Location = c.storeLocation()
	if options.NATSOptions, err = c.natsOptions(); err != nil {
		return err
	}
	b, err := bridge.New(options)
	if err != nil {
		return inVariables(err)
	}
	logger.Info("pqbridge starts", "version", describeVersion(), "store", c.Store, "http", b.Addr())

	var others sync.WaitGroup
	if dev {
		others.Go(func() { greet(ctx, stdout, c.NATSURL, b.Addr()) })
	}
	others.Go(func() { new(idleMemory).run(ctx) })
	err = b.Run(ctx)
	stop(err)
	others.Wait()
	return c.explainStore(err)
}

// natsOptions returns the options of the connection to NATS. Its error is one that
// checkSecrets would have found.
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
		options = append(options, nats.UserInfo(c.NATSUser, c.NATSPassword))
	}
	if c.NATSToken != "" {
		options = append(options, nats.Token(c.NATSToken))
	}
	if c.NATSTLSCA != "" {
		options = append(options, nats.RootCAs(c.NATSTLSCA))
	}
	if c.NATSTLSCert != "" {
		options = append(options, nats.ClientCert(c.NATSTLSCert, c.NATSTLSKey))
	}
	return options, nil
}
