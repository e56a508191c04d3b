package pebblekv

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

const (
	// retryInterval is the shortest time between two attempts to reopen the folder.
	retryInterval = 250 * time.Millisecond
	proofSize     = 64 << 10 // bytes
)

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

// healthy returns the store, and an error if there is none or its disk has failed.
func (db *DB) healthy() (*openedStore, error) {
	s, err := db.current()
	if err == nil {
		err = s.err()
	}
	return s, err
}

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

// openOverhead is what opening the folder writes besides what the logs hold, in bytes.
const openOverhead = 64 << 10

// wantRoomFor returns an error wrapping kv.ErrUnavailable if less is free than Pebble needs to turn
// the logs into tables when it opens the folder. An attempt on a disk that fills up meanwhile would
// leave tables there, so that room that is made in steps is used up by the attempts.
func (db *DB) wantRoomFor(logs *replayedLogs) error {
	db.logsNeed = 0
	size := logs.fileSize()
	if size == 0 || db.space.want(size+openOverhead) == nil {
		return nil
	}

	need := logs.size() + openOverhead
	err := db.space.want(need)
	if err != nil {
		db.logsNeed = need
	}
	return err
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
