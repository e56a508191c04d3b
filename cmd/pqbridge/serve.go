package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/fdbpq/kv/pebblekv"
)

// serve runs the service until ctx ends, then shuts it down within the shutdown timeout.
func serve(ctx context.Context, c *config, dev bool, logger *slog.Logger, stdout io.Writer) error {
	limit := memoryLimit()
	if err := c.fitMemory(limit, logger); err != nil {
		return err
	}

	room := heapRoom(c, limit)
	tuneGC(c, dev, room)
	tuneMalloc()

	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	return endWithin(ctx, c.ShutdownTimeout, func() error {
		defer surviveSignals(dev, stop, logger)() // inside, because a log that nobody reads can block it
		err := serveBridge(ctx, stop, c, dev, room, logger, stdout)
		logger.Info("pqbridge has ended")
		return err
	})
}

// serveBridge runs the bridge until ctx ends. It closes everything in reverse order: the
// bridge, with dev the NATS server, and the store. When the bridge ends for a reason of
// its own serveBridge calls stop, so that closing the rest is subject to the shutdown
// timeout too.
func serveBridge(ctx context.Context, stop context.CancelCauseFunc, c *config, dev bool, room int64, logger *slog.Logger, stdout io.Writer) (err error) {
	db, err := openStore(c, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if embedded, ok := db.(*pebblekv.DB); ok {
		defer startControl(c.DataDir, embedded, logger).stop()
	}

	if dev {
		server, err := startNATS(c, logger)
		if err != nil {
			return err
		}
		defer stopNATS(server)
	}

	options, err := c.optionsFor(db, room, logger)
	if err != nil {
		return err
	}
	b, err := bridge.New(options)
	if err != nil {
		return inVariables(err)
	}
	logger.Info("pqbridge starts", "version", describeVersion(), "store", c.Store, "http", b.Addr())

	var others sync.WaitGroup
	if dev {
		others.Go(func() { greet(ctx, stdout, c, b.Addr()) })
	}

	others.Go(func() { limitMemory(ctx, heapLimit(c, dev)+c.leafMemory(room), room, b.Waiters) })
	others.Go(func() { chooseClass(ctx, logger) })

	err = b.Run(ctx)
	stop(err)
	others.Wait()
	return c.explainStore(err)
}
