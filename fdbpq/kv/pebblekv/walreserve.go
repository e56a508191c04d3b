package pebblekv

import (
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// reserveStep is how many bytes are written between two syncs, so that the syncs
// of commits do not queue behind the whole file.
const reserveStep = 1 << 20

// walReserve keeps a preallocated file ready to become the next log. It is as long
// as a log gets and full of zeros, which Pebble reads as the end of the log.
//
// Syncing a log that grows also writes its new length and the location of its new blocks: a second
// write after the data, or a commit of the journal. Pebble reuses old logs for that reason, but at
// first it has none, then only short ones, and none from an earlier process.
//
// Without a preallocated file, syncs are only slower. So a failure here is not a
// failure of the disk.
type walReserve struct {
	fs   vfs.FS
	dir  string
	path string // of the file
	size int64
	keep uint64 // bytes of the disk to keep free

	stopped atomic.Bool    // Nothing more is written than the step under way.
	maker   sync.WaitGroup // create

	mu     sync.Mutex
	ready  bool
	making bool
}

// newWALReserve returns the reserve of a folder whose lock is held. A file that an
// earlier process prepared and did not use is ready at once, unless its space is
// needed: opening the store takes some.
func newWALReserve(fs vfs.FS, dir string, size int64, keep uint64) *walReserve {
	r := &walReserve{fs: fs, dir: dir, path: fs.PathJoin(dir, reserveName), size: size, keep: keep}
	_ = fs.Remove(r.path + ".new") // The version before may have left it.
	info, err := fs.Stat(r.path)
	if r.ready = err == nil && info.Size() == size && r.hasRoom(0); !r.ready {
		_ = fs.Remove(r.path) // It may not exist.
	}
	return r
}

// hasRoom reports whether the disk has that many bytes besides those to keep free.
func (r *walReserve) hasRoom(bytes int64) bool {
	usage, err := r.fs.GetDiskUsage(r.dir)
	return err != nil || usage.AvailBytes >= r.keep+uint64(bytes)
}

// close waits until nothing is written any more.
func (r *walReserve) close() {
	r.mu.Lock() // prepare starts nothing after this
	r.stopped.Store(true)
	r.mu.Unlock()
	r.maker.Wait()
}

// drop frees the space of the file.
func (r *walReserve) drop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ready {
		r.ready = false
		_ = r.fs.Remove(r.path) // A file left behind does no harm.
	}
}

// useAs turns the file into the log of that name. It reports false if there is no file, or if
// the old log that could be reused instead is as long.
func (r *walReserve) useAs(name, old string) (f vfs.File, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ready {
		return nil, false
	}
	if old != "" {
		if info, err := r.fs.Stat(old); err != nil || info.Size() >= r.size {
			return nil, false
		}
	}
	r.ready = false
	f, err := r.fs.ReuseForWrite(r.path, name, logCategory)
	return f, err == nil
}

// prepare starts making a file, unless there is one.
func (r *walReserve) prepare() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ready || r.making || r.stopped.Load() {
		return
	}

	r.making = true
	r.maker.Go(func() {
		ready := r.hasRoom(r.size) && r.create()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.making, r.ready = false, ready
	})
}

// create writes the file and reports whether all of it is durable. One that a process left
// unfinished is shorter.
func (r *walReserve) create() bool {
	f, err := r.fs.Create(r.path, logCategory)
	if err != nil {
		return false
	}

	zeros := make([]byte, min(reserveStep, r.size))
	left := r.size
	for err == nil && left > 0 && !r.stopped.Load() {
		n := min(left, int64(len(zeros)))
		clear(zeros) // Write may have changed them.
		if _, err = f.Write(zeros[:n]); err == nil {
			err = f.Sync()
			left -= n
		}
	}
	if f.Close() == nil && err == nil && left == 0 {
		return true
	}
	_ = r.fs.Remove(r.path)
	return false
}
