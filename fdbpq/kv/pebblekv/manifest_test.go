package pebblekv

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/testenv/crashfs"
	"github.com/pqbridge/pqbridge/testenv/race"
)

// flushed writes some transactions into a few tables, each with its records in the
// manifest, and some more.
func (s *damagedStore) flushed(tables int) {
	s.t.Helper()
	for range tables {
		s.write(2)
		if err := s.db.store.pdb.Flush(); err != nil {
			s.t.Fatal(err)
		}
	}
	s.write(2)
}

// manifest returns the path and the content of the manifest in force.
func manifest(t *testing.T, files rawFiles) (path string, content []byte) {
	t.Helper()
	number, err := markedManifest(files, testDir)
	if err != nil || number == 0 {
		t.Fatalf("the marker names manifest %d, %v", number, err)
	}
	path = manifestPath(files, testDir, number)
	content, err = files.UnsafeGetFileDataBuffer(path)
	if err != nil {
		t.Fatal(err)
	}
	return path, content
}

func remove(t *testing.T, files vfs.FS, path string) {
	t.Helper()
	if err := files.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func writeFile(t *testing.T, files vfs.FS, path string, content []byte) {
	t.Helper()
	f, err := files.Create(path, manifestCategory)
	if err == nil {
		_, err = f.Write(bytes.Clone(content)) // which the file system may change
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The mark is exact after each sync, so that all of the manifest is covered by it.
func TestManifestMarkIsExact(t *testing.T) {
	s := newDamagedStore(t)
	check := func(when string) {
		t.Helper()
		path, content := manifest(t, s.files)
		mark, err := readManifestMark(s.files, testDir)
		if err != nil || mark.pending.number != 0 || manifestPath(s.files, testDir, mark.inForce.number) != path ||
			mark.inForce.length != int64(len(content)) {
			t.Errorf("%s the mark is %+v, %v, and %s has %d bytes", when, mark, err, path, len(content))
		}
	}
	check("in a new store")
	s.flushed(3)
	check("after flushes")
	for range 2 {
		if err := s.db.Close(); err != nil {
			t.Fatal(err)
		}
		check("after Close")
		s.db = openTest(t, s.files, Options{})
		check("after it was opened again")
	}
}

// A power cut leaves the mark as it is.
func TestManifestMarkIsDurable(t *testing.T) {
	s := newDamagedStore(t)
	s.flushed(3)
	want, err := readManifestMark(s.files, testDir)
	if err != nil {
		t.Fatal(err)
	}
	files := s.files.CrashClone(vfs.CrashCloneCfg{})
	if got, err := readManifestMark(files, testDir); err != nil || got != want {
		t.Errorf("after a power cut the mark is %+v, %v, before %+v", got, err, want)
	}
}

// Wherever the manifest is damaged or cut off, the store is not opened.
func TestDamagedManifest(t *testing.T) {
	s := newDamagedStore(t)
	s.flushed(4)
	path, content := manifest(t, s.files)
	killed := s.killed()
	original := bytes.Clone(content)
	for offset := range original {
		damaged := bytes.Clone(original)
		damaged[offset] ^= 0xff
		writeFile(t, killed, path, damaged)
		refused(t, killed, path, fmt.Sprintf("byte %d of %d flipped", offset, len(original)))
		writeFile(t, killed, path, original[:offset])
		refused(t, killed, path, fmt.Sprintf("cut off at %d of %d", offset, len(original)))
	}
	remove(t, killed, path)
	refused(t, killed, path, "manifest removed")
	writeFile(t, killed, path, original)
	s.whole(killed, "not damaged")
}

// A store of an earlier version has no mark. It is opened, unless records follow the
// damage.
func TestDamagedManifestWithoutMark(t *testing.T) {
	s := newDamagedStore(t)
	s.flushed(4)
	path, content := manifest(t, s.files)
	original := bytes.Clone(content)
	killed := func(content []byte) *crashfs.FS {
		files := s.killed()
		remove(t, files, manifestMarkPath(files, testDir))
		writeFile(t, files, path, content)
		return files
	}
	last := lastRecord(original)
	step := race.Times(1, 7)
	for offset := s.rng.IntN(step); offset < last; offset += step {
		damaged := bytes.Clone(original)
		damaged[offset] ^= 0xff
		refused(t, killed(damaged), path, fmt.Sprintf("byte %d of %d flipped", offset, len(original)))
	}
	files := killed(original)
	s.whole(files, "not damaged")
	if mark, err := readManifestMark(files, testDir); err != nil || mark.inForce.number == 0 {
		t.Errorf("it still has no mark: %+v, %v", mark, err)
	}
}

// What a power cut leaves of a record that was never synced is no damage.
func TestTornManifest(t *testing.T) {
	s := newDamagedStore(t)
	s.flushed(4)
	path, content := manifest(t, s.files)
	record := content[lastRecord(content):]
	holed := bytes.Clone(record)
	clear(holed[len(holed)/2:])
	for what, torn := range map[string][]byte{"zeros": make([]byte, 100), "half of it": record[:len(record)/2], "a hole": holed} {
		for _, marked := range []bool{true, false} {
			files := s.killed()
			if !marked {
				remove(t, files, manifestMarkPath(files, testDir))
			}
			writeFile(t, files, path, append(bytes.Clone(content), torn...))
			s.whole(files, fmt.Sprintf("%s, marked %t", what, marked))
		}
	}
}

// lastRecord returns where the last record of a small manifest begins.
func lastRecord(content []byte) (begin int) {
	for at := 0; at < len(content); {
		begin = at
		at += manifestChunkSize(content[at:])
	}
	return begin
}

// Records of many parts, in several blocks.
func TestScanLargeManifest(t *testing.T) {
	// A store whose manifest is large takes long to make, and another writer of the
	// format is a better check of the reader.
	var content []byte
	var ends []int64
	for _, size := range []int{10, 70_000, 3 * logBlock, 1, logBlock - 2*manifestHeader} {
		content = appendRecord(content, make([]byte, size))
		ends = append(ends, int64(len(content)))
	}
	files := vfs.NewMem()
	scan := func(content []byte) manifestExtent {
		writeFile(t, files, "m", content)
		found, err := scanManifest(files, "m", int64(len(content)))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if found := scan(content); found.readable != int64(len(content)) || found.resumes || found.size != int64(len(content)) {
		t.Errorf("of %d bytes: %+v", len(content), found)
	}
	for i, end := range ends[:len(ends)-1] {
		damaged := bytes.Clone(content)
		damaged[end+3] ^= 1 // the checksum of the record after it
		found := scan(damaged)
		// Only the parts of the last record are behind the last damage.
		if want := i < len(ends)-2; found.readable != end || found.resumes != want {
			t.Errorf("damaged after record %d, which ends at %d: %+v", i, end, found)
		}
		if found := scan(content[:end+5]); found.readable != end || found.resumes {
			t.Errorf("cut off after record %d, which ends at %d: %+v", i, end, found)
		}
	}
	// A record without its last part, in front of another.
	torn := appendRecord(appendRecord(nil, make([]byte, 70_000))[:2*logBlock], make([]byte, 10))
	if found := scan(torn); found.readable != 0 || !found.resumes {
		t.Errorf("without the last part of a record: %+v", found)
	}
}

// appendRecord appends a record as Pebble's package record has it.
func appendRecord(content, record []byte) []byte {
	for first := true; first || len(record) > 0; first = false {
		room := logBlock - len(content)%logBlock
		if room < manifestHeader {
			content = append(content, make([]byte, room)...)
			room = logBlock
		}
		n := min(len(record), room-manifestHeader)
		last := n == len(record)
		kind := map[[2]bool]byte{{true, true}: wholeRecord, {true, false}: firstPart, {false, true}: lastPart, {false, false}: middlePart}[[2]bool{first, last}]
		chunk := append([]byte{0, 0, 0, 0, byte(n), byte(n >> 8), kind}, record[:n]...)
		sum := checksum(chunk)
		chunk[0], chunk[1], chunk[2], chunk[3] = byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24)
		content, record = append(content, chunk...), record[n:]
	}
	return content
}

// A manifest of before, or the marker that names it, is not taken for the one in
// force.
func TestOldManifest(t *testing.T) {
	s := newDamagedStore(t)
	s.flushed(2)
	old := s.killed()
	oldPath, oldContent := manifest(t, old)
	s.flushed(2)
	files := s.killed()
	writeFile(t, files, oldPath, oldContent)
	refused(t, files, oldPath, "the same manifest, as it was")

	if err := s.db.Close(); err != nil {
		t.Fatal(err)
	}
	s.db = openTest(t, s.files, Options{})
	s.flushed(2)
	marker := func(files vfs.FS) string {
		names, err := files.List(testDir)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if namedManifest(name) != 0 {
				return files.PathJoin(testDir, name)
			}
		}
		t.Fatal("no marker")
		return ""
	}
	files = s.killed()
	path, _ := manifest(t, files)
	remove(t, files, marker(files))
	writeFile(t, files, marker(old), nil)
	writeFile(t, files, oldPath, oldContent)
	refused(t, files, path, "the manifest before and its marker")

	files = s.killed()
	writeFile(t, files, path, oldContent)
	refused(t, files, path, "the manifest before under the name of the one in force")
}

// An earlier version, which knows no mark, may have used the store in between.
func TestManifestMarkOfBefore(t *testing.T) {
	s := newDamagedStore(t)
	s.flushed(2)
	mark, err := s.files.UnsafeGetFileDataBuffer(manifestMarkPath(s.files, testDir))
	if err != nil {
		t.Fatal(err)
	}
	before := bytes.Clone(mark)
	for range 3 {
		if err := s.db.Close(); err != nil {
			t.Fatal(err)
		}
		s.db = openTest(t, s.files, Options{})
		s.flushed(1)
	}
	files := s.killed()
	writeFile(t, files, manifestMarkPath(files, testDir), before)
	s.whole(files, "with the mark of before")
	files = s.killed()
	writeFile(t, files, manifestMarkPath(files, testDir), before[:len(before)-1])
	s.whole(files, "with a mark that cannot be read")
}

// Without a mark everything still works.
func TestNoManifestMark(t *testing.T) {
	for name, kind := range map[string]errorfs.OpKind{"open": errorfs.OpOpen, "write": errorfs.OpFileWriteAt, "sync": errorfs.OpFileSync} {
		t.Run(name, func(t *testing.T) {
			files := newFaultyFS(errInjected, func(op errorfs.Op) bool {
				return strings.HasSuffix(op.Path, manifestMarkName) && op.Kind == kind
			})
			db := openTest(t, files, Options{})
			files.broken.Store(true)
			if err := set(db, "key", "value"); err != nil {
				t.Error(err)
			}
			if err := db.store.pdb.Flush(); err != nil {
				t.Error(err)
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
			files.broken.Store(false)
			if value, err := get(openTest(t, files, Options{}), "key"); err != nil || value != "value" {
				t.Errorf("read %q, %v", value, err)
			}
		})
	}
}

// The error says what to try when there is no backup.
func TestGiveUpManifest(t *testing.T) {
	s := newDamagedStore(t)
	s.flushed(4)
	files := s.killed()
	path, content := manifest(t, files)
	flip(t, files, path, int64(lastRecord(content)))
	_, err := Open(testDir, Options{FS: files, Logger: slog.New(slog.DiscardHandler)})
	if !errors.Is(err, errDamaged) {
		t.Fatal(err)
	}
	_, command, _ := strings.Cut(err.Error(), "truncate ")
	var length int64
	var cutPath, mark string
	if _, err := fmt.Sscanf(command, "-s %d %s && rm -f %s", &length, &cutPath, &mark); err != nil {
		t.Fatalf("%q: %v", command, err)
	}
	cut(t, files, cutPath, length)
	remove(t, files, mark)
	tx := beginRead(t, openTest(t, files, Options{}))
	defer tx.Cancel()
	pairs, err := tx.GetRange(kv.Range{Begin: []byte("0"), End: []byte("9")}, kv.RangeOptions{}).Get()
	if err != nil || len(pairs) == 0 {
		t.Errorf("%d of %d keys are left, %v", len(pairs), len(s.keys), err)
	}
}

// scribblingFS overwrites what it was given to write, as a file system may.
type scribblingFS struct{ vfs.FS }

func (s scribblingFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := s.FS.Create(name, category)
	return scribblingFile{f}, err
}

type scribblingFile struct{ vfs.File }

func (f scribblingFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	clear(p)
	return n, err
}

// The checksum in the mark is of what was written, not of what the file system left
// of it.
func TestManifestMarkOfScribblingFS(t *testing.T) {
	files := vfs.NewMem()
	for range 2 {
		db := openTest(t, scribblingFS{files}, Options{})
		if err := set(db, "key", "value"); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
