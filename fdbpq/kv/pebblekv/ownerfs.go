package pebblekv

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	ownerFile   fs.FileMode = 0o600
	ownerFolder fs.FileMode = 0o700
	// others is the permissions of the group and of everybody else.
	others fs.FileMode = 0o077
)

// ownerFS is the file system of the operating system, but only the owner can read new files. Pebble
// leaves that to the umask. A file system without owners is no reason to fail.
type ownerFS struct{ vfs.FS }

// Create removes an existing file instead of overwriting it, as vfs.FS says.
func (o ownerFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := makeFile(name, os.O_EXCL); err != nil {
		return nil, err
	}
	return o.FS.OpenReadWrite(name, category)
}

func (o ownerFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	if err := makeFile(name, 0); err != nil {
		return nil, err
	}
	return o.FS.OpenReadWrite(name, category, opts...)
}

func makeFile(name string, flags int) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|flags, ownerFile)
	if err != nil {
		return err
	}
	return f.Close()
}

func (o ownerFS) Unwrap() vfs.FS { return o.FS }

// tighten revokes the permissions of everybody but the owner on a folder and the store's
// files in it, which an earlier version or somebody else may have created. In a folder that
// belongs to another user, as in many containers, they stay.
func tighten(dir string, chmod func(string, fs.FileMode) error, logger *slog.Logger) {
	paths := []string{dir}
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		if entry.Type().IsRegular() && belongsToStore(entry.Name()) {
			paths = append(paths, filepath.Join(dir, entry.Name()))
		}
	}

	// One path that cannot be changed does not keep the others as they are.
	for _, path := range paths {
		info, failed := os.Stat(path)
		if failed == nil && info.Mode().Perm()&others != 0 {
			failed = chmod(path, info.Mode()&^others)
		}
		if err == nil {
			err = failed
		}
	}

	if err != nil {
		logger.Warn("pebblekv: other users may be able to read the data, "+
			"because the permissions of the folder cannot be changed", "folder", dir, "error", err)
	}
}
