package pebblekv

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/cockroachdb/pebble/v2/wal"
)

// Pebble's log is blocks of 32 KiB filled with chunks. A chunk has a header:
// checksum (4 bytes), length of the payload (2), type (1), number of the log (4),
// and in most types a sync offset (8). No chunk crosses the end of a block. See
// Pebble's package record.
const (
	logBlock = 32 << 10

	chunkSum        = 0 // offsets in the header
	chunkLength     = 4
	chunkType       = 6
	chunkNumber     = 7
	chunkSyncOffset = 11

	// A chunk is a whole record, or the first, a middle or the last part of one.
	// Chunks of the types from firstPlain to lastPlain have no sync offset: Pebble
	// writes them to the first log of a new store.
	firstPlain  = 5
	lastPlain   = 8
	plainHeader = 11
	firstSync   = 9
	lastSync    = 12
	syncHeader  = 19
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is the checksum of a chunk, whose first 4 bytes it is not about.
func checksum(chunk []byte) uint32 {
	sum := crc32.Checksum(chunk[chunkType:], castagnoli)
	return sum>>15 | sum<<17 + 0xa282ead8
}

// chunkSize returns the size of the chunk that p begins with, as its header has
// it. It is 0 if p does not begin with the header of a chunk of that log.
func chunkSize(p []byte, log wal.NumWAL) int {
	if len(p) < plainHeader || binary.LittleEndian.Uint32(p[chunkNumber:]) != uint32(log) {
		return 0
	}
	size := int(binary.LittleEndian.Uint16(p[chunkLength:]))
	switch kind := p[chunkType]; {
	case kind >= firstPlain && kind <= lastPlain:
		size += plainHeader
	case kind >= firstSync && kind <= lastSync:
		size += syncHeader
	default:
		return 0
	}
	if size > len(p) {
		return 0
	}
	return size
}

// intact reports whether a chunk is what was written.
func intact(chunk []byte) bool {
	return binary.LittleEndian.Uint32(chunk[chunkSum:]) == checksum(chunk)
}

func hasSyncOffset(chunk []byte) bool { return chunk[chunkType] >= firstSync }

func syncOffset(chunk []byte) int64 {
	return int64(binary.LittleEndian.Uint64(chunk[chunkSyncOffset:]))
}

// isTrailer reports whether p begins with what ends a log that was closed: the
// header of a chunk without a payload or checksum, with the number of the next
// log.
func isTrailer(p []byte, log wal.NumWAL) bool {
	return len(p) >= plainHeader && p[chunkType] == firstPlain &&
		binary.LittleEndian.Uint32(p[chunkSum:]) == 0 && binary.LittleEndian.Uint16(p[chunkLength:]) == 0 &&
		binary.LittleEndian.Uint32(p[chunkNumber:]) == uint32(log)+1
}

// logFile is a log that Pebble writes to.
//
// A log that ends before its file does was cut short by a crash, or it is
// damaged. What tells them apart is the sync offset in later chunks: all before
// it was synced when they were written, so it must be readable. But Pebble counts
// only what it writes to a block that is not full yet, so its sync offsets fall
// ever further behind: in a log of 10 MB they ended at about 2 MB, and damage
// after that looked like a crash. So they are put right on their way to the
// file. The mark says the same for the chunks that have no later ones.
type logFile struct {
	file
	log     wal.NumWAL
	mark    *mark
	written int64
	synced  int64
	buffer  []byte
}

// Write implements vfs.File. Pebble writes whole chunks, and to one block at a
// time.
func (f *logFile) Write(p []byte) (int, error) {
	f.buffer = append(f.buffer[:0], p...)
	for rest := f.buffer; ; {
		size := chunkSize(rest, f.log)
		if size == 0 {
			break
		}
		chunk := rest[:size]
		if rest = rest[size:]; hasSyncOffset(chunk) && syncOffset(chunk) < f.synced {
			binary.LittleEndian.PutUint64(chunk[chunkSyncOffset:], uint64(f.synced))
			binary.LittleEndian.PutUint32(chunk[chunkSum:], checksum(chunk))
		}
	}
	n, err := f.file.Write(f.buffer)
	f.written += int64(n)
	return n, err
}

func (f *logFile) Sync() error { return f.noteSync(f.file.Sync()) }

func (f *logFile) SyncData() error { return f.noteSync(f.file.SyncData()) }

// noteSync takes note of the outcome of a sync. When the disk has failed there
// was none, whatever Pebble is to believe.
func (f *logFile) noteSync(err error) error {
	if err == nil && f.disk.err() == nil {
		f.synced = f.written
		f.mark.set(position{f.log, f.synced})
	}
	return err
}
