//go:build unix

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// keepOthersOut makes new files readable for their owner alone.
func keepOthersOut() { syscall.Umask(0o077) }

// explainPermission adds to an error whose folder it is and what to do, if the reason is that this
// process may not use it.
func explainPermission(err error, folder string) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}

	path := folder
	if wrong, ok := errors.AsType[*fs.PathError](err); ok {
		path = wrong.Path // perhaps a file of a store that another user had
	}

	// The nearest folder above says who may make what is missing.
	var info fs.FileInfo
	for {
		var statErr error
		if info, statErr = os.Stat(path); statErr == nil || filepath.Dir(path) == path {
			break
		}
		path = filepath.Dir(path) // it is not there, or this process may not even look
	}
	if info == nil {
		return err
	}

	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return err
	}

	uid, gid := os.Getuid(), os.Getgid()
	return fmt.Errorf("%w\n%s belongs to user %d and group %d, with mode %v; pqbridge runs as user %d and group %d\n"+
		"give it the folder with all that is in it, as in chown -R %[6]d:%[7]d %[8]s (of a mounted folder, on the host), "+
		"or run pqbridge as the owner (docker run --user %[3]d:%[4]d); a tmpfs needs --tmpfs %[8]s:uid=%[6]d,gid=%[7]d",
		err, path, owner.Uid, owner.Gid, info.Mode(), uid, gid, folder)
}
