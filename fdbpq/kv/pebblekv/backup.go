package pebblekv

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// ErrBackupRunning is returned by Backup while another one runs.
var ErrBackupRunning = errors.New("pebblekv: another backup is being made")

// Backup copies the store to the new folder dest while it is in use. The copy is a store of its
// own, which Open opens. It has every commit whose future was ready when Backup was called, perhaps
// some later ones, and no part of a transaction. Tables are hard links if the file system has them,
// so they take no space until the store no longer needs them.
//
// BackupSeries tells backups of the same store.
//
// The folder dest appears once the copy is complete and synced, and was opened without an error.
// Until then the copy is in a folder beside dest, whose name ends in .unfinished-backup. Backup
// removes such a folder if it finds one.
//
// Errors: dest exists, or its parent does not, or it is inside the store; ErrBackupRunning; too
// little space, which wraps kv.ErrUnavailable; the context's error; kv.ErrClosed,
// kv.ErrUnavailable; kv.ErrCorrupt if a table is known to be damaged.
func (db *DB) Backup(ctx context.Context, dest string) error {
	if err := db.backup(ctx, dest); err != nil {
		return fmt.Errorf("pebblekv: backup to %s: %w", dest, err)
	}
	return nil
}

func (db *DB) backup(ctx context.Context, dest string) error {
	// The copy of a damaged store would be damaged as well.
	if err := errors.Join(db.Check(), ctx.Err()); err != nil {
		return err
	}

	dest, err := db.checkDestination(dest)
	if err != nil {
		return err
	}

	s, err := db.healthy()
	if err != nil {
		return err
	}

	if !s.backingUp.TryLock() {
		return ErrBackupRunning
	}
	defer s.backingUp.Unlock()

	b := &backupRun{db: db, store: s, dest: dest}
	b.ctx, b.cancel = context.WithCancelCause(ctx)
	defer b.cancel(nil)
	if err := s.register(b, b.cancel); err != nil {
		return err
	}
	defer s.unregister(b)
	return b.run()
}

// checkDestination returns dest as an absolute path.
func (db *DB) checkDestination(dest string) (string, error) {
	files := db.options.FS
	if db.system {
		abs, err := filepath.Abs(dest)
		if err != nil {
			return "", err
		}
		dest = abs
	}

	if _, err := files.Stat(dest); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = errors.New("it exists: want a new name, a backup replaces nothing")
		}
		return "", err
	}

	parent := files.PathDir(dest)
	info, err := files.Stat(parent)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return "", fmt.Errorf("the folder %s does not exist: "+
			"want one that does, with the backup as a new folder in it", parent)
	}
	if err != nil {
		return "", err
	}

	if db.system && isBelow(parent, db.dir) {
		return "", fmt.Errorf("it is inside the folder of the store %s: want one elsewhere", db.dir)
	}

	return dest, nil
}

// isBelow reports whether a folder is top or below it.
func isBelow(folder, top string) bool {
	for _, path := range []*string{&folder, &top} {
		if resolved, err := filepath.EvalSymlinks(*path); err == nil {
			*path = resolved
		}
	}

	relative, err := filepath.Rel(top, folder)
	return err == nil && filepath.IsLocal(relative)
}

// backupRun is a backup under way. It is registered like a transaction, so that the end of the
// store ends it.
type backupRun struct {
	db     *DB
	store  *openedStore
	dest   string
	ctx    context.Context
	cancel context.CancelCauseFunc
}

func (b *backupRun) run() error {
	files, staging := b.db.options.FS, b.dest+Unfinished
	if err := b.checkRoom(); err != nil {
		return err
	}

	// The lock keeps backups of other stores out.
	if err := files.MkdirAll(staging, ownerFolder); err != nil {
		return err
	}

	lock, err := pebble.LockDirectory(staging, files)
	if err != nil {
		return fmt.Errorf("%w to the same folder: %w", ErrBackupRunning, err)
	}
	defer func() {
		// Open refuses the rest, and the next backup removes it.
		_ = files.RemoveAll(staging)
		_ = lock.Close()
	}()

	// A process that ended in the middle of a backup may have left something.
	made := files.PathJoin(staging, "store")
	if err := files.RemoveAll(made); err != nil {
		return err
	}

	last := files.PathJoin(b.db.dir, lastBackupName)
	series := cmp.Or(seriesIn(files, last), rand.Text())
	mark := func(dir string) error {
		return writeSeries(files, files.PathJoin(dir, backupName), backupText, series)
	}

	for _, step := range []func() error{
		func() error { return mark(staging) },
		func() error { return b.copyTo(made) },
		func() error { return mark(made) },
		func() error { return syncFolder(files, made) },
		func() error { return b.publish(made) },
	} {
		if err := step(); err != nil { // if the backup was ended, that is why
			return cmp.Or(context.Cause(b.ctx), err)
		}
	}

	b.db.noteBackup(series)
	return nil
}

// copyTo copies the store to a new folder. It opens the copy, which reads the logs and turns them
// into tables.
func (b *backupRun) copyTo(made string) error {
	disk := b.store.disk
	disk.backup.Store(&backupFS{FS: disk.FS, ctx: b.ctx})
	err := b.store.pdb.Checkpoint(made)
	disk.backup.Store(nil)

	// On a failed disk Pebble copied what it believes to have written.
	if err := cmp.Or(b.store.err(), err, b.ctx.Err()); err != nil {
		return err
	}

	// No cache and no reserve of space: the copy is closed at once.
	o := b.db.options
	if b.db.system {
		o.FS = nil
	}

	o.MinFreeSpace, o.CacheSize = -1, 1
	o.Logger = slog.New(slog.DiscardHandler)
	opened, err := openDB(made, o)
	if err != nil {
		return fmt.Errorf("the copy cannot be opened: %w", err)
	}

	return errors.Join(opened.Check(), opened.Close())
}

// publish gives the copy its name.
func (b *backupRun) publish(made string) error {
	files := b.db.options.FS
	if err := b.ctx.Err(); err != nil {
		return err
	}
	if err := files.Rename(made, b.dest); err != nil {
		return err
	}

	return syncFolder(files, files.PathDir(b.dest))
}

// checkRoom returns an error if the copy would not fit, or would take the space that the store
// keeps free for itself.
func (b *backupRun) checkRoom() error {
	files, dir, parent := b.db.options.FS, b.db.dir, b.db.options.FS.PathDir(b.dest)
	usage, err := files.GetDiskUsage(parent)
	if err != nil {
		return nil // Some file systems do not tell. A full disk will.
	}

	from, fromErr := files.Stat(dir)
	to, toErr := files.Stat(parent)
	if err := cmp.Or(fromErr, toErr); err != nil {
		return err
	}

	// The logs are copied, and then turned into tables. On the same disk the tables are links.
	metrics := b.store.pdb.Metrics()
	need := 2 * metrics.WAL.Size
	if from.DeviceID() == to.DeviceID() {
		need += uint64(max(b.db.options.MinFreeSpace, 0))
	} else {
		need = max(need, metrics.DiskSpaceUsage()) + metrics.WAL.Size
	}

	if usage.AvailBytes < need {
		return fmt.Errorf("%w: %d bytes free in %s, about %d needed",
			kv.ErrUnavailable, usage.AvailBytes, parent, need)
	}

	return nil
}

// RemoveBackup removes the folder of a backup, or of one that did not finish. From the first moment
// on, Open and Restore refuse the rest of it.
//
// Errors: ErrInUse, if the backup is being made, served or restored.
func RemoveBackup(dir string) error {
	lock, err := lockFolder(dir, vfs.Default)
	if err != nil {
		return err
	}

	removed := dir
	if !strings.HasSuffix(dir, Unfinished) {
		removed += Unfinished
		err = os.Rename(dir, removed)
	}
	if err == nil {
		err = os.RemoveAll(removed)
	}
	return errors.Join(err, lock.Close())
}
