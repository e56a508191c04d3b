package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os/signal"
	"sync"
	"syscall"

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

	// It comes when nobody reads the log or standard output any more. Later output is lost.
	signal.Ignore(syscall.SIGPIPE)
	if !dev {
		// It asks many services to reload their configuration, but this one has nothing to reload.
		signal.Ignore(syscall.SIGHUP)
	}

	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	// In here, because a log that nobody reads can block it.
	return endWithin(ctx, c.ShutdownTimeout, func() error {
		err := serveBridge(ctx, stop, c, dev, room, logger, stdout)
		logger.Info("pqbridge has ended")
		return err
	})
}

// serveBridge runs the bridge until ctx ends. It closes everything in reverse order: the bridge,
// with dev the NATS server, and the store. When the bridge ends on its own, serveBridge calls stop,
// so that the shutdown timeout also covers closing the rest.
func serveBridge(ctx context.Context, stop context.CancelCauseFunc, c *config, dev bool, room int64,
	logger *slog.Logger, stdout io.Writer) (err error) {
	db, err := openStore(c, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if embedded, ok := db.(*pebblekv.DB); ok {
		defer takeBackupRequests(c.DataDir, embedded, logger)()
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
	logger.Info("pqbridge starts", "id", b.ID(), "version", describeVersion(), "store", c.Store,
		"http", b.Addr())

	var others sync.WaitGroup
	if dev {
		others.Go(func() { greet(ctx, stdout, c, b.Addr()) })
	}

	heap := heapLimit(c, dev) + c.leafMemory(room)
	others.Go(func() { limitMemory(ctx, heap, room, b.Waiters) })
	others.Go(func() { chooseClass(ctx, logger) })

	err = b.Run(ctx)
	stop(err)
	others.Wait()
	return c.explainStore(err)
}
