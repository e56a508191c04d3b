package pebblekv

import (
	"cmp"
	"context"
	"log/slog"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/testenv/race"
)

const testDir = "data"

// openTest opens a store that is closed at the end of the test.
func openTest(t *testing.T, files vfs.FS, o Options) *DB {
	t.Helper()
	o.FS = files
	if o.MemTableSize == 0 { // the test is not about preallocated logs
		race.FillDisk(files, uint64(cmp.Or(o.MinFreeSpace, DefaultMinFreeSpace)))
	}
	return openTestDir(t, testDir, o)
}

// openTestDir is openTest in a folder of the operating system, if o has no FS.
func openTestDir(t *testing.T, dir string, o Options) *DB {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	db, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func begin(t *testing.T, db *DB) kv.Transaction {
	t.Helper()
	tx, err := db.Begin(context.Background(), kv.BeginOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

func beginRead(t *testing.T, db *DB) kv.ReadTransaction {
	t.Helper()
	tx, err := db.BeginRead(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

func mustCommit(t *testing.T, tx kv.Transaction) {
	t.Helper()
	if _, err := tx.Commit().Get(); err != nil {
		t.Fatal(err)
	}
}

// set writes a pair in a transaction of its own.
func set(db *DB, key, value string) error {
	tx, err := db.Begin(context.Background(), kv.BeginOptions{})
	if err != nil {
		return err
	}
	tx.Set([]byte(key), []byte(value))
	_, err = tx.Commit().Get()
	return err
}

// get reads a value that is durable.
func get(db *DB, key string) (string, error) {
	tx, err := db.BeginRead(context.Background())
	if err != nil {
		return "", err
	}
	defer tx.Cancel()
	value, err := tx.Get([]byte(key)).Get()
	return string(value), err
}
