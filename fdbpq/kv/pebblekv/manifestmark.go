package pebblekv

import (
	"encoding/binary"
	"hash/crc32"
	"log/slog"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The manifest mark: how far the manifest is synced
//
// The manifest lists the tables of the store. Each flush and each compaction
// appends a record and syncs it, and then the files that the record replaces are
// removed. Pebble takes the first record it cannot read for the end of the file,
// so damage or a missing tail would silently drop tables. The mark tells that from
// a record that a power cut tore: it says how long the manifest was when it was
// last synced, and has a checksum of all of it. It is written and synced itself
// before Pebble learns that a sync is done. Nothing depends on a record before
// that, so a mark that is one sync behind is as good. Manifests are synced with
// flushes and compactions, not with commits, so this costs the queues nothing.
//
// A new manifest is written when the store is opened, and when the old one is
// large. It is synced first, then the marker file names it in place of the old one.
// A crash in between leaves the old one in force. So the mark has both: one that is
// in force, and one that is pending until the marker that names it is durable.
const (
	// manifestMarkName is a name that Pebble neither uses nor reads.
	manifestMarkName = "SYNCED.manifest"
	// manifestMarkMagic is how the file begins; its last byte is the version.
	manifestMarkMagic = "pqmanif\x01"
	manifestMarkSize  = len(manifestMarkMagic) + 2*syncedManifestSize + 4

	manifestCategory vfs.DiskWriteCategory = "pebble-manifest"
)

// syncedManifest is how far a manifest is synced. The zero value is none.
type syncedManifest struct {
	number uint64 // of the file
	length int64
	sum    uint32 // checksum of the first length bytes
}

const syncedManifestSize = 8 + 8 + 4

func (s syncedManifest) appendTo(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, s.number)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.length))
	return binary.LittleEndian.AppendUint32(b, s.sum)
}

func parseSyncedManifest(b []byte) syncedManifest {
	return syncedManifest{
		number: binary.LittleEndian.Uint64(b),
		length: int64(binary.LittleEndian.Uint64(b[8:])),
		sum:    binary.LittleEndian.Uint32(b[16:]),
	}
}

// syncedManifests is what the mark says.
type syncedManifests struct {
	inForce syncedManifest
	pending syncedManifest // none, or newer than inForce
}

// of returns how far the manifest of that number is synced, as far as is known.
func (s syncedManifests) of(number uint64) syncedManifest {
	for _, known := range []syncedManifest{s.inForce, s.pending} {
		if known.number == number {
			return known
		}
	}
	return syncedManifest{number: number}
}

// encode fits into one sector of a disk, so a power cut does not tear it.
func (s syncedManifests) encode() []byte {
	b := append(make([]byte, 0, manifestMarkSize), manifestMarkMagic...)
	b = s.pending.appendTo(s.inForce.appendTo(b))
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func manifestMarkPath(files vfs.FS, dir string) string { return files.PathJoin(dir, manifestMarkName) }

// readManifestMark returns what the mark of a folder says, the zero value if it has
// none that can be read.
func readManifestMark(files vfs.FS, dir string) (syncedManifests, error) {
	f, err := files.Open(manifestMarkPath(files, dir))
	if err != nil {
		return syncedManifests{}, ignoreNotExist(err)
	}
	defer func() { _ = f.Close() }()
	b := make([]byte, manifestMarkSize)
	if _, err := f.ReadAt(b, 0); err != nil {
		return syncedManifests{}, nil // It was never written, or cut off.
	}
	rest := b[len(manifestMarkMagic):]
	s := syncedManifests{parseSyncedManifest(rest), parseSyncedManifest(rest[syncedManifestSize:])}
	if string(s.encode()) != string(b) {
		return syncedManifests{}, nil
	}
	return s, nil
}

// manifestMark writes the mark. Without it the manifest is as safe, but less damage
// to it is noticed. So a failure here is not a failure of the disk. It is safe for
// concurrent use.
type manifestMark struct {
	logger *slog.Logger

	mu     sync.Mutex
	file   vfs.File // nil if it cannot be written
	synced syncedManifests
	named  uint64 // the manifest that the newest marker file names, 0 if there is none
}

// openManifestMark opens the mark of a folder for writing. Its manifest was checked.
func openManifestMark(files vfs.FS, dir string, logger *slog.Logger) *manifestMark {
	m := &manifestMark{logger: logger}
	var err error
	if m.synced, err = readManifestMark(files, dir); err == nil {
		// An earlier process may have ended between making the marker and syncing
		// the folder.
		m.named, err = markedManifest(files, dir)
	}
	if err == nil {
		m.file, err = files.OpenReadWrite(manifestMarkPath(files, dir), manifestCategory)
	}
	if err != nil {
		m.failLocked(err)
	}
	return m
}

// set notes that a manifest was synced.
func (m *manifestMark) set(s syncedManifest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.number == m.synced.inForce.number {
		m.synced.inForce = s
	} else {
		m.synced.pending = s
	}
	m.writeLocked()
}

// name notes that a marker file was made for a manifest.
func (m *manifestMark) name(number uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.named = number
}

// toConfirm returns the manifest that a sync of the folder, which begins after
// this call, puts in force; 0 if there is none.
func (m *manifestMark) toConfirm() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.named != m.synced.pending.number {
		return 0
	}
	return m.named
}

// confirm notes that the marker of a pending manifest is durable.
func (m *manifestMark) confirm(number uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if number == 0 || number != m.synced.pending.number {
		return
	}
	m.synced = syncedManifests{inForce: m.synced.pending}
	m.writeLocked()
}

func (m *manifestMark) writeLocked() {
	if m.file == nil {
		return
	}
	_, err := m.file.WriteAt(m.synced.encode(), 0)
	if err == nil {
		err = m.file.Sync()
	}
	if err != nil {
		m.failLocked(err)
	}
}

// failLocked gives up writing the mark. The old one stays, and stays true: manifests
// only grow, and their numbers too.
func (m *manifestMark) failLocked(err error) {
	m.logger.Warn("pebblekv: cannot write the file that says how far the manifest is synced; "+
		"the next start may not notice damage to the manifest", "file", manifestMarkName, "error", err)
	m.closeLocked()
}

func (m *manifestMark) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closeLocked()
}

func (m *manifestMark) closeLocked() {
	if m.file != nil {
		_ = m.file.Close() // What counts was synced.
		m.file = nil
	}
}

// manifestFile is a manifest that Pebble writes, from its beginning.
type manifestFile struct {
	file
	mark    *manifestMark
	written syncedManifest // as if all of it were synced
}

func (f *manifestFile) Write(p []byte) (int, error) {
	// Before the write, because a file system may change p. What is not written
	// fails the disk, and then nothing is noted.
	f.written.length += int64(len(p))
	f.written.sum = crc32.Update(f.written.sum, castagnoli, p)
	return f.file.Write(p)
}

func (f *manifestFile) Sync() error { return f.noteSync(f.file.Sync()) }

func (f *manifestFile) SyncData() error { return f.noteSync(f.file.SyncData()) }

// noteSync notes a sync that succeeded. After a disk failure there was none,
// whatever Pebble is told.
func (f *manifestFile) noteSync(err error) error {
	if err == nil && f.disk.err() == nil {
		f.mark.set(f.written)
	}
	return err
}

// dirFile is the folder, whose sync makes marker files durable.
type dirFile struct {
	file
	mark *manifestMark
}

func (f *dirFile) Sync() error {
	number := f.mark.toConfirm()
	err := f.file.Sync()
	if err == nil && f.disk.err() == nil {
		f.mark.confirm(number)
	}
	return err
}
