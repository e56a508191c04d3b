package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/pqbridge/pqbridge/fdbpq"
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

// storeLocation says where the store is, for people who look at another bridge.
func (c *config) storeLocation() string {
	if c.Store == storeFDB {
		return "FoundationDB " + clusterName(c.FDBClusterFile)
	}
	if absolute, err := filepath.Abs(c.DataDir); err == nil {
		return absolute
	}
	return c.DataDir
}

// clusterName returns the description and id of the cluster in a cluster file,
// which is found as FoundationDB's client finds it, or the path of a file that
// cannot be read.
func clusterName(path string) string {
	path = cmp.Or(path, os.Getenv("FDB_CLUSTER_FILE"))
	if path == "" {
		path = "fdb.cluster"
		if _, err := os.Stat(path); err != nil {
			path = "/etc/foundationdb/fdb.cluster"
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return path
	}
	for line := range bytes.Lines(text) {
		name, _, found := strings.Cut(strings.TrimSpace(string(line)), "@")
		if found && !strings.HasPrefix(name, "#") {
			return name
		}
	}
	return path
}

// settingVariables are the variables of what a store keeps for good.
var settingVariables = map[fdbpq.Setting]string{
	fdbpq.SettingRoots:       "PQ_KEY_PREFIX and PQ_FIFO_KEY_PREFIX",
	fdbpq.SettingValueFormat: "PQ_VALUE_FORMAT",
}

// explainStore names the variables that do not fit the store, if that is what err
// is about.
func (c *config) explainStore(err error) error {
	var mismatch *fdbpq.MismatchError
	if !errors.As(err, &mismatch) {
		return err
	}
	var parts []string
	for _, m := range mismatch.Mismatches {
		parts = append(parts, fmt.Sprintf("%s: the store has %s, not %s", settingVariables[m.Setting], m.Stored, m.Asked))
	}
	where := "other prefixes"
	if c.Store == storeEmbedded {
		where = "another PQ_DATA_DIR"
	}
	return fmt.Errorf("the store %s was made with other settings, which cannot be changed:\n%s\nset them back, or use %s for new queues",
		c.storeLocation(), strings.Join(parts, "\n"), where)
}
