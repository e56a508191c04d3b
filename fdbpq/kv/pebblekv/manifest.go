package pebblekv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"
)

// A manifest is blocks as those of a log, see log.go, but its chunks have a shorter
// header: checksum (4 bytes), length of the payload (2) and type (1). A chunk is a
// whole record, or the first, a middle or the last part of one.
const (
	manifestHeader = 7

	wholeRecord = 1
	firstPart   = 2
	middlePart  = 3
	lastPart    = 4

	manifestPrefix = "MANIFEST-"
	manifestMarker = "manifest" // how Pebble names the marker
)

// manifestNumber returns the number of a manifest file, 0 if the name is that of
// another file.
func manifestNumber(name string) uint64 {
	digits, found := strings.CutPrefix(name, manifestPrefix)
	number, err := strconv.ParseUint(digits, 10, 64)
	if !found || err != nil {
		return 0
	}
	return number
}

// namedManifest returns the number of the manifest that a marker file names, 0 if
// the name is that of another file.
func namedManifest(name string) uint64 {
	value, found := strings.CutPrefix(name, "marker."+manifestMarker+".")
	if !found {
		return 0
	}
	_, value, _ = strings.Cut(value, ".") // behind the number of the marker
	return manifestNumber(value)
}

func manifestPath(files vfs.FS, dir string, number uint64) string {
	return files.PathJoin(dir, fmt.Sprintf("%s%06d", manifestPrefix, number))
}

// markedManifest returns the number of the manifest that is in force, 0 if the
// folder has no marker.
func markedManifest(files vfs.FS, dir string) (uint64, error) {
	name, err := atomicfs.ReadMarker(files, dir, manifestMarker)
	if err != nil || name == "" {
		return 0, err
	}
	number := manifestNumber(name)
	if number == 0 {
		return 0, fmt.Errorf("%w: the marker of the manifest names %q: restore the folder from a backup", errDamaged, name)
	}
	return number, nil
}

// checkManifest returns an error wrapping errDamaged if the manifest in force lacks
// something that was synced. Pebble would open the store without the tables that are
// listed there.
func checkManifest(files vfs.FS, dir string) error {
	number, err := markedManifest(files, dir)
	if err != nil {
		return err
	}
	mark, err := readManifestMark(files, dir)
	if err != nil {
		return err
	}
	path := manifestPath(files, dir, number)
	if number < mark.inForce.number {
		return replacedManifest(files, dir, number, mark.inForce.number)
	}
	if number == 0 {
		return nil // a new folder, or checkMarker knows better
	}
	synced := mark.of(number)
	found, err := scanManifest(files, path, synced.length)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: manifest %s, the list of the tables, is missing: restore the folder from a backup", errDamaged, path)
	}
	if err != nil {
		return err
	}
	var what string
	switch {
	case found.size < synced.length:
		what = fmt.Sprintf("is %d bytes long, but was synced up to byte %d", found.size, synced.length)
	case found.sum != synced.sum:
		what = fmt.Sprintf("can be read up to byte %d, but was synced up to byte %d, and that part has changed",
			found.readable, synced.length)
	case found.resumes:
		what = fmt.Sprintf("can be read up to byte %d, but more follows after that", found.readable)
	default:
		return nil
	}
	err = fmt.Errorf("%w: manifest %s, the list of the tables, %s: restore the folder from a backup", errDamaged, path, what)
	if found.readable == 0 {
		return err
	}
	return fmt.Errorf("%w; if there is none, what is listed before that may still be found in a copy of the folder, after: "+
		"truncate -s %d %s && rm -f %s", err, found.readable, quoted(path), quoted(manifestMarkPath(files, dir)))
}

// replacedManifest is the error of a folder that an older manifest, or none, was put
// in force in.
func replacedManifest(files vfs.FS, dir string, number, newest uint64) error {
	what := "is missing"
	if number != 0 {
		what = fmt.Sprintf("names %s", manifestPath(files, dir, number))
	}
	return fmt.Errorf("%w: the marker of the manifest, the list of the tables, %s, but %s was in force already: "+
		"restore the folder from a backup, all of it and into an empty folder",
		errDamaged, what, manifestPath(files, dir, newest))
}

// manifestExtent is how much of a manifest there is.
type manifestExtent struct {
	size     int64
	sum      uint32 // checksum of the part that was asked for
	readable int64  // where the last record ends that Pebble would read
	// resumes: a record begins after that. A power cut tears only the last one,
	// since each is synced before the next is written.
	resumes bool
}

// scanManifest reads a manifest, of which the first length bytes are summed up.
func scanManifest(files vfs.FS, path string, length int64) (manifestExtent, error) {
	f, err := files.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return manifestExtent{}, err
	}
	defer func() { _ = f.Close() }()
	s := manifestScan{whole: true}
	buffer := make([]byte, logBlock)
	for {
		n, err := io.ReadFull(f, buffer)
		block := buffer[:n]
		s.sum = crc32.Update(s.sum, castagnoli, block[:max(0, min(int64(n), length-s.size))])
		s.block(block)
		s.size += int64(n)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return s.manifestExtent, nil
		case err != nil:
			return manifestExtent{}, fmt.Errorf("%s: %w", path, err)
		}
	}
}

// manifestScan reads a manifest block by block.
type manifestScan struct {
	manifestExtent
	whole    bool // everything so far was intact
	inRecord bool // the parts so far are not a whole record
}

// block reads the next block, of which only the last is shorter. After damage no
// header can be trusted, so every place is tried.
func (s *manifestScan) block(block []byte) {
	at := 0
	for s.whole && len(block)-at >= manifestHeader {
		size := manifestChunkSize(block[at:])
		kind := block[at+chunkType]
		continues := kind == middlePart || kind == lastPart
		if size == 0 || continues != s.inRecord {
			s.whole = false
			break
		}
		at += size
		s.inRecord = kind == firstPart || kind == middlePart
		if !s.inRecord {
			s.readable = s.size + int64(at)
		}
	}
	for ; !s.whole && !s.resumes && len(block)-at > manifestHeader; at++ {
		kind := block[at+chunkType]
		s.resumes = (kind == wholeRecord || kind == firstPart) && manifestChunkSize(block[at:]) > manifestHeader
	}
}

// manifestChunkSize returns the size of the intact chunk that p, which has room for
// a header, begins with. It is 0 if there is none.
func manifestChunkSize(p []byte) int {
	size := manifestHeader + int(binary.LittleEndian.Uint16(p[chunkLength:]))
	if kind := p[chunkType]; kind < wholeRecord || kind > lastPart || size > len(p) || !intact(p[:size]) {
		return 0
	}
	return size
}
