package main

import (
	"fmt"
	"log/slog"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/fdbkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/pebblekv"
)

// openStore opens the store that the configuration names. This is the one
// place that knows which engines there are.
func openStore(c *config, logger *slog.Logger) (kv.Database, error) {
	switch c.Store {
	case storeEmbedded:
		db, err := pebblekv.Open(c.DataDir, c.pebbleOptions(logger))
		if err != nil {
			return nil, err
		}
		return db, nil
	case storeFDB:
		db, err := fdbkv.Open(c.fdbOptions())
		if err != nil {
			return nil, err
		}
		return db, nil
	default:
		return nil, fmt.Errorf("there is no store %q", c.Store)
	}
}
