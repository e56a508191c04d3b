package pebblekv

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The folder remembers its last backup through restarts. A backup is no backup of itself, and one
// that fails is none.
func TestLastBackup(t *testing.T) {
	files := vfs.NewMem()
	began := time.Now()
	db := openTest(t, files, Options{MinFreeSpace: -1})
	mustSet(t, db, "a", "b")

	if err := db.Backup(t.Context(), "missing/copy"); err == nil || !db.LastBackup().IsZero() {
		t.Errorf("%v: a backup at %v", err, db.LastBackup())
	}

	must(t, db.Backup(t.Context(), "copy"))
	made := db.LastBackup()
	if made.Before(began) || made.After(time.Now()) {
		t.Errorf("made at %v, between %v and now", made, began)
	}

	mustClose(t, db)
	if again := openTest(t, files, Options{MinFreeSpace: -1}); !again.LastBackup().Equal(made) {
		t.Errorf("after a restart: %v, want %v", again.LastBackup(), made)
	}

	copied, err := Open("copy", Options{FS: files, MinFreeSpace: -1})
	must(t, err)
	if at := copied.LastBackup(); !at.IsZero() {
		t.Errorf("the copy was backed up at %v", at)
	}

	mustClose(t, copied)
}

// The sizes of the store and of the free space are known as long as the file system tells, also
// after Close.
func TestFreeSpaceAndSize(t *testing.T) {
	files := vfs.NewMem()
	db := openTest(t, files, Options{MinFreeSpace: -1})
	files.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 12345, TotalBytes: 1 << 20})

	if free, err := db.FreeSpace(); free != 12345 || err != nil {
		t.Errorf("%d, %v", free, err)
	}

	before, err := db.Size()
	must(t, err)
	mustSet(t, db, "a", string(make([]byte, 100_000)))
	after, err := db.Size()
	must(t, err)

	if after-before < 100_000 {
		t.Errorf("%d bytes, then %d", before, after)
	}

	mustClose(t, db)
	if size, err := db.Size(); size < 100_000 || err != nil {
		t.Errorf("after the end: %d, %v", size, err)
	}
}
