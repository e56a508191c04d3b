package pebblekv

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"unicode"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"
)

// checkLogs returns an error wrapping errDamaged if a log lacks something that was
// synced. At the end of a log, Pebble's recovery would not notice and would open the
// store without it.
//
// That can happen to the newest log and to the one in the mark, which differ only if
// nothing was synced since the newest began. Pebble itself requires all others to end
// with a trailer.
func checkLogs(files vfs.FS, dir string) error {
	names, err := logNames(files, dir)
	if err != nil {
		return err
	}
	marked, err := readLogMark(files, dir)
	if err != nil {
		return err
	}
	newest := wal.NumWAL(0)
	for log := range names {
		newest = max(newest, log)
	}
	if marked.log > newest {
		return fmt.Errorf("%w: the newest log, number %06d, is missing; %d bytes of it had been synced: "+
			"restore the folder from a backup, or give up the transactions in that log with: rm %s",
			errDamaged, marked.log, marked.offset, quoted(logMarkPath(files, dir)))
	}
	for log, name := range names {
		if log < newest && log != marked.log {
			continue
		}
		path := files.PathJoin(dir, name)
		found, err := scanLog(files, path, log)
		if err != nil {
			return err
		}
		if log == marked.log {
			found.synced = max(found.synced, marked.offset)
		}
		if found.readable >= found.synced {
			continue
		}
		remove := []string{quoted(logMarkPath(files, dir))}
		for later, name := range names {
			if later > log {
				remove = append(remove, quoted(files.PathJoin(dir, name)))
			}
		}
		return fmt.Errorf("%w: log %s can be read up to byte %d, but was synced up to byte %d: "+
			"restore the folder from a backup, or give up everything after that with: truncate -s %d %s && rm %s",
			errDamaged, path, found.readable, found.synced, found.readable, quoted(path), strings.Join(remove, " "))
	}
	return nil
}

// checkMarker returns an error wrapping errDamaged if the folder has parts of a store
// but no marker that names its manifest. Pebble would take it for a new folder and
// delete them.
func checkMarker(files vfs.FS, dir string) error {
	found, err := files.List(dir)
	if err != nil {
		return err
	}
	var part string
	for _, name := range found {
		_, _, isLog := wal.ParseLogFilename(name)
		switch {
		case strings.HasPrefix(name, "marker.manifest."):
			return nil
		case isLog, isTable(name): // created only after the marker
			part = name
		}
	}
	if part == "" {
		return nil
	}
	return fmt.Errorf("%w: %s exists, but the file marker.manifest.*, which says what belongs to the store, does not: "+
		"restore the folder from a backup", errDamaged, files.PathJoin(dir, part))
}

// quoted quotes a path for a shell if necessary.
func quoted(path string) string {
	if !strings.ContainsFunc(path, func(c rune) bool {
		return !strings.ContainsRune("/._-", c) && !unicode.IsLetter(c) && !unicode.IsDigit(c)
	}) {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

// explainDamage adds to Pebble's error about a damaged folder what to do, and which
// logs it may be about. All but the newest were closed.
func explainDamage(files vfs.FS, dir string, err error) error {
	if !pebble.IsCorruptionError(err) {
		return err
	}
	err = fmt.Errorf("%w: restore the folder from a backup", err)
	names, listErr := logNames(files, dir)
	if listErr != nil {
		return err
	}
	logs := slices.Sorted(maps.Keys(names))
	for _, log := range logs[:max(0, len(logs)-1)] {
		path := files.PathJoin(dir, names[log])
		if found, scanErr := scanLog(files, path, log); scanErr != nil || !found.closed {
			err = fmt.Errorf("%w; log %s can be read up to byte %d", err, path, found.readable)
		}
	}
	return err
}

// logNames returns the names of the logs in the folder.
func logNames(files vfs.FS, dir string) (map[wal.NumWAL]string, error) {
	found, err := files.List(dir)
	if err != nil {
		return nil, err
	}
	names := make(map[wal.NumWAL]string)
	for _, name := range found {
		if log, _, ok := wal.ParseLogFilename(name); ok {
			names[log] = name
		}
	}
	return names, nil
}

// extent is how long a log is.
type extent struct {
	readable int64 // up to where it can be read
	synced   int64 // up to where it was synced, by its own sync offsets
	closed   bool  // it ends with a trailer
}

func scanLog(files vfs.FS, path string, log wal.NumWAL) (extent, error) {
	f, err := files.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return extent{}, err
	}
	defer func() { _ = f.Close() }()
	s := logScan{log: log, whole: true}
	block := make([]byte, logBlock)
	for offset := int64(0); ; offset += logBlock {
		n, err := io.ReadFull(f, block)
		s.block(offset, block[:n])
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return s.extent, nil
		case err != nil:
			return extent{}, fmt.Errorf("%s: %w", path, err)
		}
	}
}

// logScan reads a log block by block.
type logScan struct {
	extent
	log   wal.NumWAL
	whole bool // everything so far was intact
}

// block reads the block at an offset; only the last one may be short. After damage it
// continues, for the sync offsets in later chunks: behind the damaged chunk if its
// header says where it ends, or else in the next block.
func (s *logScan) block(offset int64, block []byte) {
	p := block
	for len(p) > 0 {
		size := chunkSize(p, s.log)
		switch {
		case size > 0 && intact(p[:size]):
			if hasSyncOffset(p) {
				s.synced = max(s.synced, syncOffset(p))
			}
		case size > 0:
			s.whole = false
		case isTrailer(p, s.log):
			size = plainHeader
			s.closed = s.whole
		case isPadding(p, len(block)):
			size = len(p)
		default:
			s.whole = false
			return
		}
		p = p[size:]
		if s.whole {
			s.readable = offset + int64(len(block)-len(p))
		}
	}
}

// isPadding reports whether p, the rest of a block, is the padding of a block that has
// no room for another chunk.
func isPadding(p []byte, block int) bool {
	if block < logBlock || len(p) >= syncHeader {
		return false
	}
	for _, b := range p {
		if b != 0 {
			return false
		}
	}
	return true
}

func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) || os.IsNotExist(err) {
		return nil
	}
	return err
}
