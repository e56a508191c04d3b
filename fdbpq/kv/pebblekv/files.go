package pebblekv

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"
)

// Names that Pebble neither uses nor reads.
const (
	commitMarkName = "SYNCED"
	proofName      = "writable"

	// unfinished ends the name of the folder in which a backup is made. Open refuses what is in
	// such a folder, because part of a store may look like a store.
	unfinished = ".unfinished-backup"
)

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
	for _, prefix := range []string{"MANIFEST-", "OPTIONS-", "marker.", commitMarkName} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}

	for _, suffix := range []string{".sst", ".log", ".dbtmp", ".blob"} {
		number, found := strings.CutSuffix(name, suffix)
		if found && number != "" && strings.Trim(number, "0123456789") == "" {
			return true
		}
	}

	return name == "LOCK" || name == "CURRENT"
}

// Exists reports whether the folder dir has a store in it, or parts of one. If it has none, or does
// not exist, Open would make a store. The error is that of reading the folder.
func Exists(dir string) (bool, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, ignoreNotExist(err)
	}
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		return e.Name() != "LOCK" && belongsToStore(e.Name())
	}), nil
}

// refuseForeign refuses a folder that is somebody else's: one with files but no store. Open would
// fill it, and take it from its other users.
func refuseForeign(files vfs.FS, dir string) error {
	names, err := files.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("pebblekv: folder %s: %w", dir, err)
	}

	foreign := ""
	for _, name := range names {
		if belongsToStore(name) {
			return nil
		}
		// A new file system has these.
		if name != "lost+found" && !strings.HasPrefix(name, ".") {
			foreign = name
		}
	}

	if foreign != "" {
		return fmt.Errorf("pebblekv: folder %s has no store in it but other files, such as %q: "+
			"want an empty folder, or one with a store", dir, foreign)
	}

	return nil
}

// refuseUnfinished refuses the folder of an unfinished backup, and the store in it.
func refuseUnfinished(dir string) error {
	for _, folder := range []string{dir, filepath.Dir(dir)} {
		if strings.HasSuffix(folder, unfinished) {
			return fmt.Errorf("pebblekv: folder %s belongs to a backup that did not finish: "+
				"remove %s, and make another", dir, folder)
		}
	}
	return nil
}

// checkMarker returns an error wrapping errDamaged if the folder has parts of a store but no marker
// that names its manifest. Pebble would take the folder for a new one, and delete the parts.
func checkMarker(files vfs.FS, dir string) error {
	found, err := pebble.Peek(dir, files)
	if err != nil {
		return explainDamage(err)
	}
	if found.Exists {
		return nil
	}

	names, err := files.List(dir)
	if err != nil {
		return err
	}

	for _, name := range names {
		// Pebble creates these only after the marker.
		if isLog(name) || isTable(name) {
			return fmt.Errorf("%w: %s exists, but the file marker.manifest.*, which says what "+
				"belongs to the store, does not: restore the folder from a backup",
				errDamaged, files.PathJoin(dir, name))
		}
	}

	return nil
}
