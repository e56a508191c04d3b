package pebblekv

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Exists reports whether there is a store in the folder dir, or parts of one. Open makes one if there is none.
func Exists(dir string) (bool, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, ignoreNotExist(err)
	}
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() != "LOCK" && belongsToStore(e.Name()) }), nil
}

// checkFolder refuses a folder that is somebody else's: one with files and no store. Open
// would fill it, and take it from its other users.
func checkFolder(files vfs.FS, dir string) error {
	names, err := files.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("pebblekv: folder %s: %w", dir, err)
	}
	foreign := ""
	for _, name := range names {
		switch {
		case belongsToStore(name):
			return nil
		case name != "lost+found" && !strings.HasPrefix(name, "."): // as in a new file system
			foreign = name
		}
	}
	if foreign != "" {
		return fmt.Errorf("pebblekv: folder %s has no store in it but other files, such as %q: want an empty folder, or one with a store", dir, foreign)
	}
	return nil
}

// belongsToStore reports whether a store has files with such names.
func belongsToStore(name string) bool {
	for _, prefix := range []string{"MANIFEST-", "OPTIONS-", "marker.", commitMarkName} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	for _, suffix := range []string{".sst", ".log", ".dbtmp", ".blob"} {
		if number, found := strings.CutSuffix(name, suffix); found && number != "" && strings.Trim(number, "0123456789") == "" {
			return true
		}
	}
	return name == "LOCK" || name == "CURRENT" || strings.HasPrefix(name, reserveName)
}
