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
)

const (
	ownerFolder fs.FileMode = 0o700
	// others is the permissions of the group and of everybody else.
	others fs.FileMode = 0o077
)

// tighten revokes the permissions of everybody but the owner on a folder, and so on what is in it. In
// one that belongs to another user, as in many containers, they stay.
func tighten(dir string, chmod func(string, fs.FileMode) error, logger *slog.Logger) {
	info, err := os.Stat(dir)
	if err == nil && info.Mode().Perm()&others != 0 {
		err = chmod(dir, info.Mode()&^others)
	}
	if err != nil {
		logger.Warn("pebblekv: other users may be able to read the data, "+
			"because the permissions of the folder cannot be changed", "folder", dir, "error", err)
	}
}

// folderInterval is the shortest time between two checks of the folder.
const folderInterval = 100 * time.Millisecond

// folderGuard notices when the folder of a store was removed, renamed or replaced, for
// example by another file system mounted over it. Open files continue to work then,
// and whatever is written to them is lost. It checks the lock file: without that,
// another process could use the folder too. It is safe for concurrent use.
type folderGuard struct {
	lock string
	file fs.FileInfo // of the lock
	now  func() time.Time

	mu   sync.Mutex
	next time.Time // when to check again
	gone error
}

// newFolderGuard returns a guard of a folder whose lock is held, and none with an error if the
// folder is not one of the operating system.
func newFolderGuard(dir string, now func() time.Time) (*folderGuard, error) {
	lock := filepath.Join(dir, "LOCK")
	file, err := os.Stat(lock)
	if err != nil {
		return nil, fmt.Errorf("pebblekv: the lock of the folder %s: %w", dir, err)
	}
	return &folderGuard{lock: lock, file: file, now: now}, nil
}

// check returns an error wrapping errGone if the folder is gone. It looks at most once
// in each folderInterval, unless it must. A folder without a guard is never gone.
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

// compareLock compares the lock with the one that was opened.
func (f *folderGuard) compareLock() error {
	file, err := os.Stat(f.lock)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w: %w", errGone, err)
	case err != nil:
		return nil // That does not mean that it is gone.
	case !os.SameFile(file, f.file):
		return fmt.Errorf("%w: %s is a different file now", errGone, f.lock)
	}
	return nil
}
