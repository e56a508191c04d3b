package pebblekv

import (
	"context"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// DB is a store in a folder. It implements kv.Database and is safe for concurrent use.
type DB struct {
	dir     string
	system  bool // dir is in the file system of the operating system
	options Options
	lock    *pebble.Lock
	folder  *folderGuard // nil unless system
	damage  damage
	space   *spaceGuard

	// Only the writer uses these.
	writer   *writerSlot
	retry    time.Time // when to try to reopen the folder
	logsNeed uint64    // bytes to be free before that, if the last attempt lacked them

	mu    sync.Mutex
	store *openedStore // nil while the folder cannot be reopened
	down  error        // why store is nil

	closing chan struct{} // closed by Close
	close   sync.Once
	closed  error // returned by Close
}

// checkOpen returns kv.ErrClosed once Close was called, and the error of ctx if it ended.
func (db *DB) checkOpen(ctx context.Context) error {
	select {
	case <-db.closing:
		return kv.ErrClosed
	default:
		return ctx.Err()
	}
}

// current returns the store, whether or not its disk has failed.
func (db *DB) current() (*openedStore, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.store == nil {
		return nil, db.down
	}
	return db.store, nil
}

func (db *DB) setCurrent(s *openedStore, down error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.store, db.down = s, down
}

// healthy returns the store, and an error if there is none or its disk has failed.
func (db *DB) healthy() (*openedStore, error) {
	s, err := db.current()
	if err == nil {
		err = s.err()
	}
	return s, err
}

// checkUsable is checkOpen, and also returns an error wrapping kv.ErrUnavailable if the folder is
// gone. Then nothing more is written, not even to a folder that took its place. Unless must, a look
// at the folder a moment ago will do.
func (db *DB) checkUsable(ctx context.Context, must bool) error {
	if err := db.checkOpen(ctx); err != nil {
		return err
	}
	gone := db.folder.check(must)
	if gone == nil {
		return nil
	}
	if s, err := db.current(); err == nil {
		s.disk.fail(gone)
	}
	return failure(gone)
}
