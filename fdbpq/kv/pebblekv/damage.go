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

// checkLogs returns an error wrapping errDamaged if a log lacks something that
// was synced. Pebble's recovery would not notice that, if it is at the end of
// the log, and would open the store without it.
//
// Only the newest log can be so, and the one with the mark, which is another only
// if nothing was synced since the newest began. Pebble wants all others to end
// with a trailer.
func checkLogs(files vfs.FS, dir string) error {
	names, err := logNames(files, dir)
	if err != nil {
		return err
	}
	marked, err := readMark(files, dir)
	if err != nil {
		return err
	}
	newest := wal.NumWAL(0)
	for log := range names {
		newest = max(newest, log)
	}
	if marked.log > newest {
		return fmt.Errorf("%w: the newest log, number %06d, is missing, of which %d bytes had been synced: "+
			"restore the folder from a backup, or give the transactions in that log up with: rm %s",
			errDamaged, marked.log, marked.offset, quoted(markPath(files, dir)))
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
		remove := []string{quoted(markPath(files, dir))}
		for later, name := range names {
			if later > log {
				remove = append(remove, quoted(files.PathJoin(dir, name)))
			}
		}
		return fmt.Errorf("%w: log %s can be read up to byte %d, but was synced up to byte %d: "+
			"restore the folder from a backup, or give what comes after that up with: truncate -s %d %s && rm %s",
			errDamaged, path, found.readable, found.synced, found.readable, quoted(path), strings.Join(remove, " "))
	}
	return nil
}

// checkMarker returns an error wrapping errDamaged if the folder has parts of a store
// but not the marker that says which manifest is in force. Pebble would take it for
// a new folder, and remove them.
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
		case isLog, isTable(name): // made only after the marker
			part = name
		}
	}
	if part == "" {
		return nil
	}
	return fmt.Errorf("%w: %s is there, and the file marker.manifest.* that says what belongs to the store is not: "+
		"restore the folder from a backup", errDamaged, files.PathJoin(dir, part))
}

// quoted quotes a path for a shell, if need be.
func quoted(path string) string {
	if !strings.ContainsFunc(path, func(c rune) bool {
		return !strings.ContainsRune("/._-", c) && !unicode.IsLetter(c) && !unicode.IsDigit(c)
	}) {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

// explainDamage adds to what Pebble says of a damaged folder what to do, and which
// logs it may mean. Those that are not the newest were closed.
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
	synced   int64 // up to where it was synced, as far as it says so itself
	closed   bool  // it has a trailer there
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
	whole bool // nothing was damaged or missing so far
}

// block reads the block at an offset, of which only the last may be shorter. After
// damage it goes on, for the sync offsets in what follows: past the chunk, if
// its header says where it ends, or else in the next block.
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

// isPadding reports whether p, the rest of a block, is too short for a chunk and
// so full of zeros.
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
