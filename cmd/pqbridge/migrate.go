package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/migrate"
)

// progressEvery is the time between two lines about a migration.
const progressEvery = 2 * time.Second

// migrateStore copies all queues from one kind of store to the other. target is a value of
// PQ_STORE.
func migrateStore(ctx context.Context, c *config, target string, logger *slog.Logger,
	stdout io.Writer) (err error) {
	source, from, to := storeEmbedded, *c, *c
	switch target {
	case storeFDB:
	case storeEmbedded:
		source = storeFDB
	default:
		return fmt.Errorf("-migrate %q: want fdb, to copy the embedded store into FoundationDB, "+
			"or embedded for the other way", target)
	}

	from.Store, to.Store = source, target
	if source == storeEmbedded {
		if err := wantStore(c.DataDir); err != nil {
			return err
		}
	}

	if err := c.checkFDB(); err != nil {
		return err
	}
	keyspace, err := c.keyspace()
	if err != nil {
		return err
	}

	db, err := openStore(&from, logger)
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	targetDB, err := openStore(&to, logger)
	if err != nil {
		return fmt.Errorf("target: %w", err)
	}
	defer func() { err = errors.Join(err, targetDB.Close()) }()

	if err := errors.Join(db.Check(), targetDB.Check()); err != nil {
		return err // a full disk
	}

	_, _ = fmt.Fprintf(stdout, "from %s to %s\n", from.storeLocation(), to.storeLocation())
	began := time.Now()
	result, err := migrate.Run(ctx, db, targetDB, keyspace, printProgress(stdout))
	if err != nil {
		return explainMigration(ctx, &from, &to, err)
	}

	took := time.Since(began).Round(time.Millisecond)
	_, err = fmt.Fprintf(stdout, "complete and compared: %v, in %v. Serve it with PQ_STORE=%s, "+
		"and never serve the old one beside it.\n", result.Digest, took, target)
	return err
}

// printProgress returns a function that prints the progress of a migration from time to time.
func printProgress(w io.Writer) func(migrate.Progress) {
	var next time.Time
	checking := false
	return func(p migrate.Progress) {
		now := time.Now()
		if now.Before(next) && p.Checking == checking {
			return
		}

		next, checking = now.Add(progressEvery), p.Checking

		what := "copied"
		if p.Checking {
			what = "compared"
		}
		_, _ = fmt.Fprintf(w, "%s %d keys, %d bytes\n", what, p.Keys, p.Bytes) // progress only
	}
}

// explainMigration says what to do about an error of [migrate.Run].
func explainMigration(ctx context.Context, from, to *config, err error) error {
	var advice string
	switch {
	case errors.Is(err, migrate.ErrNoStore):
		advice = "source " + from.storeLocation() + ": " +
			"are PQ_KEY_PREFIX and PQ_FIFO_KEY_PREFIX right?"
	case errors.Is(err, migrate.ErrMigrated):
		location := to.storeLocation()
		advice = "nothing was copied now; serve " + location + " with PQ_STORE=" + to.Store
	case errors.Is(err, migrate.ErrNotEmpty) && to.Store == storeEmbedded:
		advice = "want an empty folder or none in PQ_DATA_DIR, " +
			"or the one of a migration to continue"
	case errors.Is(err, migrate.ErrNotEmpty):
		advice = "want other PQ_KEY_PREFIX and PQ_FIFO_KEY_PREFIX in both stores " +
			"or another cluster, or if nobody needs what is there, clear it with fdbcli"
	case errors.Is(err, migrate.ErrForeignKeys):
		advice = "they would be lost, so nothing was copied"
	case errors.Is(err, migrate.ErrDiffers):
		advice = "stop every bridge and program that uses " + from.storeLocation() +
			", and run this again: it empties the copy and starts over"
	case errors.Is(err, fdbpq.ErrUnfinished):
		advice = "end that migration first, or use its source"
	case ctx.Err() != nil:
		err, advice = context.Cause(ctx), "run this again to continue"
	default:
		return from.explainStore(err)
	}
	return fmt.Errorf("%w: %s", err, advice)
}
