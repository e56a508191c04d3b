package pebblekv

import (
	"encoding/binary"
	"hash/crc32"
	"sync/atomic"

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

// checksum returns the checksum of a chunk. It covers everything from the type on.
func checksum(chunk []byte) uint32 {
	return masked(crc32.Checksum(chunk[chunkType:], castagnoli))
}

// chunkSize returns the size of the chunk at the start of p according to its header,
// or 0 if that is not the header of a chunk of that log.
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

// intact reports whether a chunk matches its checksum.
func intact(chunk []byte) bool {
	return binary.LittleEndian.Uint32(chunk[chunkSum:]) == checksum(chunk)
}

func hasSyncOffset(chunk []byte) bool { return chunk[chunkType] >= firstSync }

func syncOffset(chunk []byte) int64 {
	return int64(binary.LittleEndian.Uint64(chunk[chunkSyncOffset:]))
}

// isTrailer reports whether p begins with the trailer of a closed log: a chunk header
// without a payload or checksum, with the number of the next log.
func isTrailer(p []byte, log wal.NumWAL) bool {
	return len(p) >= plainHeader && p[chunkType] == firstPlain &&
		binary.LittleEndian.Uint32(p[chunkSum:]) == 0 && binary.LittleEndian.Uint16(p[chunkLength:]) == 0 &&
		binary.LittleEndian.Uint32(p[chunkNumber:]) == uint32(log)+1
}

// logFile is a log that Pebble writes to.
//
// A log whose records end before its file does was cut short by a crash, or it is
// damaged. The sync offsets in later chunks tell the two apart: everything before
// such an offset was synced when the chunk was written, so it must be readable. But
// Pebble counts only bytes it writes to blocks that are not full yet, so its offsets
// fall further and further behind: in a log of 10 MB they ended at about 2 MB, and
// damage after that looked like a crash. So logFile corrects them before they reach
// the file. For the last chunks, which no later chunk vouches for, there is the
// mark.
type logFile struct {
	file
	log     wal.NumWAL
	mark    *logMark
	written int64
	synced  *atomic.Int64
	buffer  []byte
}

// Write implements vfs.File. Pebble writes whole chunks, within one block.
func (f *logFile) Write(p []byte) (int, error) {
	f.buffer = append(f.buffer[:0], p...)
	for rest := f.buffer; ; {
		size := chunkSize(rest, f.log)
		if size == 0 {
			break
		}
		chunk := rest[:size]
		if rest = rest[size:]; hasSyncOffset(chunk) && syncOffset(chunk) < f.synced.Load() {
			binary.LittleEndian.PutUint64(chunk[chunkSyncOffset:], uint64(f.synced.Load()))
			binary.LittleEndian.PutUint32(chunk[chunkSum:], checksum(chunk))
		}
	}
	n, err := f.file.Write(f.buffer)
	f.written += int64(n)
	return n, err
}

func (f *logFile) Sync() error { return f.noteSync(f.file.Sync()) }

func (f *logFile) SyncData() error { return f.noteSync(f.file.SyncData()) }

// noteSync notes a sync that succeeded. After a disk failure there was none, whatever
// Pebble is told.
func (f *logFile) noteSync(err error) error {
	if err == nil && f.disk.err() == nil {
		f.synced.Store(f.written)
		f.mark.set(position{f.log, f.written})
	}
	return err
}
