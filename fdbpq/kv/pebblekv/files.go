package pebblekv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"
)

// lockName is the file that Pebble locks while it uses a folder.
const lockName = "LOCK"

// Names that Pebble neither uses nor reads.
const (
	commitMarkName = "SYNCED"
	proofName      = "writable"
)

// Unfinished ends the name of the folder in which a backup is made. Open and Restore refuse
// everything in such a folder, because part of a store may look like a store.
const Unfinished = ".unfinished-backup"

// How Pebble labels what it writes: to its log, and to the tables it flushes memtables to.
const (
	logCategory   vfs.DiskWriteCategory = "pebble-wal"
	categoryFlush vfs.DiskWriteCategory = "pebble-memtable-flush"
)

func isTable(name string) bool { return filepath.Ext(name) == ".sst" }

func isLog(name string) bool {
	_, _, ok := wal.ParseLogFilename(filepath.Base(name))
	return ok
}

// belongsToStore reports whether a store has files with such names.
func belongsToStore(name string) bool {
	return name == lockName || storeFile.MatchString(name)
}

var storeFile = regexp.MustCompile(
	`^(MANIFEST-|OPTIONS-|marker\.|` + commitMarkName + `|[0-9]+\.(sst|log|blob)$)`)

// Exists reports whether the folder dir has a store in it, or parts of one. If it has none, or does
// not exist, Open would make a store. An error comes from reading the folder.
func Exists(dir string) (bool, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, ignoreNotExist(err)
	}
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		return e.Name() != lockName && belongsToStore(e.Name())
	}), nil
}

// refuseForeign refuses a folder that is somebody else's: one with files but no store. Open would
// fill it, and take it from its other users.
func refuseForeign(files vfs.FS, dir string) error {
	names, err := files.List(dir)
	if ignoreNotExist(err) != nil {
		return fmt.Errorf("pebblekv: folder %s: %w", dir, err)
	}

	names = slices.DeleteFunc(names, isSystemFile)
	if len(names) == 0 || slices.ContainsFunc(names, belongsToStore) {
		return nil
	}
	return fmt.Errorf("pebblekv: folder %s has no store in it but other files, such as %q: "+
		"want an empty folder, or one with a store", dir, names[0])
}

// refuseUnfinished refuses the folder of an unfinished backup, and the store in it.
func refuseUnfinished(dir string) error {
	for _, folder := range []string{dir, filepath.Dir(dir)} {
		if strings.HasSuffix(folder, Unfinished) {
			return fmt.Errorf("pebblekv: folder %s belongs to a backup that did not finish: "+
				"remove %s, and make another", dir, folder)
		}
	}
	return nil
}

// checkFiles looks for what Pebble does not notice before it changes a folder. The error wraps
// errDamaged if there are parts of a store but no marker that names its manifest: Pebble would take
// the folder for a new one, and delete the parts. It wraps errMixed if two markers are equally new.
func checkFiles(files vfs.FS, dir string) error {
	found, err := pebble.Peek(dir, files)
	if err != nil {
		return explainDamage(err)
	}
	if found.OptionsFilename != "" {
		if err := checkOptions(files, dir, found.OptionsFilename); err != nil {
			return err
		}
	}

	names, err := files.List(dir)
	if err != nil {
		return err
	}

	const marker = "marker.manifest."
	markers := make(map[string]bool) // by number: each marker is one more than the one before it
	for _, name := range names {
		number, _, _ := strings.Cut(strings.TrimPrefix(name, marker), ".")
		switch {
		case strings.HasPrefix(name, marker) && markers[number]:
			return fmt.Errorf("%w: two files are named %s%s.*%s",
				errMixed, marker, number, restoreMixed)
		case strings.HasPrefix(name, marker):
			markers[number] = true

		// Pebble creates these only after the marker.
		case !found.Exists && (isLog(name) || isTable(name)):
			return fmt.Errorf("%w: %s exists, but the file marker.manifest.*, which says what "+
				"belongs to the store, does not: restore the folder from a backup",
				errDamaged, files.PathJoin(dir, name))
		}
	}

	return nil
}

// checkOptions returns an error if Pebble would not accept the options that it once wrote to a
// file. They are always the same.
func checkOptions(files vfs.FS, dir, path string) error {
	f, err := files.Open(path)
	if err != nil {
		return err
	}

	content, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}

	o := &pebble.Options{FS: files}
	o.EnsureDefaults()
	if err := o.CheckCompatibility(dir, string(content)); err != nil {
		return fmt.Errorf("the file of Pebble's options is damaged: %w: remove %s, which has "+
			"nothing that the store needs", err, path)
	}
	return nil
}

// syncFolder makes new names in a folder durable.
func syncFolder(files vfs.FS, dir string) error {
	folder, err := files.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// isSystemFile reports whether a new file system may have a file with that name.
func isSystemFile(name string) bool { return name == "lost+found" || strings.HasPrefix(name, ".") }

// blockSum is the size of the checksum at the end of a block, in bytes. It covers the block and the
// byte before it, which says how the block is compressed. See Pebble's package sstable/block.
const blockSum = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errBlock = fmt.Errorf("%w: checksum mismatch", pebble.ErrCorruption)

// tableFile is a table that Pebble reads. It checks the checksum of each block before Pebble does.
//
// When a checksum does not match, Pebble searches for a single flipped bit, at every read. For a
// block of 16 KiB that takes half a second of processor time, for an item of 1 MB a minute, and no
// context ends it. So one damaged item would stop the writers of all queues. After an error of
// ReadAt, Pebble does not search.
type tableFile struct {
	vfs.File
	path string
}

// ReadAt implements vfs.File. Pebble reads one block at a time.
func (f *tableFile) ReadAt(p []byte, offset int64) (int, error) {
	n, err := f.File.ReadAt(p, offset)
	if err != nil || intactBlock(p[:n]) {
		return n, err
	}

	// The footer, which ends with the file, has a checksum of another kind.
	info, err := f.Stat()
	if err != nil {
		return n, err
	}

	end := offset + int64(n)
	if end == info.Size() {
		return n, nil
	}

	damaged := fmt.Errorf("bytes %d to %d: %w", offset, end, errBlock)
	return n, &fs.PathError{Op: "read", Path: f.path, Err: damaged}
}

// tableFS is a file system whose tables are opened as a tableFile.
type tableFS struct{ vfs.FS }

func (t tableFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := t.FS.Open(name, opts...)
	if err != nil || !isTable(name) {
		return f, err
	}
	return &tableFile{File: f, path: name}, nil
}

func (t tableFS) Unwrap() vfs.FS { return t.FS }

// intactBlock reports whether a block matches its checksum.
func intactBlock(block []byte) bool {
	at := len(block) - blockSum
	if at <= 0 {
		return false
	}
	sum := crc32.Checksum(block[:at], castagnoli)
	masked := (sum>>15 | sum<<17) + 0xa282ead8 // as Pebble stores it
	return binary.LittleEndian.Uint32(block[at:]) == masked
}
