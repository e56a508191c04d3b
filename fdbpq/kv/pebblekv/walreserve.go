package pebblekv

import (
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	// spareName is no name that Pebble uses or looks at, and newSpareName that
	// of one that is not complete.
	spareName    = "SPARE"
	newSpareName = "SPARE.new"
	// spareStep is how much of it is written before a sync, so that the syncs
	// of commits do not wait behind all of it.
	spareStep = 1 << 20
	// logCategory is how Pebble names what it writes to its log.
	logCategory vfs.DiskWriteCategory = "pebble-wal"
)

// spare is a file that becomes the next log. It is as long as a log gets, full
// of zeros, which Pebble takes for the end.
//
// A sync of a log that grows has to write the new length too, and where the new
// blocks are: that is a second write after the data, or with a journal a commit
// of it. Pebble uses old logs again for that reason, but it has none at first,
// then short ones, and none of an earlier process.
//
// Without a spare a log is what it was without this: a bit slower. So whatever
// fails here is no failure of the disk.
type spare struct {
	fs   vfs.FS
	dir  string
	path string // when it is complete
	size int64
	keep uint64 // bytes of the disk to keep free

	mu      sync.Mutex
	ready   bool
	making  bool
	closed  bool
	stopped sync.WaitGroup // make
}

// newSpare returns the spare log of a folder, whose lock is held. One that an
// earlier process made and did not use is ready at once, unless its space is
// needed: to open the store takes some.
func newSpare(fs vfs.FS, dir string, size int64, keep uint64) *spare {
	s := &spare{fs: fs, dir: dir, path: fs.PathJoin(dir, spareName), size: size, keep: keep}
	_ = fs.Remove(fs.PathJoin(dir, newSpareName)) // There is one only if a process ended while it made it.
	info, err := fs.Stat(s.path)
	s.ready = err == nil && info.Size() == size && s.room(0)
	if !s.ready {
		_ = fs.Remove(s.path) // It may not be there.
	}
	return s
}

// room reports whether the disk has so many bytes besides those to keep free.
func (s *spare) room(bytes int64) bool {
	usage, err := s.fs.GetDiskUsage(s.dir)
	return err != nil || usage.AvailBytes >= s.keep+uint64(bytes)
}

// stop says that nothing must be written any more. What is under way goes on to
// the end of its step.
func (s *spare) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// close waits until nothing is written any more.
func (s *spare) close() {
	s.stop()
	s.stopped.Wait()
}

// drop gives the space of the spare log back.
func (s *spare) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready {
		s.ready = false
		_ = s.fs.Remove(s.path) // It would only lie around.
	}
}

func (s *spare) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// take makes the spare the log of that name. ok is false if there is none.
func (s *spare) take(name string) (f vfs.File, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ready {
		return nil, false
	}
	s.ready = false
	f, err := s.fs.ReuseForWrite(s.path, name, logCategory)
	return f, err == nil
}

// longer reports whether a log that could be used again is shorter than the
// spare, and there is one.
func (s *spare) longer(log string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ready {
		return false
	}
	info, err := s.fs.Stat(log)
	return err == nil && info.Size() < s.size
}

// prepare begins to make a spare, unless there is one.
func (s *spare) prepare() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ready || s.making || s.closed {
		return
	}
	s.making = true
	s.stopped.Go(func() {
		ready := s.make()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.making, s.ready = false, ready
	})
}

// make makes the file and reports whether it is there.
func (s *spare) make() bool {
	if !s.room(s.size) {
		return false
	}
	path := s.fs.PathJoin(s.dir, newSpareName)
	if s.write(path) && s.fs.Rename(path, s.path) == nil {
		return true
	}
	_ = s.fs.Remove(path) // It may not be there.
	return false
}

// write writes the file and reports whether all of it is durable.
func (s *spare) write(path string) bool {
	f, err := s.fs.Create(path, logCategory)
	if err != nil {
		return false
	}
	zeros := make([]byte, min(spareStep, s.size))
	left := s.size
	for err == nil && left > 0 && !s.isClosed() {
		n := min(left, int64(len(zeros)))
		if _, err = f.Write(zeros[:n]); err == nil {
			err = f.Sync()
			left -= n
		}
	}
	return f.Close() == nil && err == nil && left == 0
}
