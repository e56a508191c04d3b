package pebblekv

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"
)

// backupFS is the file system that Pebble writes a copy to. Unlike a failure of the disk of
// the store, one of this is told to Pebble. It fails when ctx ends.
type backupFS struct {
	vfs.FS
	ctx context.Context
}

// backupOf returns the file system for a file of a backup, nil for one of the store.
func (d *disk) backupOf(name string) *backupFS {
	b := d.backup.Load()
	if b == nil || filepath.Dir(name) == d.dir {
		return nil
	}
	return b
}

// Link implements vfs.FS. Only backups link files. Pebble copies a file that cannot be linked,
// except after some errors that file systems without links also return.
func (d *disk) Link(oldname, newname string) error {
	if b := d.backupOf(newname); b != nil && b.ctx.Err() != nil {
		return errNoLink
	}
	if err := d.FS.Link(oldname, newname); err != nil {
		return errNoLink
	}
	return nil
}

var errNoLink = errors.New("pebblekv: the file cannot be linked")

// Create implements vfs.FS.
func (b *backupFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := b.ctx.Err(); err != nil {
		return nil, err
	}
	f, err := b.FS.Create(name, category)
	if err != nil {
		return nil, err
	}
	return &backupFile{f, b.ctx}, nil
}

type backupFile struct {
	vfs.File
	ctx context.Context
}

func (f *backupFile) Write(p []byte) (int, error) {
	if err := f.ctx.Err(); err != nil {
		return 0, err
	}
	return f.File.Write(p)
}

// writtenPart reads the beginning of a log that Pebble writes to: what was written when it
// was opened. Everything after that may change while it is read, and a copy with a hole in
// it looks damaged.
type writtenPart struct {
	vfs.File
	left int64
}

// Read implements vfs.File.
func (f *writtenPart) Read(p []byte) (int, error) {
	if f.left <= 0 {
		return 0, io.EOF
	}
	n, err := f.File.Read(p[:min(int64(len(p)), f.left)])
	f.left -= int64(n)
	return n, err
}

// newLog returns what counts the bytes written to a new log, nil if it is another file.
func (d *disk) newLog(name string) *atomic.Int64 {
	log, _, ok := wal.ParseLogFilename(filepath.Base(name))
	if !ok {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.logs[log] = new(atomic.Int64)
	return d.mu.logs[log]
}

// log returns how much was written to a log, nil for other files and for logs of earlier
// processes.
func (d *disk) log(name string) *atomic.Int64 {
	log, _, ok := wal.ParseLogFilename(filepath.Base(name))
	if !ok || filepath.Dir(name) != d.dir {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.logs[log]
}

// forgetLog is called before a log is removed or reused.
func (d *disk) forgetLog(name string) {
	if log, _, ok := wal.ParseLogFilename(filepath.Base(name)); ok {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.mu.logs, log)
	}
}
