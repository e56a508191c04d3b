package pebblekv

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

const testDir = "data"

var quiet = slog.New(slog.DiscardHandler)

// openTest opens a store that is closed at the end of the test.
func openTest(t *testing.T, files vfs.FS, o Options) *DB {
	t.Helper()
	o.FS = files
	o.MemTableSize = cmp.Or(o.MemTableSize, minMemTableSize) // copies of the files are small
	return openTestDir(t, testDir, o)
}

// openTestDir is openTest in a folder of the operating system, if o has no FS.
func openTestDir(t testing.TB, dir string, o Options) *DB {
	t.Helper()
	o.Logger = cmp.Or(o.Logger, quiet)
	db, err := Open(dir, o)
	must(t, err)

	t.Cleanup(func() { _ = db.Close() })
	return db
}

// openQuiet opens the store in testDir.
func openQuiet(files vfs.FS) (*DB, error) {
	return Open(testDir, Options{FS: files, Logger: quiet, MemTableSize: minMemTableSize})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// noError is must for any goroutine.
func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// errOf is the error of a function with another result.
func errOf[T any](_ T, err error) error { return err }

// logSizes returns the lengths of the logs in the folder, oldest first.
func logSizes(t *testing.T, files vfs.FS) []int64 {
	t.Helper()
	var sizes []int64
	for _, name := range list(t, files) {
		if filepath.Ext(name) != ".log" {
			continue
		}

		info, err := files.Stat(files.PathJoin(testDir, name))
		if err == nil { // or it was removed meanwhile
			sizes = append(sizes, info.Size())
		}
	}

	return sizes
}

func mustClose(t *testing.T, db *DB) {
	t.Helper()
	noError(t, db.Close())
}

func begin(t testing.TB, db *DB) kv.Transaction {
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
	must(t, errOf(tx.Commit().Get()))
}

// set writes a pair in a transaction of its own.
func set(db *DB, key, value string) error {
	return kv.Update(context.Background(), db, func(tx kv.Transaction) error {
		tx.Set([]byte(key), []byte(value))
		return nil
	})
}

func mustSet(t *testing.T, db *DB, key, value string) {
	t.Helper()
	must(t, set(db, key, value))
}

// get reads a value that is durable.
func get(db *DB, key string) (string, error) {
	read := func(r kv.Reader) ([]byte, error) { return r.Get([]byte(key)).Get() }
	value, err := kv.ReadTransact(context.Background(), db, read)
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

// hookFS is a file system that calls hook before it creates a file, unless hook is nil.
// Pebble creates some in the background.
type hookFS struct {
	vfs.FS
	link error // of each link, if not nil
	hook atomic.Pointer[func(name string, category vfs.DiskWriteCategory) error]
}

func (f *hookFS) onCreate(hook func(name string, category vfs.DiskWriteCategory) error) *hookFS {
	f.hook.Store(&hook)
	return f
}

func (f *hookFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if hook := f.hook.Load(); hook != nil {
		if err := (*hook)(name, category); err != nil {
			return nil, err
		}
	}
	return f.FS.Create(name, category)
}

func (f *hookFS) Link(oldname, newname string) error {
	if f.link != nil {
		return &os.LinkError{Op: "link", Old: oldname, New: newname, Err: f.link}
	}
	return f.FS.Link(oldname, newname)
}

// newHeldFS returns a file system that holds syncs of the log of the store while it is
// broken. syncing has one element once a sync is held; closing release lets them go on.
func newHeldFS() (files *faultyFS, syncing, release chan struct{}) {
	syncing, release = make(chan struct{}, 1), make(chan struct{})
	files = newFaultyFS(nil, func(op errorfs.Op) bool {
		isSync := op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData
		if !isSync || filepath.Dir(op.Path) != testDir || filepath.Ext(op.Path) != ".log" {
			return false
		}

		select {
		case syncing <- struct{}{}:
		default:
		}

		<-release
		return false
	})

	return files, syncing, release
}
