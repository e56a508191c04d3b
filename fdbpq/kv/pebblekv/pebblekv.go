// Package pebblekv is the embedded engine: a store in a local folder, kept by Pebble.
//
// # Guarantees
//
// There is one write transaction at a time; Begin waits for the one before, in the
// order of the calls. So there are no conflicts, and conflict ranges only count
// towards the size of a transaction. The next one may begin when Commit has returned,
// before its future is ready, and sees what was written. Commits that wait for a sync
// of the log share it.
//
// When the future of Commit is ready without error, the writes are in the synced log
// and survive kill -9 and a power cut. BeginRead shows only synced state, which no
// power cut takes back. The futures become ready in the order of the commits, whether
// or not anybody waits for them.
//
// Only one DB of one process uses a folder at a time.
//
// # Failures
//
// The disk fills up: transactions that make the store larger fail with
// kv.ErrUnavailable while less than Options.MinFreeSpace is free, and succeed again
// when there is more. Those that began with kv.BeginOptions.Shrinks succeed for longer.
//
// A write or sync fails: every commit in progress fails with kv.ErrCommitUnknown,
// because its writes may or may not be found later. From then on nothing is written to
// the folder, as if the power had been cut at that moment. BeginRead continues to show
// the durable state; everything that writes fails with kv.ErrUnavailable. Begin reopens
// the folder as soon as a test file can be written to it, which it tries at most four
// times a second. Then transactions still open fail with kv.ErrUnavailable, and what
// survived is synced before it is shown. Nothing acknowledged is lost. If the folder
// cannot be reopened, BeginRead fails too, and also tries again.
//
// Synced commits have vanished, because a log or the manifest, the list of the tables, is
// damaged, cut off, missing or an older one: Open fails, its error says what to do, and
// the folder stays as it is. commitmark.go says how it knows, and docs/operations.md what
// it cannot know.
//
// A table is damaged, missing or unreadable: reads that need it fail with
// kv.ErrCorrupt, and so does Check from then on until the store is opened again. The
// log names the file.
//
// The folder was deleted, renamed or replaced: within 100 ms everything fails with
// kv.ErrUnavailable, and nothing more is written. If the same folder comes back, the
// store is reopened.
//
// # Backups
//
// Backup makes a copy of a store in use, which has every commit that was durable before. A
// copy of the folder of a store in use is not a backup.
//
// # Bytes and concurrency
//
// As package kv says. A transaction may also be used by several goroutines,
// one after the other.
package pebblekv

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// DB is a store in a folder. It implements kv.Database and is safe for
// concurrent use.
type DB struct {
	dir     string
	system  bool // the folder is in the file system of the operating system
	options Options
	lock    *pebble.Lock
	folder  *folder
	damage  damage
	space   *space // nil if nothing is kept free

	writer  chan struct{} // full while there is a write transaction
	closing chan struct{} // closed by Close
	close   sync.Once
	closed  error // what Close returns

	retry time.Time // when to try to reopen the folder; belongs to the writer
	turns int64     // one for each transaction, and for each whose writes are lost; belongs to the writer

	mu    sync.Mutex
	store *store // nil while the folder cannot be reopened
	down  error  // why store is nil
}

var _ kv.Database = (*DB)(nil)

// ErrInUse is returned by Open if another DB of this or another process uses the folder.
var ErrInUse = errors.New("is in use by another process")

// Open opens the store in the folder dir, which it creates if necessary. It fails if
// dir is in use by a DB of this or another process, or holds other files and no store. In the file system of the
// operating system it revokes the permissions of everybody but the owner on dir and
// its files, if it may.
func Open(dir string, o Options) (*DB, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if abs, err := filepath.Abs(dir); err == nil {
		if err := checkFinished(abs); err != nil {
			return nil, err
		}
	}
	return open(dir, o)
}

// open is Open with valid options, also for a folder in an unfinished backup.
func open(dir string, o Options) (*DB, error) {
	system := o.FS == nil
	if system {
		// The lock is by name.
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, fmt.Errorf("pebblekv: folder %s: %w", dir, err)
		}
		dir = abs
	}
	o = o.withDefaults()
	if err := checkFolder(o.FS, dir); err != nil {
		return nil, err
	}
	lock, err := lockFolder(dir, o.FS)
	if err != nil {
		return nil, err
	}
	if system {
		tighten(dir, os.Chmod, o.Logger)
	}
	db := &DB{
		dir:     dir,
		system:  system,
		options: o,
		lock:    lock,
		damage:  damage{logger: o.Logger},
		writer:  make(chan struct{}, 1),
		closing: make(chan struct{}),
	}
	if db.folder, err = newFolder(o.FS, dir, o.now); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	if o.MinFreeSpace > 0 {
		db.space = &space{fs: o.FS, dir: dir, min: uint64(o.MinFreeSpace), now: o.now}
	}
	db.store, err = db.openStore()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("pebblekv: open the store in %s: %w", dir, err), lock.Close())
	}
	return db, nil
}

func lockFolder(dir string, files vfs.FS) (*pebble.Lock, error) {
	if err := files.MkdirAll(dir, ownerFolder); err != nil {
		return nil, fmt.Errorf("pebblekv: make the folder %s: %w", dir, err)
	}
	lock, err := pebble.LockDirectory(dir, files)
	if _, isPath := errors.AsType[*fs.PathError](err); isPath {
		return nil, fmt.Errorf("pebblekv: make the lock of the folder %s: %w", dir, err)
	}
	if err != nil {
		return nil, fmt.Errorf("pebblekv: folder %s %w: %w", dir, ErrInUse, err)
	}
	return lock, nil
}

// Traits implements kv.Database.
func (db *DB) Traits() kv.Traits { return kv.Traits{Pipelines: true, Serial: true} }

// Begin implements kv.Database. A blind transaction is like any other here.
func (db *DB) Begin(ctx context.Context, o kv.BeginOptions) (kv.Transaction, error) {
	if err := db.usable(ctx); err != nil {
		return nil, err
	}
	select {
	case db.writer <- struct{}{}:
	case <-db.closing:
		return nil, kv.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	tx, err := db.begin(ctx, o)
	if err != nil {
		<-db.writer
		return nil, err
	}
	return tx, nil
}

// begin is Begin with db.writer held.
func (db *DB) begin(ctx context.Context, o kv.BeginOptions) (*transaction, error) {
	if err := db.usable(ctx); err != nil {
		return nil, err
	}
	if err := db.present(false); err != nil {
		return nil, err
	}
	s, err := db.healthy()
	if err != nil {
		return nil, err
	}
	if err := s.waitRoom(ctx, db.closing); err != nil {
		return nil, err
	}
	return newTransaction(ctx, db, s, o)
}

// BeginRead implements kv.Database.
func (db *DB) BeginRead(ctx context.Context) (kv.ReadTransaction, error) {
	if err := db.usable(ctx); err != nil {
		return nil, err
	}
	if err := db.present(false); err != nil {
		return nil, err
	}
	s, err := db.current()
	if err != nil {
		s, err = db.reopen(ctx, err)
	}
	if err != nil {
		return nil, err
	}
	tx := &readTransaction{ctx: ctx, store: s}
	if err := s.beginRead(tx); err != nil {
		return nil, err
	}
	return tx, nil
}

// reopen lets a reader try to reopen the folder, which could not be opened because of
// down. Writers try too, but there may be none.
func (db *DB) reopen(ctx context.Context, down error) (*store, error) {
	select {
	case db.writer <- struct{}{}:
	default:
		return nil, down // a writer is about to try, or the store is being closed
	}
	defer func() { <-db.writer }()
	if err := db.usable(ctx); err != nil {
		return nil, err
	}
	return db.healthy()
}

func (db *DB) usable(ctx context.Context) error {
	select {
	case <-db.closing:
		return kv.ErrClosed
	default:
		return ctx.Err()
	}
}

// present returns an error wrapping kv.ErrUnavailable if the folder is gone. Then
// nothing more is written, not even to a folder that took its place.
func (db *DB) present(must bool) error {
	gone := db.folder.check(must)
	if gone == nil {
		return nil
	}
	if s, err := db.current(); err == nil {
		s.disk.fail(gone)
	}
	return failure(gone)
}

// Check implements kv.Database.
func (db *DB) Check() error {
	if err := db.usable(context.Background()); err != nil {
		return err
	}
	if err := db.present(true); err != nil {
		return err
	}
	s, err := db.current()
	if err == nil {
		err = s.err()
	}
	if err != nil {
		return err
	}
	return db.damage.err()
}

// current returns the store, whether or not its disk has failed.
func (db *DB) current() (*store, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.store == nil {
		return nil, db.down
	}
	return db.store, nil
}

func (db *DB) setCurrent(s *store, down error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.store, db.down = s, down
}

// Close implements kv.Database. It waits until the commits in progress are durable.
func (db *DB) Close() error {
	db.close.Do(func() {
		close(db.closing)
		// A write transaction could stay open indefinitely.
		if s, err := db.current(); err == nil {
			s.abortAll(kv.ErrClosed)
		}
		// From here on nobody begins one, or reopens the folder.
		db.writer <- struct{}{}
		var err error
		if s, down := db.current(); down == nil {
			err = s.close(kv.ErrClosed)
		}
		db.setCurrent(nil, kv.ErrClosed)
		if err = errors.Join(err, db.lock.Close()); err != nil {
			db.closed = fmt.Errorf("pebblekv: close the store in %s: %w", db.dir, err)
		}
		<-db.writer
	})
	return db.closed
}
