package pebblekv

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/testenv/crashfs"
)

// logSizes returns the lengths of the logs in the folder, oldest first.
func logSizes(t *testing.T, files vfs.FS) []int64 {
	t.Helper()
	names := list(t, files)
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
		mustSet(t, db, fmt.Sprintf("%06d", n), value)
		if done() {
			return n
		}
	}
	t.Fatal("it did not come to that")
	return 0
}

// reserveUsed reports whether a log is as long as a reserved one, and longer than anybody wrote.
func reserveUsed(t *testing.T, files vfs.FS) bool {
	return slices.Contains(logSizes(t, files), minMemTableSize)
}

func hasReserve(files vfs.FS) bool {
	info, err := files.Stat(files.PathJoin(testDir, reserveName))
	return err == nil && info.Size() == minMemTableSize
}

// A store that is written to has logs whose blocks were written before, and nothing is lost with
// one when the power is cut. What an earlier process left unfinished is removed.
func TestWALReserve(t *testing.T) {
	files := crashfs.New()
	must(t, files.MkdirAll(testDir, 0o755))
	for _, name := range []string{reserveName, reserveName + ".new"} { // that of the version before
		writeFile(t, files, files.PathJoin(testDir, name), []byte("something else"))
	}
	db := openTest(t, files, Options{MemTableSize: minMemTableSize})
	isReserve := func(name string) bool { return strings.HasPrefix(name, reserveName) }
	if names := list(t, files); slices.ContainsFunc(names, isReserve) || reserveUsed(t, files) {
		t.Errorf("there is a reserve before anything was written: %q", names)
	}
	n := writeUntil(t, db, func() bool { return reserveUsed(t, files) && hasReserve(files) })
	left := files.CrashClone(vfs.CrashCloneCfg{})
	checkAcked(t, openTest(t, left, Options{MemTableSize: minMemTableSize}), n)

	// One that was not used is the first log of the next process.
	mustClose(t, db)
	again := openTest(t, files, Options{MemTableSize: minMemTableSize})
	if hasReserve(files) || !reserveUsed(t, files) {
		t.Errorf("the reserve was not used; logs of %d bytes", logSizes(t, files))
	}
	checkAcked(t, again, n)
	mustSet(t, again, fmt.Sprintf("%06d", n+1), "x")
	left = files.CrashClone(vfs.CrashCloneCfg{})
	checkAcked(t, openTest(t, left, Options{MemTableSize: minMemTableSize}), n+1)
}

// Without a reserve, or the mark of what is synced, everything still works.
func TestWithoutReserveOrMark(t *testing.T) {
	for name, c := range map[string]struct {
		file string
		kind errorfs.OpKind
	}{
		"make": {reserveName, errorfs.OpCreate}, "write": {reserveName, errorfs.OpFileWrite},
		"sync": {reserveName, errorfs.OpFileSync}, "use": {reserveName, errorfs.OpReuseForWrite},
		"open mark": {commitMarkName, errorfs.OpOpen}, "write mark": {commitMarkName, errorfs.OpFileWriteAt},
		"sync mark": {commitMarkName, errorfs.OpFileSync},
	} {
		t.Run(name, func(t *testing.T) {
			var failures atomic.Int64
			cause := error(syscall.ENOSPC)
			if name == "open mark" {
				cause = fs.ErrNotExist // or else it is there, and may say something
			}
			files := newFaultyFS(cause, func(op errorfs.Op) bool {
				fails := strings.HasPrefix(filepath.Base(op.Path), c.file) && op.Kind == c.kind
				if fails {
					failures.Add(1)
				}
				return fails
			})

			files.broken.Store(true)
			db := openTest(t, files, Options{MemTableSize: minMemTableSize})
			n := writeUntil(t, db, func() bool { return failures.Load() > 0 })
			mustClose(t, db)

			left := list(t, files)
			isReserve := func(file string) bool { return strings.HasPrefix(file, reserveName) }
			if c.file == reserveName && name != "use" && slices.ContainsFunc(left, isReserve) {
				t.Errorf("what failed was left behind: %q", left)
			}
			checkAcked(t, openTest(t, files, Options{}), n)
		})
	}
}

// The space that is kept free is not used for the reserve, and what one takes
// is given back when it is needed.
func TestWALReserveFreeSpace(t *testing.T) {
	files := vfs.NewMem()
	free := func(n uint64) { files.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: n, TotalBytes: 1 << 41}) }
	must(t, files.MkdirAll(testDir, 0o755))
	const keep = 100
	ready := func(s *walReserve) bool {
		s.prepare()
		s.maker.Wait()
		s.close()
		return s.ready
	}

	open := func() *walReserve { return newWALReserve(files, testDir, minMemTableSize, keep) }
	free(minMemTableSize + keep - 1)
	if ready(open()) || hasReserve(files) {
		t.Error("it was made of the space to keep free")
	}
	free(minMemTableSize + keep)
	if !ready(open()) || !hasReserve(files) {
		t.Error("it was not made though there was space")
	}
	free(keep - 1)
	if open().ready || hasReserve(files) {
		t.Error("it was kept on a disk that was full when the store was opened")
	}

	free(1 << 40)
	var time clock

	db := openTest(t, files, Options{MemTableSize: minMemTableSize, MinFreeSpace: keep, now: time.now})
	n := writeUntil(t, db, func() bool { return hasReserve(files) })
	db.store.disk.reserve.maker.Wait()

	free(keep - 1)
	time.advance(spaceInterval)
	wantErr(t, "a push to a full disk", set(db, "key", "value"), kv.ErrUnavailable)
	if hasReserve(files) {
		t.Error("it was kept while pushes are refused")
	}
	free(1 << 40)
	time.advance(spaceInterval)
	mustSet(t, db, fmt.Sprintf("%06d", n+1), "value")
}

// After a disk failure the reserve is not written any further.
func TestWALReserveOnFailedDisk(t *testing.T) {
	reached, release := make(chan struct{}), make(chan struct{})
	var writes atomic.Int64
	files := newFaultyFS(nil, func(op errorfs.Op) bool {
		if op.Kind == errorfs.OpFileWrite && filepath.Base(op.Path) == reserveName && writes.Add(1) == 1 {
			close(reached)
			<-release
		}
		return false
	})

	files.broken.Store(true)
	db := openTest(t, files, Options{MemTableSize: 4 << 20})
	writeUntil(t, db, func() bool { return writes.Load() > 0 })
	<-reached

	db.store.disk.fail(syscall.EIO)
	close(release)
	db.store.disk.reserve.maker.Wait()
	if n := writes.Load(); n != 1 {
		t.Errorf("%d writes, of which all but one were after the failure", n)
	}
	if names := list(t, files); slices.Contains(names, reserveName) {
		t.Errorf("files %q", names)
	}
}
