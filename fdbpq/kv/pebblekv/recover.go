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
	proofName     = "writable"
	proofSize     = 64 << 10 // bytes
)

// healthy returns a store whose disk has not failed. If there is none it tries to
// reopen the folder. The caller holds db.writer.
//
// Going on in the same process is sound, although after a failed sync a file may read
// differently from what is on the disk: before the store is used, Pebble's recovery
// writes everything it finds in the log to new tables, and its state to a new
// manifest, and syncs both.
func (db *DB) healthy() (*store, error) {
	s, down := db.current()
	if s != nil {
		down = s.err()
	}
	if down == nil {
		return s, nil
	}
	now := db.options.now()
	if now.Before(db.retry) {
		return nil, down
	}
	db.retry = now.Add(retryInterval)
	if err := db.space.check(true); err != nil {
		return nil, err
	}
	if err := db.prove(); err != nil {
		return nil, failure(err)
	}
	if s != nil {
		db.setCurrent(nil, fmt.Errorf("%w: the folder is being reopened", kv.ErrUnavailable))
		// On a failed disk the result of closing means nothing.
		_ = s.close(down)
	}
	fresh, err := db.openStore()
	if err != nil {
		db.options.Logger.Error("pebblekv: cannot reopen the folder", "folder", db.dir, "error", err.Error())
		down = failure(err)
		db.setCurrent(nil, down)
		return nil, down
	}
	db.turns++ // commits that were not durable may be lost
	db.setCurrent(fresh, nil)
	db.options.Logger.Info("pebblekv: the disk works again", "folder", db.dir)
	return fresh, nil
}

// prove writes, syncs and removes a file of the folder.
func (db *DB) prove() (err error) {
	files := db.options.FS
	name := files.PathJoin(db.dir, proofName)
	f, err := files.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, files.Remove(name)) }()
	_, err = f.Write(make([]byte, proofSize))
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
