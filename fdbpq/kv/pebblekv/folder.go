package pebblekv

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

const (
	ownerFolder fs.FileMode = 0o700
	// othersMask has the permissions of the group and of everybody else.
	othersMask fs.FileMode = 0o077
)

// tighten revokes the permissions of everybody but the owner on a folder, which protects its files
// as well. They stay on a folder that belongs to another user, as in many containers.
func tighten(dir string, chmod func(string, fs.FileMode) error, logger *slog.Logger) {
	info, err := os.Stat(dir)
	if err == nil && info.Mode().Perm()&othersMask != 0 {
		err = chmod(dir, info.Mode()&^othersMask)
	}
	if err != nil {
		logger.Warn("pebblekv: other users may be able to read the data, "+
			"because the permissions of the folder cannot be changed", "folder", dir, "error", err)
	}
}

// lockFolder makes the folder if necessary, and locks it.
func lockFolder(dir string, files vfs.FS) (*pebble.Lock, error) {
	if err := files.MkdirAll(dir, ownerFolder); err != nil {
		return nil, fmt.Errorf("pebblekv: make the folder %s: %w", dir, err)
	}

	lock, err := pebble.LockDirectory(dir, files)
	if _, isPath := errors.AsType[*fs.PathError](err); isPath {
		return nil, fmt.Errorf("pebblekv: make the lock of the folder %s: %w", dir, err)
	}
	if err != nil {
		return nil, fmt.Errorf("pebblekv: folder %s %w: %w", dir, ErrInUse, err)
	}

	return lock, nil
}

// folderInterval is the shortest time between two checks of the folder.
const folderInterval = 100 * time.Millisecond

// folderGuard notices when the folder of a store was removed, renamed or replaced, for example by
// mounting another file system over it. Open files still work then, and whatever is written to
// them is lost. The guard checks the lock file, because without it another process could use the
// folder too. It is safe for concurrent use.
type folderGuard struct {
	lock string
	file fs.FileInfo // of the lock when it was opened
	now  func() time.Time

	mu   sync.Mutex
	next time.Time // when to check again
	gone error
}

// newFolderGuard returns a guard of a folder whose lock is held. It fails if the folder is not in
// the file system of the operating system.
func newFolderGuard(dir string, now func() time.Time) (*folderGuard, error) {
	lock := filepath.Join(dir, lockName)
	file, err := os.Stat(lock)
	if err != nil {
		return nil, fmt.Errorf("pebblekv: the lock of the folder %s: %w", dir, err)
	}
	return &folderGuard{lock: lock, file: file, now: now}, nil
}

// check returns an error wrapping errGone if the folder is gone. Unless must, it looks at most once
// in each folderInterval. A folder without a guard is never gone.
func (f *folderGuard) check(must bool) error {
	if f == nil {
		return nil
	}

	now := f.now()

	f.mu.Lock()
	defer f.mu.Unlock()
	if must || !now.Before(f.next) {
		f.next = now.Add(folderInterval)
		f.gone = f.compareLock()
	}

	return f.gone
}

// compareLock returns an error unless the lock is still the file that was opened.
func (f *folderGuard) compareLock() error {
	file, err := os.Stat(f.lock)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w: %w", errGone, err)
	case err != nil:
		return nil // This does not mean that it is gone.
	case !os.SameFile(file, f.file):
		return fmt.Errorf("%w: %s is a different file now", errGone, f.lock)
	}

	return nil
}

const (
	// spaceInterval is the shortest time between two queries of the free space.
	spaceInterval = 100 * time.Millisecond

	// shrinkDivisor: transactions that shrink the store may use the space kept free down to one
	// shrinkDivisor'th of it. They need some, because removals are logged too, and the bookkeeping
	// of a removal may be larger than the removed keys.
	shrinkDivisor = 4

	// flushDivisor: down to one flushDivisor'th, removals are flushed, which frees more than it
	// takes.
	flushDivisor = 8
)

// spaceGuard keeps part of the disk free, so that the store refuses a write before the disk does.
// It is safe for concurrent use.
type spaceGuard struct {
	fs  vfs.FS
	dir string
	min uint64 // bytes to keep free, or 0
	now func() time.Time
	log *slog.Logger

	mu       sync.Mutex
	next     time.Time // when to query again
	free     uint64    // bytes
	err      error
	low      bool      // growth was refused since the last log line
	nextLine time.Time // when there may be another
}

// check returns an error wrapping kv.ErrUnavailable if there is too little free space for a
// transaction that makes the store larger, or for one that does not.
func (s *spaceGuard) check(grows bool) error {
	if grows {
		err := s.want(s.min)
		s.noteRoom(err == nil)
		return err
	}
	return s.want(s.min / shrinkDivisor)
}

// noteRoom logs that the store grows again, after it was refused that. While the free space goes up
// and down around the limit, it does so once a minute.
func (s *spaceGuard) noteRoom(room bool) {
	s.mu.Lock()
	free, now := s.free, s.now()
	back := room && s.low && !now.Before(s.nextLine)
	s.low = !room || s.low && !back
	if back {
		s.nextLine = now.Add(time.Minute)
	}
	s.mu.Unlock()

	if back {
		s.log.Info("pebblekv: the disk has room again, and the store accepts pushes", "free", free)
	}
}

// want returns an error wrapping kv.ErrUnavailable if fewer bytes are free.
func (s *spaceGuard) want(need uint64) error {
	if need == 0 {
		return nil
	}
	free, err := s.query()
	if err != nil {
		return nil // Some file systems do not tell. A full disk will.
	}
	if free < need {
		return fmt.Errorf("%w: disk full: %d bytes free, %d needed", kv.ErrUnavailable, free, need)
	}

	return nil
}

// query returns the free space, as it was up to a spaceInterval ago.
func (s *spaceGuard) query() (free uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.now(); !now.Before(s.next) {
		s.next = now.Add(spaceInterval)
		var usage vfs.DiskUsage
		usage, s.err = s.fs.GetDiskUsage(s.dir)
		s.free = usage.AvailBytes
	}

	return s.free, s.err
}
