package pebblekv

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pqbridge/pqbridge/testenv/harness"
)

// flushed writes some transactions into a few tables, each with its records in the
// manifest, and some more. It returns once the mark says so.
func (s *damagedStore) flushed(tables int) {
	s.t.Helper()
	for range tables {
		s.write(2)
		must(s.t, s.db.store.pdb.Flush())
	}

	inTables := s.db.store.syncer.synced.Load()
	s.write(2)

	for s.t.Context().Err() == nil {
		mark, err := readCommitMark(s.files, testDir)
		if err != nil || mark.newest == inTables+2 && mark.inTables == inTables {
			return
		}

		runtime.Gosched()
	}
}

// manifest returns the path and the content of the manifest in force.
func manifest(t *testing.T, files rawFiles) (path string, content []byte) {
	t.Helper()
	store, err := pebble.Peek(testDir, files)
	if err != nil || !store.Exists {
		t.Fatal(store, err)
	}

	content, err = files.UnsafeGetFileDataBuffer(store.ManifestFilename)
	must(t, err)
	return store.ManifestFilename, bytes.Clone(content)
}

// records returns where the records of a manifest begin.
func records(t *testing.T, content []byte) (begins []int64) {
	t.Helper()
	for r := record.NewReader(bytes.NewReader(content), 0); ; {
		at := r.Offset()
		next, err := r.Next()
		if errors.Is(err, io.EOF) {
			return begins
		}

		if err == nil {
			_, err = io.Copy(io.Discard, next)
		}
		must(t, err)
		begins = append(begins, at)
	}
}

// marker returns the path of the file that names the manifest in force.
func marker(t *testing.T, files vfs.FS) string {
	t.Helper()
	names := list(t, files)
	i := slices.IndexFunc(names,
		func(name string) bool { return strings.HasPrefix(name, "marker.manifest.") })
	if i < 0 {
		t.Fatal("no marker")
	}

	return files.PathJoin(testDir, names[i])
}

func remove(t *testing.T, files vfs.FS, path string) {
	t.Helper()
	must(t, files.Remove(path))
}

func writeFile(t *testing.T, files vfs.FS, path string, content []byte) {
	t.Helper()
	f, err := files.Create(path, vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = f.Write(bytes.Clone(content)) // which the file system may change
		err = errors.Join(err, f.Sync(), f.Close())
	}
	must(t, err)
}

// Wherever the manifest is damaged or cut off, the store is not opened, unless nothing is
// lost with that: the tables that a compaction replaced may still be there.
func TestDamagedManifest(t *testing.T) {
	s := newDamagedStore(t)
	s.flushed(4)
	s.files = s.killed() // with which no compaction goes on
	path, original := manifest(t, s.files)
	opened := 0

	spoil := func(content []byte, what string) {
		files := s.killed()
		writeFile(t, files, path, content)
		db, err := openQuiet(files)
		if err != nil {
			wantRefusal(t, err, what)
			return
		}

		opened++
		mustClose(t, db)
		s.wantWhole(files, what)
	}

	step := harness.RaceTimes(harness.Times(5, 1), 7)
	for offset := s.rng.IntN(step); offset < len(original); offset += step {
		damaged := bytes.Clone(original)
		damaged[offset] ^= 0xff
		spoil(damaged, fmt.Sprintf("byte %d of %d flipped", offset, len(original)))
		spoil(original[:offset], fmt.Sprintf("cut off at %d of %d", offset, len(original)))
	}

	t.Logf("opened with %d of %d damages", opened, 2*len(original)/step)

	killed := s.killed()
	remove(t, killed, path)
	wantRefused(t, killed, "manifest removed")

	writeFile(t, killed, path, original)
	s.wantWhole(killed, "not damaged")

	// Without its marker a folder with tables or logs is not taken for a new one.
	killed = s.killed()
	remove(t, killed, marker(t, killed))
	wantErr(t, "without the marker", errOf(openQuiet(killed)), errDamaged)
}

// A record that was never synced, and that a power cut has torn, is no damage.
func TestTornManifest(t *testing.T) {
	s := newDamagedStore(t)
	s.flushed(4)
	s.files = s.killed() // with which no compaction goes on
	path, content := manifest(t, s.files)
	begins := records(t, content)
	last := content[begins[len(begins)-1]:]
	holed := bytes.Clone(last)
	clear(holed[len(holed)/2:])

	for what, torn := range map[string][]byte{
		"zeros":      make([]byte, 100),
		"half of it": last[:len(last)/2],
		"a hole":     holed,
	} {
		files := s.killed()
		writeFile(t, files, path, append(bytes.Clone(content), torn...))
		s.wantWhole(files, what)
	}
}

// A manifest of before, or the marker that names it, is not taken for the one in force.
func TestOldManifest(t *testing.T) {
	s := newDamagedStore(t)
	s.flushed(2)
	old := s.killed()
	oldPath, oldContent := manifest(t, old)
	s.flushed(2)
	files := s.killed()
	writeFile(t, files, oldPath, oldContent)

	wantRefused(t, files, "the same manifest, as it was")

	mustClose(t, s.db)
	s.db = openTest(t, s.files, Options{})
	s.flushed(2)
	files = s.killed()
	path, _ := manifest(t, files)
	remove(t, files, marker(t, files))
	writeFile(t, files, marker(t, old), nil)
	writeFile(t, files, oldPath, oldContent)

	wantRefused(t, files, "the manifest before and its marker")

	files = s.killed()
	writeFile(t, files, path, oldContent)
	wantRefused(t, files, "the manifest before under the name of the one in force")
}
