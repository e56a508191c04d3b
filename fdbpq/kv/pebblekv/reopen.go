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

// current returns the store, whether or not its disk has failed.
func (p *opener) current() (*openedStore, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.store == nil {
		return nil, p.down
	}
	return p.store, nil
}

func (p *opener) setCurrent(s *openedStore, down error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.store, p.down = s, down
}

// checkFolder returns an error wrapping kv.ErrUnavailable if the folder is gone. Then nothing more
// is written, not even to a folder that took its place. Unless must, a check made a moment ago will
// do.
func (p *opener) checkFolder(must bool) error {
	gone := p.folder.check(must)
	if gone == nil {
		return nil
	}
	if s, err := p.current(); err == nil {
		s.disk.fail(gone)
	}
	return failure(gone)
}

// healthy returns the store, and an error if there is none or its disk has failed.
func (p *opener) healthy() (*openedStore, error) {
	s, err := p.current()
	if err == nil {
		err = s.err()
	}
	return s, err
}

// repaired is healthy, but tries to reopen the folder if the disk has failed. The caller holds the
// writer slot.
//
// Going on in the same process is sound, although after a failed sync a file may read differently
// from what is on the disk: before the store is used, Pebble's recovery writes everything it finds
// in the log to new tables, and its state to a new manifest, and syncs both.
func (p *opener) repaired() (*openedStore, error) {
	s, down := p.healthy()
	if down == nil {
		return s, nil
	}

	now := p.options.now()
	if now.Before(p.retry) {
		return nil, down
	}

	p.retry = now.Add(retryInterval)
	if err := p.space.check(true); err != nil {
		return nil, err
	}
	if err := p.proveWritable(); err != nil {
		return nil, failure(err)
	}

	if s != nil {
		p.setCurrent(nil, fmt.Errorf("%w: the folder is being reopened", kv.ErrUnavailable))
		_ = s.close(down) // On a failed disk its result means nothing.
	}

	fresh, err := p.open()
	if err != nil {
		p.options.Logger.Error("pebblekv: cannot reopen the folder",
			"folder", p.dir, "error", err.Error())
		down = failure(err)
		p.setCurrent(nil, down)
		return nil, down
	}

	// Commits that were not durable may be lost.
	p.writer.skipTurn()
	p.setCurrent(fresh, nil)
	p.options.Logger.Info("pebblekv: the disk works again", "folder", p.dir)
	return fresh, nil
}

// proveWritable writes, syncs and removes a file in the folder.
func (p *opener) proveWritable() (err error) {
	files := p.options.FS
	name := files.PathJoin(p.dir, proofName)
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
