// Package crashfs is a file system in memory for tests that cut the power.
package crashfs

import (
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// FS is a crashable vfs.MemFS whose CrashClone may be called while others use it. A plain MemFS may
// block for good then: ReuseForWrite takes the same read lock twice, and a CrashClone that waits
// for the write lock in between stops both.
type FS struct {
	*vfs.MemFS
	reusing sync.RWMutex // held by ReuseForWrite for reading
}

// New returns an empty file system.
func New() *FS { return &FS{MemFS: vfs.NewCrashableMem()} }

// ReuseForWrite implements vfs.FS.
func (f *FS) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f.reusing.RLock()
	defer f.reusing.RUnlock()
	return f.MemFS.ReuseForWrite(from, to, category)
}

// CrashClone returns the file system after a power cut.
func (f *FS) CrashClone(cfg vfs.CrashCloneCfg) *FS {
	f.reusing.Lock()
	defer f.reusing.Unlock()
	return &FS{MemFS: f.MemFS.CrashClone(cfg)}
}
