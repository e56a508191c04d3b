// Package pebblekv is the embedded engine: a store in a folder of this machine,
// kept by Pebble.
//
// # Guarantees
//
// There is one write transaction at a time; Begin waits for the one before, in
// the order of the calls. So there are no conflicts, and conflict ranges only
// count towards the size of a transaction. The next one may begin when Commit
// has returned, before its future is ready, and sees what was written. The
// syncs of the log are shared by the commits that wait for one.
//
// When the future of Commit is ready without error, the writes are in the
// synced log, and survive kill -9 and a power cut. BeginRead shows nothing that
// a power cut could take back: it is the state whose sync is done. The futures
// become ready in the order of the commits, and whether anybody waits for them
// makes no difference.
//
// A folder is used by one DB at a time, of all processes.
//
// # Failures
//
// A disk that gets full: transactions that make the store larger fail with
// kv.ErrUnavailable while less than Options.MinFreeSpace is free, and succeed
// again when there is more.
//
// A write or sync that fails: every commit under way fails with
// kv.ErrCommitUnknown, since the writes may or may not be found later. From
// then on nothing is written to the folder, as if the power had been cut at
// that moment. BeginRead goes on to show the durable state; everything that
// writes fails with kv.ErrUnavailable. Begin opens the folder again as soon as
// the disk takes a file of proof, tried at most four times a second. Then
// transactions that are still open fail with kv.ErrUnavailable, and what
// survived is synced before it is shown. Nothing that was acknowledged is lost.
// If the folder cannot be opened BeginRead fails too, and also tries again.
//
// A log that is damaged, cut off or missing: Open fails, and its error says what to
// do, unless only what was never synced is affected. After a power cut damage to
// what was synced last can be mistaken for that.
//
// A manifest, the list of the tables, that is damaged, cut off, missing or an older
// one: Open fails, and its error says what to do. In a store of an earlier version
// that holds from its first start on.
//
// A table that is damaged, missing or cannot be read: the reads that need it fail
// with kv.ErrCorrupt, and so does Check from then on, until the store is opened
// again. The log names the file.
//
// A folder that was deleted, renamed or replaced: within 100 ms everything fails
// with kv.ErrUnavailable, and nothing is written any more. If the same folder comes
// back the store is opened again.
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
	options Options
	lock    *pebble.Lock
	folder  *folder
	damage  damage
	space   *space // nil if nothing is kept free

	writer  chan struct{} // full while there is a write transaction
	closing chan struct{} // closed by Close
	close   sync.Once
	closed  error // what Close returns

	retry time.Time // when to open the folder again; belongs to the writer

	mu    sync.Mutex
	store *store // nil while the folder could not be opened again
	down  error  // why store is nil
}

var _ kv.Database = (*DB)(nil)

// Open opens the store in the folder dir, which is made if there is none. It
// fails if dir is in use by a DB of this or another process. In the file system of
// the operating system it takes the rights of everybody but the owner away from
// dir and its files, if it may.
func Open(dir string, o Options) (*DB, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
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
	lock, err := lockFolder(dir, o.FS)
	if err != nil {
		return nil, err
	}
	if system {
		tighten(dir, os.Chmod, o.Logger)
	}
	db := &DB{
		dir:     dir,
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
		return nil, fmt.Errorf("pebblekv: folder %s is in use by another process: %w", dir, err)
	}
	return lock, nil
}

// Traits implements kv.Database.
func (db *DB) Traits() kv.Traits { return kv.Traits{Pipelines: true, Serial: true} }

// Begin implements kv.Database. A blind transaction is like any other here.
func (db *DB) Begin(ctx context.Context, _ kv.BeginOptions) (kv.Transaction, error) {
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
	tx, err := db.begin(ctx)
	if err != nil {
		<-db.writer
		return nil, err
	}
	return tx, nil
}

// begin is Begin with db.writer held.
func (db *DB) begin(ctx context.Context) (*transaction, error) {
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
	return newTransaction(ctx, db, s)
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

// reopen is for readers of a store that could not be opened again, as down
// says: writers try that again, but there may be none.
func (db *DB) reopen(ctx context.Context, down error) (*store, error) {
	select {
	case db.writer <- struct{}{}:
	default:
		return nil, down // a writer is about to try, or to close
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

// present returns an error wrapping kv.ErrUnavailable if the folder is not there
// any more. Then nothing is written any more, also not to what has taken its
// place.
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

// Close implements kv.Database. It waits until the commits under way are
// durable.
func (db *DB) Close() error {
	db.close.Do(func() {
		close(db.closing)
		// A write transaction may be open for as long as it likes.
		if s, err := db.current(); err == nil {
			s.abortAll(kv.ErrClosed)
		}
		// From here on nobody begins one, or opens the folder again.
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
