package pebblekv

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// folderInterval is the shortest time between two checks of the folder.
const folderInterval = 100 * time.Millisecond

// folderGuard notices when the folder of a store was removed, renamed or replaced, for
// example by another file system mounted over it. Open files continue to work then,
// and whatever is written to them is lost. It checks the lock file: without that,
// another process could use the folder too. It is safe for concurrent use.
type folderGuard struct {
	fs   vfs.FS
	lock string
	file fileID // of the lock
	now  func() time.Time

	mu   sync.Mutex
	next time.Time // when to check again
	gone error
}

// fileID identifies a file. It is zero on systems that have no such thing.
type fileID struct {
	device vfs.DeviceID
	number uint64
}

// newFolderGuard returns a guard of a folder whose lock is held.
func newFolderGuard(files vfs.FS, dir string, now func() time.Time) (*folderGuard, error) {
	f := &folderGuard{fs: files, lock: files.PathJoin(dir, "LOCK"), now: now}
	info, err := files.Stat(f.lock)
	if err != nil {
		return nil, fmt.Errorf("pebblekv: the lock of the folder %s: %w", dir, err)
	}
	f.file = identify(info)
	return f, nil
}

func identify(info vfs.FileInfo) fileID { return fileID{info.DeviceID(), fileNumber(info)} }

// check returns an error wrapping errGone if the folder is gone. It looks at most once
// in each folderInterval, unless it must.
func (f *folderGuard) check(must bool) error {
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
	info, err := f.fs.Stat(f.lock)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w: %w", errGone, err)
	case err != nil:
		return nil // That does not mean that it is gone.
	case identify(info) != f.file:
		return fmt.Errorf("%w: %s is a different file now", errGone, f.lock)
	}
	return nil
}
