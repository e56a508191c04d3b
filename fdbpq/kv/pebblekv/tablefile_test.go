package pebblekv

import (
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// tablePath returns the path of the largest table.
func tablePath(t *testing.T, files vfs.FS) (path string) {
	t.Helper()
	largest := int64(0)
	for _, name := range list(t, files) {
		info, err := files.Stat(files.PathJoin(testDir, name))
		must(t, err)
		if isTable(name) && info.Size() > largest {
			path, largest = files.PathJoin(testDir, name), info.Size()
		}
	}
	if path == "" {
		t.Fatal("no table")
	}
	return path
}

// An intact block and the footer are read as they are, and a damaged block is an error.
func TestIntactBlock(t *testing.T) {
	block := append([]byte("some bytes of a block"), 0)
	sum := masked(crc32.Checksum(block, castagnoli))
	block = binary.LittleEndian.AppendUint32(block, sum)
	if !intactBlock(block) {
		t.Error("an intact block")
	}
	for i := range block {
		block[i] ^= 1
		if intactBlock(block) {
			t.Errorf("byte %d is damaged", i)
		}
		block[i] ^= 1
	}
	if intactBlock(nil) {
		t.Error("no block")
	}
}
