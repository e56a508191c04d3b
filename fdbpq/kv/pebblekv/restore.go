package pebblekv

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Restore copies the backup in the folder from, which may be read-only, to the folder dir, and
// opens the copy once. It makes dir if necessary. If it fails, it removes what it has copied. If it
// is killed, Open refuses dir. Both paths should be absolute.
//
// Errors: dir is not empty; there is no store in from; ErrInUse; kv.ErrCorrupt if the backup is
// damaged; the errors of Open; the context's error.
func Restore(ctx context.Context, from, dir string, o Options) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("pebblekv: restore %s to %s: %w", from, dir, err)
		}
	}()

	files := o.withDefaults().FS
	names, err := storeFiles(files, from)
	if err == nil && len(names) == 0 {
		err = errors.New("there is no store in it: want the folder of one backup, not of several")
	}
	if err := errors.Join(err, refuseUnfinished(from), refuseFull(files, dir)); err != nil {
		return err
	}

	// Nobody can use a store in a folder where a lock cannot be made.
	lock, err := lockFolder(from, files)
	if errors.Is(err, ErrInUse) {
		return err
	}
	if err == nil {
		defer func() { _ = lock.Close() }() // Nothing was written.
	}

	defer func() {
		if err == nil {
			return
		}
		copied, _ := storeFiles(files, dir)
		for _, name := range slices.Backward(copied) { // the markers first
			_ = files.Remove(files.PathJoin(dir, name)) // Open refuses what is left.
		}
	}()
	if err := copyStore(ctx, files, names, from, dir); err != nil {
		return err
	}

	o.Logger = slog.New(slog.DiscardHandler) // It would say what to do about a store that serves.
	db, err := Open(dir, o)
	if err != nil {
		return badBackup(err)
	}
	return badBackup(errors.Join(db.Check(), db.Close()))
}

// storeFiles returns the names of the files of a store, in the order in which a store is copied.
// Without its markers, which are the last ones, Open does not take a copy for a store.
func storeFiles(files vfs.FS, dir string) ([]string, error) {
	names, err := files.List(dir)
	slices.Sort(names)
	return slices.DeleteFunc(names, func(name string) bool {
		return name == lockName || !belongsToStore(name)
	}), err
}

// refuseFull returns an error unless a folder is empty, or does not exist.
func refuseFull(files vfs.FS, dir string) error {
	names, err := files.List(dir)
	for _, name := range names {
		if name != lockName && !isSystemFile(name) {
			return fmt.Errorf("the folder %s is not empty, it has %q: want an empty one, because "+
				"a backup replaces nothing and cannot be mixed with another store", dir, name)
		}
	}
	return ignoreNotExist(err)
}

// copyStore copies files to another folder, and syncs them.
func copyStore(ctx context.Context, files vfs.FS, names []string, from, dir string) error {
	lock, err := lockFolder(dir, files)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()

	for _, name := range names {
		err := context.Cause(ctx)
		if err == nil {
			err = vfs.Copy(files, files.PathJoin(from, name), files.PathJoin(dir, name))
		}
		if err != nil {
			return err
		}
	}

	return syncFolder(files, dir)
}
