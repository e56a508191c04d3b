// Package pebblekv is the embedded engine: a store in a local folder, kept by Pebble.
//
// Only one DB of one process uses a folder at a time. Package kv says who owns bytes and what may
// run at the same time. In addition, several goroutines may use a transaction, one after the other.
//
// # Guarantees
//
// One write transaction runs at a time. Begin waits for the ones before it, in the order of the
// calls. So there are no conflicts, and conflict ranges only count towards the size of a
// transaction. The next transaction may begin when Commit has returned, before its future is ready,
// and sees its writes. Commits that wait for a sync of the log share it.
//
// When the future of Commit is ready without error, the writes are in the synced log and survive
// kill -9 and a power cut. The futures become ready in the order of the commits, whether or not
// anybody waits for them. BeginRead shows only synced state, which no power cut takes back.
//
// # Failures
//
// The disk fills up: while less than Options.MinFreeSpace is free, transactions that make the store
// larger fail with kv.ErrUnavailable. Transactions that began with kv.BeginOptions.Shrinks succeed
// for longer. The folder is only opened, or opened again, while as much is free as the logs hold.
//
// A write or sync fails: every commit in progress fails with kv.ErrCommitUnknown, because its
// writes may or may not be found later. From then on nothing is written to the folder, as if the
// power had been cut. BeginRead continues to show the durable state; everything that writes fails
// with kv.ErrUnavailable. Begin reopens the folder as soon as a test file can be written to it,
// which it tries at most four times a second. Transactions that are still open then fail with
// kv.ErrUnavailable, and what survived is synced before it is shown. If the folder cannot be
// reopened, BeginRead fails as well, and tries again like Begin.
//
// Synced commits have vanished, because a log or the manifest (the list of the tables) is damaged,
// cut off, missing or an older one: Open fails with an error that says what to do, and the folder
// stays as it is. docs/embedded.md says what Open cannot notice.
//
// The folder has files of two stores, or of one store at two times, for example because a backup
// was copied over it: Open fails, and the folder stays as it is. Each opening has an id of its own.
//
// A table is damaged, missing or unreadable: reads that need it fail with kv.ErrCorrupt, and so
// does Check until the store is opened again. The log names the file.
//
// The folder was deleted, renamed or replaced: within 100 ms everything fails with
// kv.ErrUnavailable, and nothing more is written. If the same folder comes back, the store is
// reopened.
//
// # Backups
//
// Backup copies a store that is in use. The copy has every commit that was durable before. Copying
// the folder of a store in use by other means does not make a backup. Restore copies a backup into
// an empty folder.
package pebblekv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

var _ kv.Database = (*DB)(nil)

// Open opens the store in the folder dir, and makes both if necessary. In the file system of the
// operating system it revokes the permissions of everybody but the owner on dir, if it may. The
// permissions of the files in it are up to the umask.
//
// On a full disk it returns a DB that is unavailable, as Check says, until there is room: for what
// the logs hold, and MinFreeSpace.
//
// Errors: what Options.Validate returns; ErrInUse; dir has other files but no store, or is an
// unfinished backup; data that had been synced is damaged or missing; files of two stores are
// mixed.
func Open(dir string, o Options) (*DB, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if abs, err := filepath.Abs(dir); err == nil {
		if err := refuseUnfinished(abs); err != nil {
			return nil, err
		}
	}

	return openDB(dir, o)
}

// openDB is Open with valid options. It also opens a folder in an unfinished backup.
func openDB(dir string, o Options) (*DB, error) {
	// Pebble tells locks apart by the names of the folders.
	system := o.FS == nil
	if system {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, fmt.Errorf("pebblekv: folder %s: %w", dir, err)
		}
		dir = abs
	}

	o = o.withDefaults()
	if err := refuseForeign(o.FS, dir); err != nil {
		return nil, err
	}

	lock, err := lockFolder(dir, o.FS)
	if err != nil {
		return nil, err
	}
	if system {
		tighten(dir, os.Chmod, o.Logger)
	}

	folder, err := newFolderGuard(dir, o.now)
	if err != nil && system {
		return nil, errors.Join(err, lock.Close())
	}

	db := &DB{
		dir:     dir,
		system:  system,
		options: o,
		lock:    lock,
		folder:  folder,
		damage:  damage{logger: o.Logger},
		writer:  &writerSlot{held: make(chan struct{}, 1)},
		closing: make(chan struct{}),
		space: &spaceGuard{
			fs: o.FS, dir: dir, min: uint64(max(o.MinFreeSpace, 0)), now: o.now, log: o.Logger,
		},
	}

	db.store, err = db.open()
	if isFull(err) || errors.Is(err, kv.ErrUnavailable) {
		// As with a disk that becomes full later, transactions open the folder once there is room.
		db.setCurrent(nil, failure(err))
	} else if err != nil {
		err = fmt.Errorf("pebblekv: open the store in %s: %w", dir, err)
		return nil, errors.Join(err, lock.Close())
	}

	return db, nil
}

// Traits implements kv.Database.
func (db *DB) Traits() kv.Traits { return kv.Traits{Pipelines: true, Serial: true} }

// Begin implements kv.Database. It makes no difference whether a transaction is blind.
func (db *DB) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	if err := db.checkOpen(ctx); err != nil {
		return nil, err
	}
	if err := db.writer.acquire(ctx, db.closing); err != nil {
		return nil, err
	}

	tx, err := db.beginWriter(ctx, o)
	if err != nil {
		db.writer.release()
		return nil, err
	}

	return tx, nil
}

// beginWriter is Begin with the writer slot held.
func (db *DB) beginWriter(ctx context.Context, o kv.BeginOptions) (*transaction, error) {
	// The database may have been closed while Begin waited.
	if err := db.checkUsable(ctx, false); err != nil {
		return nil, err
	}

	s, err := db.repaired()
	if err != nil {
		return nil, err
	}
	if err := s.waitRoom(ctx, db.closing); err != nil {
		return nil, err
	}

	tx := &transaction{ctx: ctx, store: s, writer: db.writer, space: db.space, shrinks: o.Shrinks}
	return tx, tx.begin()
}

// BeginRead implements kv.Database.
func (db *DB) BeginRead(ctx context.Context) (kv.ReadTransaction, error) {
	if err := db.checkUsable(ctx, false); err != nil {
		return nil, err
	}

	s, err := db.current()
	if err != nil {
		s, err = db.reopenForReader(ctx, err)
	}
	if err != nil {
		return nil, err
	}

	return newReadTransaction(ctx, s)
}

// reopenForReader lets a reader try to reopen the folder, which could not be reopened because of
// down. Writers try as well, but there may be none.
func (db *DB) reopenForReader(ctx context.Context, down error) (*openedStore, error) {
	// If somebody has the slot, a writer is about to try, or the store is being closed.
	if !db.writer.tryAcquire() {
		return nil, down
	}
	defer db.writer.release()
	if err := db.checkOpen(ctx); err != nil {
		return nil, err
	}

	return db.repaired()
}

const (
	// retryInterval is the shortest time between two attempts to reopen the folder.
	retryInterval = 250 * time.Millisecond
	proofSize     = 64 << 10 // bytes
)

// repaired is healthy, but tries to reopen the folder if the disk has failed. The caller holds the
// writer slot.
//
// Going on in the same process is sound, although after a failed sync a file may read differently
// from the bytes on the disk: before the store is used, Pebble's recovery writes everything it
// finds in the log to new tables, and its state to a new manifest, and syncs both.
func (db *DB) repaired() (*openedStore, error) {
	s, down := db.healthy()
	if down == nil {
		return s, nil
	}

	now := db.options.now()
	if now.Before(db.retry) {
		return nil, down
	}

	db.retry = now.Add(retryInterval)
	err := db.space.want(db.logsNeed)
	if err == nil {
		err = db.space.check(true)
	}
	if err != nil {
		if s == nil {
			db.setCurrent(nil, err)
		}
		return nil, err
	}
	if err := db.proveWritable(); err != nil {
		return nil, failure(err)
	}

	if s != nil {
		db.setCurrent(nil, fmt.Errorf("%w: the folder is being reopened", kv.ErrUnavailable))
		_ = s.close(down) // On a failed disk its result means nothing.
	}

	fresh, err := db.open()
	if err != nil {
		db.options.Logger.Error("pebblekv: cannot reopen the folder",
			"folder", db.dir, "error", err.Error())
		down = failure(err)
		db.setCurrent(nil, down)
		return nil, down
	}

	// Commits that were not durable may be lost.
	db.writer.skipTurn()
	db.setCurrent(fresh, nil)
	db.options.Logger.Info("pebblekv: the disk works again", "folder", db.dir)
	return fresh, nil
}

// proveWritable writes, syncs and removes a file in the folder.
func (db *DB) proveWritable() (err error) {
	files := db.options.FS
	name := files.PathJoin(db.dir, proofName)
	f, err := files.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, files.Remove(name)) }()

	_, err = f.Write(make([]byte, proofSize))
	return errors.Join(err, f.Sync(), f.Close())
}

// Check implements kv.Database.
func (db *DB) Check() error {
	if err := db.checkUsable(context.Background(), true); err != nil {
		return err
	}
	if _, err := db.healthy(); err != nil {
		return err
	}

	return db.damage.err()
}

// Close implements kv.Database. It waits until the commits in progress are durable.
func (db *DB) Close() error {
	db.close.Do(func() {
		close(db.closing)

		// Otherwise a write transaction could stay open indefinitely.
		if s, err := db.current(); err == nil {
			s.abortAll(kv.ErrClosed)
		}

		// With the slot held, nobody begins one or reopens the folder.
		_ = db.writer.acquire(context.Background(), nil) // It waits as long as it takes.
		defer db.writer.release()

		var err error
		if s, down := db.current(); down == nil {
			err = s.close(kv.ErrClosed)
		}

		db.setCurrent(nil, kv.ErrClosed)

		if err = errors.Join(err, db.lock.Close()); err != nil {
			db.closed = fmt.Errorf("pebblekv: close the store in %s: %w", db.dir, err)
		}
	})

	return db.closed
}
