package pebblekv

import (
	"errors"
	"fmt"
	"io"
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
