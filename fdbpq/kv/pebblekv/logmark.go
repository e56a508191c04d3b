package pebblekv

import (
	"encoding/binary"
	"hash/crc32"
	"log/slog"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"
)

const (
	// markName is no name that Pebble uses or looks at.
	markName = "SYNCED"
	// markMagic is how the file begins; its last byte is the version.
	markMagic = "pqsync\x00\x01"
	markSize  = len(markMagic) + 8 + 8 + 4
)

// position is a place in a log. The zero position is before all.
type position struct {
	log    wal.NumWAL
	offset int64
}

// mark is a file with the position up to which the newest log is synced. It is
// written after each sync and before anybody is told of it, but it is not synced
// itself. So it is exact however the process ends; a power cut may leave an older
// one, which is true as well. It also remembers a log that was cut off or
// removed, of which nothing else tells.
//
// Without a mark a log is as safe, but less damage to it is noticed. So whatever
// fails here is no failure of the disk.
type mark struct {
	file   vfs.File // nil if it cannot be written
	logger *slog.Logger
	buffer [markSize]byte
}

func markPath(files vfs.FS, dir string) string { return files.PathJoin(dir, markName) }

// openMark opens the mark of a folder for writing.
func openMark(files vfs.FS, dir string, logger *slog.Logger) *mark {
	m := &mark{logger: logger}
	f, err := files.OpenReadWrite(markPath(files, dir), logCategory)
	if err != nil {
		m.failed(err)
		return m
	}
	m.file = f
	return m
}

// set is called by whoever synced a log, one after the other.
func (m *mark) set(p position) {
	if m.file == nil {
		return
	}
	b := append(m.buffer[:0], markMagic...)
	b = binary.LittleEndian.AppendUint64(b, uint64(p.log))
	b = binary.LittleEndian.AppendUint64(b, uint64(p.offset))
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	if _, err := m.file.WriteAt(b, 0); err != nil {
		m.failed(err)
		m.close()
	}
}

// failed says that the mark cannot be written. The old one stays and stays true.
func (m *mark) failed(err error) {
	m.logger.Warn("pebblekv: the file that says how far the log is synced cannot be written; "+
		"damage to the end of the log would not be noticed at the next start", "error", err)
}

func (m *mark) close() {
	if m.file != nil {
		_ = m.file.Close() // It was not synced either.
		m.file = nil
	}
}

// readMark returns the position in the mark of a folder, the zero position if it
// has none that can be read.
func readMark(files vfs.FS, dir string) (position, error) {
	f, err := files.Open(markPath(files, dir))
	if err != nil {
		return position{}, ignoreNotExist(err)
	}
	defer func() { _ = f.Close() }()
	b := make([]byte, markSize)
	if _, err := f.ReadAt(b, 0); err != nil {
		return position{}, nil // It was never written, or cut off.
	}
	sum := b[markSize-4:]
	if string(b[:len(markMagic)]) != markMagic || binary.LittleEndian.Uint32(sum) != crc32.Checksum(b[:markSize-4], castagnoli) {
		return position{}, nil
	}
	b = b[len(markMagic):]
	return position{wal.NumWAL(binary.LittleEndian.Uint64(b)), int64(binary.LittleEndian.Uint64(b[8:]))}, nil
}
