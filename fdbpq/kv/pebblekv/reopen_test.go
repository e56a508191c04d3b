package pebblekv

import (
	"fmt"
	"log/slog"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
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
	o := Options{FS: noCompactionFS{files}, Logger: slog.New(slog.DiscardHandler)}
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
