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

var quiet = slog.New(slog.DiscardHandler)

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
	o.Logger = quiet
	db, err := Open(dir, o)
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// openQuiet opens the store in testDir.
func openQuiet(files vfs.FS) (*DB, error) { return Open(testDir, Options{FS: files, Logger: quiet}) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// mustClose leaves it to the test whether to go on.
func mustClose(t *testing.T, db *DB) {
	t.Helper()
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

func begin(t *testing.T, db *DB) kv.Transaction {
	t.Helper()
	tx, err := db.Begin(context.Background(), kv.BeginOptions{})
	must(t, err)
	return tx
}

func beginRead(t *testing.T, db *DB) kv.ReadTransaction {
	t.Helper()
	tx, err := db.BeginRead(context.Background())
	must(t, err)
	return tx
}

func mustCommit(t *testing.T, tx kv.Transaction) {
	t.Helper()
	_, err := tx.Commit().Get()
	must(t, err)
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

func mustSet(t *testing.T, db *DB, key, value string) {
	t.Helper()
	must(t, set(db, key, value))
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

func wantValue(t *testing.T, db *DB, key, want string) {
	t.Helper()
	if value, err := get(db, key); value != want || err != nil {
		t.Errorf("%s is %q, %v: want %q", key, value, err, want)
	}
}

func list(t *testing.T, files vfs.FS) []string {
	t.Helper()
	names, err := files.List(testDir)
	must(t, err)
	return names
}
