package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/fdbkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/pebblekv"
)

// openStore opens the configured store. This is the only place that chooses an engine.
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

// explainPermission adds what to do to an error that says that this process may not use the folder.
func explainPermission(err error, folder string) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return fmt.Errorf("%w\npqbridge runs as user %d and group %d\n"+
		"give it the folder with all that is in it, as in chown -R %[2]d:%[3]d %[4]s "+
		"(of a mounted folder, on the host), or run pqbridge as the owner (docker run --user); "+
		"a tmpfs needs --tmpfs %[4]s:uid=%[2]d,gid=%[3]d",
		err, os.Getuid(), os.Getgid(), folder)
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

// settingVariables are the variables of the settings that a store never changes.
var settingVariables = map[fdbpq.Setting]string{
	fdbpq.SettingRoots:       "PQ_KEY_PREFIX and PQ_FIFO_KEY_PREFIX",
	fdbpq.SettingValueFormat: "PQ_VALUE_FORMAT",
}

// explainStore names the variables that do not match the store, if err says that some do not.
func (c *config) explainStore(err error) error {
	var mismatch *fdbpq.MismatchError
	if !errors.As(err, &mismatch) {
		return err
	}

	var parts []string
	for _, m := range mismatch.Mismatches {
		part := fmt.Sprintf("%s: the store has %s, not %s",
			settingVariables[m.Setting], m.Stored, m.Asked)
		parts = append(parts, part)
	}

	where := "other prefixes"
	if c.Store == storeEmbedded {
		where = "another PQ_DATA_DIR"
	}
	return fmt.Errorf("the store %s was created with other settings, which cannot be changed:\n"+
		"%s\nset them back, or use %s for new queues",
		c.storeLocation(), strings.Join(parts, "\n"), where)
}
