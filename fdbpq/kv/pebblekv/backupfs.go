package pebblekv

import (
	"context"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// backupFS is the file system that Pebble writes a copy to. Pebble is told of its failures, unlike
// those of the disk of the store. It fails when ctx ends.
type backupFS struct {
	vfs.FS
	ctx context.Context
}

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

// writtenPart reads a log that Pebble still writes to, up to what had been written when it was
// opened. Everything after that may change while it is read, and a copy with a hole in it looks
// damaged.
type writtenPart struct {
	vfs.File
	left int64
}

func (f *writtenPart) Read(p []byte) (int, error) {
	if f.left <= 0 {
		return 0, io.EOF
	}
	n, err := f.File.Read(p[:min(int64(len(p)), f.left)])
	f.left -= int64(n)
	return n, err
}

// logLengths is how many bytes were written to each log that was begun since the folder was opened.
// It is safe for concurrent use.
type logLengths struct {
	mu      sync.Mutex
	written map[string]*atomic.Int64 // by the name of the log
}

// add returns the counter of the bytes written to a new log, or nil for any other file.
func (l *logLengths) add(path string) *atomic.Int64 {
	if !isLog(path) {
		return nil
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	if l.written == nil {
		l.written = make(map[string]*atomic.Int64)
	}

	n := new(atomic.Int64)
	l.written[filepath.Base(path)] = n
	return n
}

// of returns the counter of a log, or nil for other files and for logs of earlier processes.
func (l *logLengths) of(path string) *atomic.Int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.written[filepath.Base(path)]
}

// forget is called before a log is removed or reused.
func (l *logLengths) forget(path string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.written, filepath.Base(path))
}
