package pebblekv

import (
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// reserveStep is how many bytes are written between two syncs, so that the syncs
// of commits do not queue behind the whole file.
const reserveStep = 1 << 20

// walReserve keeps a preallocated file ready to become the next log. It is as long
// as a log gets and full of zeros, which Pebble reads as the end of the log.
//
// Syncing a log that grows also writes its new length and the location of its new
// blocks: a second write after the data, or a commit of the journal. Pebble reuses
// old logs for that reason, but at first it has none, then only short ones, and
// none from an earlier process.
//
// Without a preallocated file, syncs are only slower. So a failure here is not a
// failure of the disk.
type walReserve struct {
	fs   vfs.FS
	dir  string
	path string // of the complete file
	size int64
	keep uint64 // bytes of the disk to keep free

	mu      sync.Mutex
	ready   bool
	making  bool
	stopped bool
	maker   sync.WaitGroup // create
}

// newWALReserve returns the reserve of a folder whose lock is held. A file that an
// earlier process prepared and did not use is ready at once, unless its space is
// needed: opening the store takes some.
func newWALReserve(fs vfs.FS, dir string, size int64, keep uint64) *walReserve {
	r := &walReserve{fs: fs, dir: dir, path: fs.PathJoin(dir, reserveName), size: size, keep: keep}

	// It exists only if a process ended while writing it.
	_ = fs.Remove(fs.PathJoin(dir, newReserveName))

	info, err := fs.Stat(r.path)
	r.ready = err == nil && info.Size() == size && r.hasRoom(0)
	if !r.ready {
		_ = fs.Remove(r.path) // It may not exist.
	}
	return r
}

// hasRoom reports whether the disk has that many bytes besides those to keep free.
func (r *walReserve) hasRoom(bytes int64) bool {
	usage, err := r.fs.GetDiskUsage(r.dir)
	return err != nil || usage.AvailBytes >= r.keep+uint64(bytes)
}

// stop forbids further writes. One that is under way ends with its step.
func (r *walReserve) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
}

// close stops and waits until nothing is written any more.
func (r *walReserve) close() {
	r.stop()
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

func (r *walReserve) isStopped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stopped
}

// useAs turns the file into the log of that name. ok is false if there is no file.
func (r *walReserve) useAs(name string) (f vfs.File, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ready {
		return nil, false
	}
	r.ready = false
	f, err := r.fs.ReuseForWrite(r.path, name, logCategory)
	return f, err == nil
}

// isLongerThan reports whether there is a file, and it is longer than a log that could be
// reused.
func (r *walReserve) isLongerThan(log string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ready {
		return false
	}
	info, err := r.fs.Stat(log)
	return err == nil && info.Size() < r.size
}

// prepare starts making a file, unless there is one.
func (r *walReserve) prepare() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ready || r.making || r.stopped {
		return
	}

	r.making = true
	r.maker.Go(func() {
		ready := r.create()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.making, r.ready = false, ready
	})
}

// create creates the file and reports success.
func (r *walReserve) create() bool {
	if !r.hasRoom(r.size) {
		return false
	}

	path := r.fs.PathJoin(r.dir, newReserveName)
	if r.writeZeros(path) && r.fs.Rename(path, r.path) == nil {
		return true
	}
	_ = r.fs.Remove(path) // It may not exist.
	return false
}

// writeZeros writes the file and reports whether all of it is durable.
func (r *walReserve) writeZeros(path string) bool {
	f, err := r.fs.Create(path, logCategory)
	if err != nil {
		return false
	}

	zeros := make([]byte, min(reserveStep, r.size))
	left := r.size
	for err == nil && left > 0 && !r.isStopped() {
		n := min(left, int64(len(zeros)))
		clear(zeros) // Write may have changed them.
		if _, err = f.Write(zeros[:n]); err == nil {
			err = f.Sync()
			left -= n
		}
	}
	return f.Close() == nil && err == nil && left == 0
}
