package pebblekv

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io/fs"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// blockSum is the size of the checksum at the end of a block, in bytes. It covers the block and the
// byte before it, which says how the block is compressed. See Pebble's package sstable/block.
const blockSum = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errBlock = fmt.Errorf("%w: checksum mismatch", pebble.ErrCorruption)

// tableFile is a table that Pebble reads. It checks the checksum of each block before Pebble does.
//
// When a checksum does not match, Pebble searches for a single flipped bit, at every read. For a
// block of 16 KiB that takes half a second of processor time, for an item of 1 MB a minute, and no
// context ends it. So one damaged item would stop the writers of all queues. After an error of
// ReadAt, Pebble does not search.
type tableFile struct {
	vfs.File
	path string
}

// ReadAt implements vfs.File. Pebble reads one block at a time.
func (f *tableFile) ReadAt(p []byte, offset int64) (int, error) {
	n, err := f.File.ReadAt(p, offset)
	if err != nil || intactBlock(p[:n]) {
		return n, err
	}

	// The footer, which ends with the file, has a checksum of another kind.
	info, err := f.Stat()
	if err != nil {
		return n, err
	}

	end := offset + int64(n)
	if end == info.Size() {
		return n, nil
	}

	damaged := fmt.Errorf("bytes %d to %d: %w", offset, end, errBlock)
	return n, &fs.PathError{Op: "read", Path: f.path, Err: damaged}
}

// tableFS is a file system whose tables are opened as a tableFile.
type tableFS struct{ vfs.FS }

func (t tableFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := t.FS.Open(name, opts...)
	if err != nil || !isTable(name) {
		return f, err
	}
	return &tableFile{File: f, path: name}, nil
}

func (t tableFS) Unwrap() vfs.FS { return t.FS }

// intactBlock reports whether a block matches its checksum.
func intactBlock(block []byte) bool {
	at := len(block) - blockSum
	if at <= 0 {
		return false
	}
	sum := crc32.Checksum(block[:at], castagnoli)
	masked := (sum>>15 | sum<<17) + 0xa282ead8 // as Pebble stores it
	return binary.LittleEndian.Uint32(block[at:]) == masked
}
