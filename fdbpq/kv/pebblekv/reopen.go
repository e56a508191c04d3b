package pebblekv

import (
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
