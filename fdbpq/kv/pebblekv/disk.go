package pebblekv

import (
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// diskFS is the file system that Pebble writes to. It makes the first failed write look like a
// power cut: from then on nothing reaches the folder.
//
// After most failed writes Pebble would exit the process, panic with its locks held, or unlock a
// mutex twice, and it could delete files that a manifest still needs. So Pebble is not told. The
// failure is recorded before the write returns. Everything after it pretends to succeed:
//
//	writes to the log and the manifest  are dropped
//	writes to tables                    fail
//	new files                           are kept in memory
//	new tables of a compaction          wait until the store is closed, then fail
//	removals                            do nothing
//	reads of older files                go on
//
// A listing of the folder that fails after Pebble has begun to write counts as a failed write.
//
// So Pebble stays consistent in memory, its readers continue, and it can be closed. Its results
// mean nothing: check err after every sync that is waited for.
type diskFS struct {
	vfs.FS
	dir    string
	logger *slog.Logger
	after  *vfs.MemFS // files created after the failure

	// logs has how many bytes were written to each log that was begun since the folder was opened,
	// as an *atomic.Int64 by the name of the log.
	logs sync.Map

	backup atomic.Pointer[backupFS] // where Pebble is writing a copy of the folder, or nil

	once     sync.Once
	cause    error         // set before failed is closed
	failed   chan struct{} // closed by the first failure
	released chan struct{} // closed by release
	written  atomic.Bool   // Pebble has created a file
	opened   atomic.Bool   // Pebble has opened the folder
}

func newDisk(dir string, o Options) (*diskFS, error) {
	d := &diskFS{
		FS:       tableFS{o.FS},
		dir:      dir,
		logger:   o.Logger,
		after:    vfs.NewMem(),
		failed:   make(chan struct{}),
		released: make(chan struct{}),
	}

	return d, d.after.MkdirAll(dir, 0o755)
}

// fail declares the disk failed. Only the first call counts.
func (d *diskFS) fail(cause error) {
	d.once.Do(func() {
		d.cause = cause
		close(d.failed)
		d.logger.Error("pebblekv: the disk failed, nothing more is written", "error", cause.Error())
	})
}

// err returns the first failure, nil if there was none.
func (d *diskFS) err() error {
	select {
	case <-d.failed:
		return d.cause
	default:
		return nil
	}
}

// release ends the wait of compactions on a failed disk, so that Pebble can be closed. Call it only
// once.
func (d *diskFS) release() { close(d.released) }

// backupOf returns the file system of a backup if the file name belongs to one, or nil.
func (d *diskFS) backupOf(name string) *backupFS {
	b := d.backup.Load()
	if b == nil || filepath.Dir(name) == d.dir {
		return nil
	}
	return b
}

// beginLog returns the counter of the bytes written to a new log, or nil for any other file.
func (d *diskFS) beginLog(path string) *atomic.Int64 {
	if !isLog(path) {
		return nil
	}
	written := new(atomic.Int64)
	d.logs.Store(filepath.Base(path), written)
	return written
}

// Create implements vfs.FS.
func (d *diskFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if b := d.backupOf(name); b != nil {
		return b.Create(name, category)
	}

	d.written.Store(true)
	table := isTable(name)
	if d.err() == nil {
		f, err := d.FS.Create(name, category)
		if err == nil {
			return &diskFile{File: f, disk: d, table: table, written: d.beginLog(name)}, nil
		}
		d.fail(err)
	}

	// Only a compaction creates tables that are not part of a flush. Its tables would fill the
	// memory, so it waits, except while Pebble opens the folder and waits for the compaction.
	if table && category != categoryFlush {
		if d.opened.Load() {
			<-d.released
		}
		return nil, d.cause
	}

	return d.after.Create(name, category)
}

// ReuseForWrite implements vfs.FS. Pebble reuses old logs with it.
func (d *diskFS) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if d.err() == nil {
		d.logs.Delete(filepath.Base(from))
		f, err := d.reuse(from, to, category)
		if err == nil {
			return f, nil
		}
		d.fail(err)
	}
	return d.after.Create(to, category)
}

// reuse also gets the size of the file, because Pebble panics if it then cannot get it itself.
func (d *diskFS) reuse(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.ReuseForWrite(from, to, category)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return &diskFile{File: f, disk: d, reused: info, written: d.beginLog(to)}, nil
}

func (d *diskFS) OpenDir(name string) (vfs.File, error) {
	if b := d.backupOf(name); b != nil && name != d.dir {
		return b.OpenDir(name)
	}
	f, err := d.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &diskFile{File: f, disk: d}, nil
}

func (d *diskFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if d.err() != nil {
		if f, err := d.after.Open(name); err == nil {
			return f, nil
		}
	}

	f, err := d.FS.Open(name, opts...)
	if err != nil {
		return nil, err
	}
	if filepath.Dir(name) != d.dir {
		return f, nil
	}

	// A backup copies the logs while Pebble writes to them.
	if written, begun := d.logs.Load(filepath.Base(name)); begun {
		return &writtenPart{f, io.LimitReader(f, written.(*atomic.Int64).Load())}, nil
	}

	return f, nil
}

// Link implements vfs.FS. Only backups link files. Pebble copies a file that cannot be linked, but
// not after every error that file systems without links return, so all errors become errNoLink.
func (d *diskFS) Link(oldname, newname string) error {
	b := d.backupOf(newname)
	if b != nil && b.ctx.Err() != nil || d.FS.Link(oldname, newname) != nil {
		return errNoLink
	}
	return nil
}

var errNoLink = errors.New("pebblekv: the file cannot be linked")

// List implements vfs.FS. After Pebble has flushed what it found in its log, it lists the folder
// once more, to see what can be removed. It is not told if that fails: in the background it reads
// the new tables, and a failing Open would close what it reads with, which makes it panic.
func (d *diskFS) List(dir string) ([]string, error) {
	names, err := d.FS.List(dir)
	if err == nil || !d.written.Load() {
		return names, err
	}
	d.fail(err)
	return nil, nil
}

func (d *diskFS) Stat(name string) (vfs.FileInfo, error) {
	if d.err() != nil {
		if info, err := d.after.Stat(name); err == nil {
			return info, nil
		}
	}
	return d.FS.Stat(name)
}

func (d *diskFS) Rename(oldname, newname string) error {
	if b := d.backupOf(newname); b != nil {
		return b.Rename(oldname, newname)
	}

	if d.err() == nil {
		err := d.FS.Rename(oldname, newname)
		if err == nil {
			return nil
		}
		d.fail(err)
	}

	_ = d.after.Rename(oldname, newname) // The file may be older than the failure.
	return nil
}

// Remove implements vfs.FS. A file that cannot be removed does no harm, so this is not a failure of
// the disk.
func (d *diskFS) Remove(name string) error {
	if b := d.backupOf(name); b != nil {
		return b.Remove(name)
	}

	d.logs.Delete(filepath.Base(name))
	if d.err() == nil {
		return d.FS.Remove(name)
	}

	_ = d.after.Remove(name) // The file may be older than the failure.
	return nil
}

func (d *diskFS) Unwrap() vfs.FS { return d.FS }

// diskFile is a file or folder that was opened before any failure.
type diskFile struct {
	vfs.File
	disk *diskFS

	// table: the file is a table. It is read back, so pretending would make a broken table look
	// good, and Pebble copes with a table that fails.
	table bool

	// written counts the bytes of a log. It is nil for other files.
	written *atomic.Int64

	reused vfs.FileInfo // of a log that is reused, at the beginning; nil for other files
}

func (f *diskFile) Stat() (vfs.FileInfo, error) {
	if f.reused != nil {
		return f.reused, nil
	}
	return f.File.Stat()
}

// attempt runs a write operation unless the disk has failed. It returns the error that Pebble is
// told.
func (f *diskFile) attempt(op func() error) error {
	if f.disk.err() == nil {
		err := op()
		if err == nil {
			return nil
		}
		f.disk.fail(err)
	}
	if f.table {
		return errTable
	}

	return nil
}

var errTable = errors.New("pebblekv: the table was not written, because the disk failed")

func (f *diskFile) Write(p []byte) (int, error) {
	err := f.attempt(func() error {
		_, err := f.File.Write(p)
		return err
	})
	if err != nil {
		return 0, err
	}

	if f.written != nil {
		f.written.Add(int64(len(p)))
	}

	return len(p), nil
}

func (f *diskFile) Sync() error { return f.attempt(f.File.Sync) }

func (f *diskFile) SyncData() error { return f.attempt(f.File.SyncData) }

func (f *diskFile) SyncTo(length int64) (full bool, err error) {
	err = f.attempt(func() (err error) {
		full, err = f.File.SyncTo(length)
		return err
	})
	return full, err
}

func (f *diskFile) Preallocate(offset, length int64) error {
	if f.disk.err() != nil {
		return nil
	}
	// Some file systems do not support this optimization, so an error is not a failure.
	return f.File.Preallocate(offset, length)
}
