package pebblekv

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// logSizes returns the lengths of the logs in the folder, oldest first.
func logSizes(t *testing.T, files vfs.FS) []int64 {
	t.Helper()
	names, err := files.List(testDir)
	if err != nil {
		t.Fatal(err)
	}
	var sizes []int64
	for _, name := range names {
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

// writeUntil writes until done and returns how many values it wrote.
func writeUntil(t *testing.T, db *DB, done func() bool) int {
	t.Helper()
	value := strings.Repeat("x", 50_000)
	for n := 1; n <= 20_000; n++ {
		if err := set(db, fmt.Sprintf("%06d", n), value); err != nil {
			t.Fatal(err)
		}
		if done() {
			return n
		}
	}
	t.Fatal("it did not come to that")
	return 0
}

// spareUsed reports whether a log is as long as a spare one, and longer than
// anybody wrote.
func spareUsed(t *testing.T, files vfs.FS) bool {
	for _, size := range logSizes(t, files) {
		if size == minMemTableSize {
			return true
		}
	}
	return false
}

func hasSpare(files vfs.FS) bool {
	info, err := files.Stat(files.PathJoin(testDir, spareName))
	return err == nil && info.Size() == minMemTableSize
}

// A store that is written to has logs whose blocks were written before, and
// nothing is lost with one when the power is cut.
func TestSpareLog(t *testing.T) {
	files := vfs.NewCrashableMem()
	db := openTest(t, files, Options{MemTableSize: minMemTableSize})
	if hasSpare(files) || spareUsed(t, files) {
		t.Error("there is a spare log before anything was written")
	}
	n := writeUntil(t, db, func() bool { return spareUsed(t, files) && hasSpare(files) })
	left := files.CrashClone(vfs.CrashCloneCfg{})
	checkAcked(t, openTest(t, left, Options{MemTableSize: minMemTableSize}), n)

	// One that was not used is the first log of the next process.
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	again := openTest(t, files, Options{MemTableSize: minMemTableSize})
	if hasSpare(files) || !spareUsed(t, files) {
		t.Errorf("the spare log was left aside; logs of %d bytes", logSizes(t, files))
	}
	checkAcked(t, again, n)
	if err := set(again, fmt.Sprintf("%06d", n+1), "x"); err != nil {
		t.Error(err)
	}
	left = files.CrashClone(vfs.CrashCloneCfg{})
	checkAcked(t, openTest(t, left, Options{MemTableSize: minMemTableSize}), n+1)
}

// What an earlier process left behind that is no spare log is replaced.
func TestSpareLogOfOtherSize(t *testing.T) {
	files := vfs.NewMem()
	if err := files.MkdirAll(testDir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{spareName, newSpareName} {
		f, err := files.Create(files.PathJoin(testDir, name), logCategory)
		if err == nil {
			_, err = f.Write([]byte("something else"))
		}
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	db := openTest(t, files, Options{MemTableSize: minMemTableSize})
	if _, err := files.Stat(files.PathJoin(testDir, newSpareName)); err == nil {
		t.Error("the incomplete one is still there")
	}
	n := writeUntil(t, db, func() bool { return spareUsed(t, files) })
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	checkAcked(t, openTest(t, files, Options{}), n)
}

// Without a spare log everything goes on.
func TestNoSpareLog(t *testing.T) {
	for name, match := range map[string]func(errorfs.Op) bool{
		"make":  func(op errorfs.Op) bool { return op.Kind == errorfs.OpCreate },
		"write": func(op errorfs.Op) bool { return op.Kind == errorfs.OpFileWrite },
		"sync":  func(op errorfs.Op) bool { return op.Kind == errorfs.OpFileSync },
		"name":  func(op errorfs.Op) bool { return op.Kind == errorfs.OpRename },
		"use":   func(op errorfs.Op) bool { return op.Kind == errorfs.OpReuseForWrite },
	} {
		t.Run(name, func(t *testing.T) {
			failed := make(chan struct{}, 1)
			files := newFaultyFS(syscall.ENOSPC, func(op errorfs.Op) bool {
				if !strings.HasPrefix(filepath.Base(op.Path), spareName) || !match(op) {
					return false
				}
				select {
				case failed <- struct{}{}:
				default:
				}
				return true
			})
			files.broken.Store(true)
			db := openTest(t, files, Options{MemTableSize: minMemTableSize})
			times := 0
			n := writeUntil(t, db, func() bool {
				select {
				case <-failed:
					times++
				default:
				}
				return times == 3
			})
			if err := db.Close(); err != nil {
				t.Error(err)
			}
			left, err := files.List(testDir)
			if err != nil || name != "use" && slices.ContainsFunc(left, func(file string) bool { return strings.HasPrefix(file, spareName) }) {
				t.Errorf("what failed was left behind: %q, %v", left, err)
			}
			checkAcked(t, openTest(t, files, Options{}), n)
		})
	}
}

// The space that is kept free is not used for a spare log.
func TestSpareLogFreeSpace(t *testing.T) {
	files := vfs.NewMem()
	const size = 1 << 20
	for _, c := range []struct {
		free uint64
		want bool
	}{{size + 100, true}, {size + 99, false}} {
		s := newSpare(&diskOf{files, c.free}, testDir, size, 100)
		if err := files.MkdirAll(testDir, 0o755); err != nil {
			t.Fatal(err)
		}
		s.prepare()
		s.stopped.Wait()
		if f, ok := s.take(testDir + "/1.log"); ok != c.want {
			t.Errorf("with %d bytes free: %v, want %v", c.free, ok, c.want)
		} else if ok {
			_ = f.Close()
		}
		s.close()
	}
}

// diskOf is a file system with so much free space.
type diskOf struct {
	vfs.FS
	free uint64
}

func (d *diskOf) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: d.free}, nil
}
