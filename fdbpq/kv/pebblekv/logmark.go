package pebblekv

import (
	"encoding/binary"
	"hash/crc32"
	"log/slog"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"
)

const (
	// logMarkName is a name that Pebble neither uses nor reads.
	logMarkName = "SYNCED"
	// logMarkMagic is how the file begins; its last byte is the version.
	logMarkMagic = "pqsync\x00\x01"
	logMarkSize  = len(logMarkMagic) + 8 + 8 + 4
)

// position is a place in a log. The zero position is before all others.
type position struct {
	log    wal.NumWAL
	offset int64
}

// logMark is a file with the position up to which the newest log is synced. It is
// written after each sync and before anybody learns of that sync, but it is not
// synced itself. So it is exact however the process ends, and a power cut may leave
// an older one, which is true as well. It is also all that remains of a log that was
// cut off or removed.
//
// Without a mark a log is as safe, but less damage to it is noticed. So a failure
// here is not a failure of the disk.
type logMark struct {
	file   vfs.File // nil if it cannot be written
	logger *slog.Logger
	buffer [logMarkSize]byte
}

func logMarkPath(files vfs.FS, dir string) string { return files.PathJoin(dir, logMarkName) }

// openLogMark opens the mark of a folder for writing.
func openLogMark(files vfs.FS, dir string, logger *slog.Logger) *logMark {
	m := &logMark{logger: logger}
	f, err := files.OpenReadWrite(logMarkPath(files, dir), logCategory)
	if err != nil {
		m.failed(err)
		return m
	}
	m.file = f
	return m
}

// set is called after each sync of a log, by one goroutine at a time.
func (m *logMark) set(p position) {
	if m.file == nil {
		return
	}
	b := append(m.buffer[:0], logMarkMagic...)
	b = binary.LittleEndian.AppendUint64(b, uint64(p.log))
	b = binary.LittleEndian.AppendUint64(b, uint64(p.offset))
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	if _, err := m.file.WriteAt(b, 0); err != nil {
		m.failed(err)
		m.close()
	}
}

// failed reports that the mark cannot be written. The old one stays and stays true.
func (m *logMark) failed(err error) {
	m.logger.Warn("pebblekv: cannot write the file that says how far the log is synced; "+
		"the next start may not notice damage to the end of the log", "file", logMarkName, "error", err)
}

func (m *logMark) close() {
	if m.file != nil {
		_ = m.file.Close() // It was never synced either.
		m.file = nil
	}
}

// readLogMark returns the position in the mark of a folder, or the zero position if
// there is no readable mark.
func readLogMark(files vfs.FS, dir string) (position, error) {
	f, err := files.Open(logMarkPath(files, dir))
	if err != nil {
		return position{}, ignoreNotExist(err)
	}
	defer func() { _ = f.Close() }()
	b := make([]byte, logMarkSize)
	if _, err := f.ReadAt(b, 0); err != nil {
		return position{}, nil // It was never written, or was cut off.
	}
	sum := b[logMarkSize-4:]
	if string(b[:len(logMarkMagic)]) != logMarkMagic || binary.LittleEndian.Uint32(sum) != crc32.Checksum(b[:logMarkSize-4], castagnoli) {
		return position{}, nil
	}
	b = b[len(logMarkMagic):]
	return position{wal.NumWAL(binary.LittleEndian.Uint64(b)), int64(binary.LittleEndian.Uint64(b[8:]))}, nil
}
