package pebblekv

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"unicode"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"
)

// checkMarker returns an error wrapping errDamaged if the folder has parts of a store
// but no marker that names its manifest. Pebble would take it for a new folder and
// delete them.
func checkMarker(files vfs.FS, dir string) error {
	store, err := pebble.Peek(dir, files)
	if err != nil {
		return explainDamage(err)
	}
	if store.Exists {
		return nil
	}
	found, err := files.List(dir)
	if err != nil {
		return err
	}
	for _, name := range found {
		if _, _, isLog := wal.ParseLogFilename(name); isLog || isTable(name) { // created only after the marker
			return fmt.Errorf("%w: %s exists, but the file marker.manifest.*, which says what belongs to the store, does not: "+
				"restore the folder from a backup", errDamaged, files.PathJoin(dir, name))
		}
	}
	return nil
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

// explainDamage adds to Pebble's error about a damaged folder what to do.
func explainDamage(err error) error {
	if pebble.IsCorruptionError(err) || errors.Is(err, pebble.ErrDBDoesNotExist) || errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w: restore the folder from a backup", errDamaged, err)
	}
	return err
}

func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) || os.IsNotExist(err) {
		return nil
	}
	return err
}
