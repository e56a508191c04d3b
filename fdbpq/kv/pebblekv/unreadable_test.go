package pebblekv

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// newTable makes a store whose pair "key" is in a table, in a block of its own, and
// nowhere else, and returns the path of the table.
func newTable(t *testing.T, files vfs.FS) string {
	t.Helper()
	db := openTest(t, files, Options{})
	mustSet(t, db, "key", strings.Repeat("x", kv.MaxValueSize))
	must(t, db.store.pdb.Flush())

	mustClose(t, db)
	return tablePath(t, files)
}

// tablePath returns the path of the largest table.
func tablePath(t *testing.T, files vfs.FS) (path string) {
	t.Helper()
	largest := int64(0)
	for _, name := range list(t, files) {
		info, err := files.Stat(files.PathJoin(testDir, name))
		must(t, err)

		if isTable(name) && info.Size() > largest {
			path, largest = files.PathJoin(testDir, name), info.Size()
		}
	}
	if path == "" {
		t.Fatal("no table")
	}

	return path
}

// wantNoPaths checks that the text of an error names no file, and its detail one.
func wantNoPaths(t *testing.T, err error, path string) {
	t.Helper()
	if err == nil {
		t.Error("no error")
		return
	}

	for _, part := range []string{path, filepath.Base(path), string(filepath.Separator)} {
		if strings.Contains(err.Error(), part) {
			t.Errorf("%q has %q", err, part)
		}
	}
	if detail := kv.Detail(err); !strings.Contains(detail, filepath.Base(path)) {
		t.Errorf("%q does not name %s", detail, path)
	}
}

// A table that cannot be read fails what needs it, for good; the log names it once, and the rest
// of the store goes on.
func TestUnreadableTable(t *testing.T) {
	for name, fault := range map[string]error{ // of opening and reading tables
		"damaged": nil, "missing": fs.ErrNotExist, "read error": syscall.EIO,
	} {
		t.Run(name, func(t *testing.T) {
			files := newFaultyFS(nil, nil)
			files.injector = func(op errorfs.Op) error {
				if files.broken.Load() && isTable(op.Path) &&
					(op.Kind == errorfs.OpFileReadAt || op.Kind == errorfs.OpOpen) {
					return &fs.PathError{Op: "read", Path: op.Path, Err: fault}
				}
				return nil
			}

			files.FS = errorfs.Wrap(files.inner, files.injector)

			path := newTable(t, files)
			if fault == nil {
				flip(t, files.inner, path, 10)
			}

			files.broken.Store(fault != nil)

			var log bytes.Buffer
			mark, markErr := readCommitMark(files, testDir)
			db, err := Open(testDir,
				Options{FS: files, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			must(t, errors.Join(err, markErr))

			t.Cleanup(func() { _ = db.Close() })

			wantUnreadable(t, db, path)

			if fault == nil { // Pebble did not search for a flipped bit, which takes long.
				wantErr(t, "Get", errOf(get(db, "key")), errBlock)
			}

			mustSet(t, db, "other", "value")
			// Opening the store was a commit as well. The numbers do not begin anew.
			if n := db.store.applied; fault == nil && (n != mark.newest+2 || n == 2) {
				t.Errorf("the newest commit is %d, and was %d", n, mark.newest)
			}

			// Each table holds the number of a commit, behind all other keys.
			if value, err := get(db, "other"); fault == nil && (value != "value" || err != nil) {
				t.Errorf("the rest of the store: %q, %v", value, err)
			}
			wantErr(t, "Check", db.Check(), kv.ErrCorrupt)

			mustClose(t, db)
			if !strings.Contains(log.String(), "level=ERROR") ||
				!strings.Contains(log.String(), filepath.Base(path)) {
				t.Errorf("the log does not name %s: %s", path, log.String())
			}

			if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
				t.Errorf("the same is logged %d times", n)
			}
		})
	}
}

// wantUnreadable reads "key" in every way.
func wantUnreadable(t *testing.T, db *DB, path string) {
	t.Helper()
	check := func(way string, err error) {
		t.Helper()
		if !errors.Is(err, kv.ErrCorrupt) || kv.Retryable(err) || kv.MaybeCommitted(err) {
			t.Errorf("%s: %v", way, err)
		}
		wantNoPaths(t, err, path)
	}

	whole := kv.Range{Begin: []byte("a"), End: []byte("z")}
	r, tx := beginRead(t, db), begin(t, db)

	for way, reader := range map[string]kv.Reader{"": r, " of a transaction": tx} {
		check("Get"+way, errOf(reader.Get([]byte("key")).Get()))
		check("GetRange"+way, errOf(reader.GetRange(whole, kv.RangeOptions{}).Get()))
		check("reverse GetRange"+way,
			errOf(reader.GetRange(whole, kv.RangeOptions{Reverse: true, Limit: 1}).Get()))
	}

	r.Cancel()

	tx.Add([]byte("key"), 1)
	check("Commit after Add", errOf(tx.Commit().Get()))

	tx = begin(t, db)
	tx.CompareAndClear([]byte("key"), nil)
	check("Commit after CompareAndClear", errOf(tx.Commit().Get()))
}

// A table that cannot be opened for lack of open files is not taken for damaged.
func TestTableCannotBeReadNow(t *testing.T) {
	files := newFaultyFS(syscall.EMFILE, func(op errorfs.Op) bool {
		return isTable(op.Path) && (op.Kind == errorfs.OpFileReadAt || op.Kind == errorfs.OpOpen)
	})
	newTable(t, files)
	db := openTest(t, files, Options{})
	files.broken.Store(true)

	_, err := get(db, "key")
	if !errors.Is(err, kv.ErrUnavailable) || errors.Is(err, kv.ErrCorrupt) {
		t.Errorf("read: %v", err)
	}

	files.broken.Store(false)
	// Pebble forgets in the background that a table could not be opened.
	for err := errInjected; err != nil && t.Context().Err() == nil; runtime.Gosched() {
		if _, err = get(db, "key"); err != nil && !errors.Is(err, kv.ErrUnavailable) {
			t.Fatalf("read: %v", err)
		}
	}
	noError(t, db.Check())
}

// A folder that is taken away fails everything at once and is not written to by
// its name, in whatever way it was taken away. When it is back so is the store.
func TestFolderGone(t *testing.T) {
	for _, name := range []string{"renamed", "replaced", "lock replaced"} {
		t.Run(name, func(t *testing.T) {
			var time clock
			dir := filepath.Join(t.TempDir(), "data")
			lock := filepath.Join(dir, "LOCK")
			db := openTestDir(t, dir, Options{MemTableSize: minMemTableSize, now: time.now})
			mustSet(t, db, "000001", "value")

			taken := dir
			if name == "lock replaced" {
				taken = lock
			}
			must(t, os.Rename(taken, dir+".away"))

			if name != "renamed" {
				must(t, os.MkdirAll(dir, 0o700))
				must(t, os.WriteFile(lock, nil, 0o600))
			}

			wantGone := func(what string, err error) {
				t.Helper()
				if !errors.Is(err, kv.ErrUnavailable) ||
					!strings.Contains(err.Error(), "deleted or replaced") {
					t.Errorf("%s: %v", what, err)
				}
				wantNoPaths(t, err, lock)
			}
			wantGone("Check", db.Check())
			wantErr(t, "Backup", db.Backup(t.Context(), dir+".copy"), kv.ErrUnavailable)

			for range 3 {
				time.advance(retryInterval)
				wantGone("Begin", errOf(db.Begin(context.Background(), kv.BeginOptions{})))
				wantGone("a read", errOf(get(db, "000001")))
			}

			if name == "replaced" {
				if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
					t.Errorf("in the new folder: %v, %v", entries, err)
				}
				must(t, os.RemoveAll(dir))
			}
			must(t, os.Rename(dir+".away", taken))
			time.advance(retryInterval)
			mustSet(t, db, "000002", "value")
			must(t, db.Check())

			checkAcked(t, db, 2)
		})
	}
}
