package pebblekv

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pqbridge/pqbridge/testenv/harness"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/kvtest"
)

func TestMain(m *testing.M) { harness.Main(m) }

// The embedded store passes the suite of every store, in memory and in a folder.
func TestConformance(t *testing.T) {
	kvtest.Run(t, kvtest.Engine{
		Store: func(t *testing.T) func() kv.Database {
			dir, o := testDir, Options{
				Logger:       quiet,
				FS:           vfs.NewMem(),
				MemTableSize: minMemTableSize,
			}

			if harness.Nightly {
				dir, o = t.TempDir(), Options{Logger: quiet}
			}

			return func() kv.Database {
				db, err := Open(dir, o)
				must(t, err)
				return db
			}
		},
		Persistent: true,
	})
}

// Validate names each option that is out of bounds.
func TestValidate(t *testing.T) {
	err := Options{CacheSize: -1, MemTableSize: 1, MinFreeSpace: -7}.Validate()
	if err == nil {
		t.Fatal("no error")
	}

	for _, want := range []string{"CacheSize is -1", "MemTableSize is 1", "MinFreeSpace is -7"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %q", want, err)
		}
	}
	if _, err := Open(testDir, Options{CacheSize: -1}); err == nil {
		t.Error("Open takes it")
	}
}

// A folder that is open cannot be opened again. A test of cmd/pqbridge tries it in two processes.
func TestExclusive(t *testing.T) {
	dir := t.TempDir()
	db := openTestDir(t, dir, Options{})

	for _, name := range []string{dir, filepath.Join(dir, "..", filepath.Base(dir))} {
		again, err := Open(name, Options{Logger: quiet})
		if err == nil {
			_ = again.Close()
			t.Fatal("it was opened twice")
		}

		want := "folder " + dir + " is in use by another process"
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %q, without %q", err, want)
		}
	}

	mustClose(t, db)
	openTestDir(t, dir, Options{})
}

// A commit is made even if nobody waits for its future.
func TestUnwaitedCommit(t *testing.T) {
	files := vfs.NewMem()
	db := openTest(t, files, Options{})
	tx := begin(t, db)
	tx.Set([]byte("key"), []byte("value"))
	future := tx.Commit()
	mustClose(t, db)

	noError(t, errOf(future.Get()))
	wantValue(t, openTest(t, files, Options{}), "key", "value")
}

// Until a commit is synced, the next writer sees it, readers do not, and nothing is reported to be
// durable.
func TestPipeline(t *testing.T) {
	files, _, release := newHeldFS()
	db := openTest(t, files, Options{})
	files.broken.Store(true)
	ctx, cancel := context.WithCancel(context.Background())
	tx, err := db.Begin(ctx, kv.BeginOptions{})
	must(t, err)

	tx.Set([]byte("key"), []byte("value"))
	written := tx.Commit()

	next := begin(t, db)
	if value, err := next.Get([]byte("key")).Get(); string(value) != "value" || err != nil {
		t.Errorf("the next writer sees %q, %v", value, err)
	}
	wantValue(t, db, "key", "")

	cancel()
	if _, err := written.Get(); !kv.MaybeCommitted(err) || !errors.Is(err, context.Canceled) {
		t.Errorf("whose context ended while it was synced: %v", err)
	}

	read := next.Commit().(*pendingCommit)
	select {
	case <-read.done:
		t.Error("what was read is not durable yet")
	default:
	}

	close(release)
	noError(t, errOf(read.Get()))
	wantValue(t, db, "key", "value")

	if _, err := written.Get(); !kv.MaybeCommitted(err) {
		t.Errorf("a future changed its mind: %v", err)
	}
}
