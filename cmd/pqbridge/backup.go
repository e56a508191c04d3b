package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv/pebblekv"
)

// backUp makes a copy of the embedded store in the new folder dest. If a service has the
// store, that service makes it.
func backUp(ctx context.Context, c *config, dest string, logger *slog.Logger, stdout io.Writer) error {
	if c.Store != storeEmbedded {
		return errors.New("-backup copies the embedded store, but PQ_STORE is fdb: back up FoundationDB with fdbbackup")
	}
	if dest == "" {
		return errors.New("-backup needs the name of a new folder, such as -backup /backup/monday")
	}

	dest, err := filepath.Abs(dest) // the service may have another working folder
	if err != nil {
		return err
	}

	began := time.Now()
	made, err := askForBackup(ctx, c.DataDir, dest)
	if errors.Is(err, errNoService) {
		made, err = backUpStopped(ctx, c, dest, logger)
	}
	if err != nil {
		return err
	}

	_, err = fmt.Fprintf(stdout, "backup in %s: %d files, %d bytes, %v\n", made.Dir, made.Files, made.Bytes,
		time.Since(began).Round(time.Millisecond))
	return err
}

// backUpStopped copies a store that no service has.
func backUpStopped(ctx context.Context, c *config, dest string, logger *slog.Logger) (made pebblekv.Backup, err error) {
	if err := wantStore(c.DataDir); err != nil {
		return made, err
	}
	db, err := pebblekv.Open(c.DataDir, c.pebbleOptions(logger))
	if err != nil {
		return made, fmt.Errorf("no service takes requests for backups in PQ_DATA_DIR %s, and the store there cannot be opened: %w", c.DataDir, err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return db.Backup(ctx, dest)
}

// wantStore returns an error if there is no store in a folder. Opening it would make one.
func wantStore(dir string) error {
	found, err := pebblekv.Exists(dir)
	if err == nil && !found {
		err = errors.New("there is no store in it")
	}
	if err != nil {
		return fmt.Errorf("PQ_DATA_DIR %s: %w", dir, err)
	}
	return nil
}
