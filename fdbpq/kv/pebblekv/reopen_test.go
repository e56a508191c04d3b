package pebblekv

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// noCompactionFS fails to make the tables of compactions.
type noCompactionFS struct{ vfs.FS }

func (f noCompactionFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if isTable(name) && category != categoryFlush {
		return nil, syscall.EIO
	}
	return f.FS.Create(name, category)
}

// A compaction that begins while the folder is being opened, and fails, must not
// keep it from being opened: Pebble waits there for its end.
func TestCompactionFailsDuringOpen(t *testing.T) {
	files := vfs.NewMem()
	o := Options{FS: noCompactionFS{files}, Logger: quiet}
	failed := false
	for i := 0; !failed; i++ {
		if i == 100 {
			t.Fatal("no compaction began during 100 opens")
		}
		db, err := Open(testDir, o)
		if err != nil {
			failed = true
			break
		}
		// Each log becomes a table when it is opened again, on top of the others.
		err = set(db, "key", fmt.Sprint(i))
		failed = err != nil
		_ = db.Close() // its disk may have failed
	}
	db := openTest(t, files, Options{})
	if _, err := get(db, "key"); err != nil {
		t.Error(err)
	}
}

// A folder that could not be opened again is tried by readers too: there may be
// no writers.
func TestReadersOpenAgain(t *testing.T) {
	var time clock
	var opening atomic.Bool
	files := newFaultyFS(syscall.EIO, func(op errorfs.Op) bool {
		if opening.Load() {
			return op.Kind == errorfs.OpCreate && strings.HasPrefix(filepath.Base(op.Path), "MANIFEST")
		}
		return op.Kind.ReadOrWrite() == errorfs.OpIsWrite
	})
	db := openTest(t, files, Options{now: time.now})
	mustSet(t, db, "key", "value")
	files.broken.Store(true)
	if err := set(db, "key", "lost"); err == nil {
		t.Fatal("the disk did not fail")
	}
	opening.Store(true)
	time.advance(retryInterval)
	if err := set(db, "key", "lost"); !errors.Is(err, kv.ErrUnavailable) {
		t.Fatalf("opening the folder again: %v", err)
	}
	if _, err := get(db, "key"); !errors.Is(err, kv.ErrUnavailable) {
		t.Fatalf("a read while the folder cannot be opened: %v", err)
	}
	files.broken.Store(false)
	time.advance(retryInterval)
	wantValue(t, db, "key", "value")
}
