package pebblekv

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io/fs"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// A block of a table ends with how it is compressed (1 byte) and a checksum of
// everything before (4 bytes). See Pebble's package sstable/block.
const blockSum = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errBlock = fmt.Errorf("%w: checksum mismatch", pebble.ErrCorruption)

// tableFile is a table that Pebble reads. It checks the checksum of each block before Pebble does.
//
// When a checksum does not match, Pebble looks for a single flipped bit, which for a block of
// 16 KiB takes half a second of processor time, for an item of 1 MB a minute, at every read, and
// no context ends it. Thus one damaged item would stop the writers of all queues. An error of
// ReadAt makes Pebble skip the search.
type tableFile struct {
	vfs.File
	path string
}

// ReadAt implements vfs.File. Pebble reads one block at a time, and the footer, which
// ends where the file ends and has a checksum of another kind.
func (f *tableFile) ReadAt(p []byte, offset int64) (int, error) {
	n, err := f.File.ReadAt(p, offset)
	if err != nil || intactBlock(p[:n]) {
		return n, err
	}

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

// tableFS is a file system whose tables are read as tableFile does.
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
	return at > 0 && binary.LittleEndian.Uint32(block[at:]) == masked(crc32.Checksum(block[:at], castagnoli))
}

// masked returns a CRC as Pebble stores it.
func masked(sum uint32) uint32 { return (sum>>15 | sum<<17) + 0xa282ead8 }
