package pebblekv

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// roomFS is a disk that fails writes for which there is no room. It has only the folder of a store.
type roomFS struct {
	*vfs.MemFS
	capacity atomic.Int64 // bytes
}

// used returns how many bytes the files have.
func (f *roomFS) used() (bytes int64) {
	names, _ := f.List(testDir)
	for _, name := range names {
		if info, err := f.Stat(f.PathJoin(testDir, name)); err == nil { // or it was removed
			bytes += info.Size()
		}
	}
	return bytes
}

func (f *roomFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	free := max(f.capacity.Load()-f.used(), 0)
	return vfs.DiskUsage{AvailBytes: uint64(free), TotalBytes: uint64(f.capacity.Load())}, nil
}

func (f *roomFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.wrap(f.MemFS.Create(name, c))
}

func (f *roomFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	return f.wrap(f.MemFS.ReuseForWrite(from, to, c))
}

func (f *roomFS) wrap(file vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &roomFile{File: file, disk: f}, nil
}

type roomFile struct {
	vfs.File
	disk   *roomFS
	offset int64
}

func (f *roomFile) Write(p []byte) (int, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}

	used := f.disk.used() + max(f.offset+int64(len(p))-info.Size(), 0)
	if used > f.disk.capacity.Load() {
		return 0, syscall.ENOSPC
	}
	n, err := f.File.Write(p)
	f.offset += int64(n)
	return n, err
}

// files returns the names and sizes of the files in the folder.
func (f *roomFS) files(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, name := range slices.Sorted(slices.Values(list(t, f))) {
		info, err := f.Stat(f.PathJoin(testDir, name))
		must(t, err)
		fmt.Fprintln(&all, name, info.Size())
	}
	return all.String()
}

// newFullToTheEnd returns a store on a disk that another program has filled to its end, and how
// many commits were acknowledged. Most are in logs, of which some files are used again.
func newFullToTheEnd(t *testing.T, o Options, size int) (*DB, *roomFS, int) {
	t.Helper()
	files := &roomFS{MemFS: vfs.NewMem()}
	files.capacity.Store(1 << 40)
	o.MemTableSize = 4 << 20
	db := openTest(t, files, o)
	value := make([]byte, size)
	rand.NewChaCha8([32]byte{}).Read(value)

	acked := 0
	for written := 0; written < 14<<20; acked++ {
		mustSet(t, db, fmt.Sprintf("%06d", acked+1), string(value))
		written += size + 100
	}

	files.capacity.Store(files.used())
	for err := error(nil); err == nil; { // there may be room in a log
		if err = set(db, fmt.Sprintf("%06d", acked+1), string(value)); err == nil {
			acked++
		} else if full := errors.Is(err, syscall.ENOSPC) && kv.MaybeCommitted(err); !full &&
			!errors.Is(err, kv.ErrUnavailable) { // as a flush noticed it first
			t.Fatalf("on a full disk: %v", err)
		}
	}
	return db, files, acked
}

// settled returns the files once nothing writes to them any more: the disk is full before a flush
// notices that.
func (f *roomFS) settled(t *testing.T) string {
	for last := ""; ; time.Sleep(20 * time.Millisecond) {
		now := f.files(t)
		if now == last {
			return now
		}
		last = now
	}
}

// After a disk was full to its end, room may be made in steps: the folder stays as it is until as
// much is free as the logs hold, in a service that goes on and in one that is started, and until
// then requests say how much that is.
func TestRoomInSteps(t *testing.T) {
	for _, c := range []struct {
		name           string
		starts, marked bool
		size           int
	}{
		{name: "goes on", marked: true, size: 50_000},
		{name: "goes on, small items", marked: true, size: 100},
		{name: "starts", starts: true, marked: true, size: 50_000},
		{name: "starts without a mark", starts: true, size: 50_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			var time clock
			o := Options{MinFreeSpace: -1, now: time.now}
			db, files, acked := newFullToTheEnd(t, o, c.size)
			if !c.marked {
				_ = db.Close() // Its disk has failed.
				remove(t, files, commitMarkPath(files, testDir))
			}

			const step = 100_000
			before := files.settled(t)
			free, need := 0, 0

			for {
				time.advance(retryInterval)
				if c.starts {
					_ = db.Close()
					db = openTest(t, files, o)
				}
				err := set(db, fmt.Sprintf("%06d", acked+1), "")
				if err == nil {
					break
				}

				if free >= proofSize { // enough for the proof that the disk can be written to
					_, figures, has := strings.Cut(err.Error(), "disk full: ")
					if has { // without figures it has not tried yet
						_, scanErr := fmt.Sscanf(figures, "%d bytes free, %d needed", &free, &need)
						must(t, scanErr)
					}
					if !errors.Is(err, kv.ErrUnavailable) || kv.MaybeCommitted(err) {
						t.Fatal(err)
					}
					wantErr(t, "Check", db.Check(), kv.ErrUnavailable)
				}
				if after := files.files(t); after != before {
					t.Fatalf("with %d bytes free the folder has\n%s, and had\n%s",
						free, after, before)
				}
				free += step
				files.capacity.Add(step)
			}

			if need < step || free > need+step {
				t.Errorf("it needs %d bytes, and went on with %d free", need, free)
			}
			checkAcked(t, db, acked+1)
			must(t, db.Check())
		})
	}
}
