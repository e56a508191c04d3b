package pebblekv

import (
	"context"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// backupFS is the file system that Pebble writes a copy to. Pebble is told of its failures, unlike
// failures of the store's own disk. It fails when ctx ends.
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

// writtenPart reads a log that Pebble still writes to, up to its length when it was opened.
// Everything behind that may change while it is read, and a copy with a hole in it looks damaged.
type writtenPart struct {
	vfs.File
	written io.Reader
}

func (f *writtenPart) Read(p []byte) (int, error) { return f.written.Read(p) }
